"""Being told of events by the database itself, where it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from context_compactor.protocols import Store


class Notices(Protocol):
    """Tells of events that anybody has committed, from `start` to `stop`."""

    is_listening: bool

    def start(self) -> None:
        """Begin to listen."""
        ...

    def stop(self) -> None:
        """Listen no more."""
        ...


def notices_of(store: Store, told: Callable[[str], None]) -> Notices | None:
    """What calls `told`, in a thread, with the type of every event that is committed to a store.

    None where the database cannot tell, and somebody has to look. "" means that something may have been missed.
    """
    try:
        from context_compactor.store.postgres import PostgresStore
        from context_compactor.store.postgres_database import PostgresDatabase
        from context_compactor.store.postgres_notices import Notices as PostgresNotices
    except ImportError:
        return None
    if not isinstance(store, PostgresStore) or not isinstance(store._database, PostgresDatabase):
        return None
    return PostgresNotices(store._database._address, told)
