"""The clock that all who share a database can go by, where it has one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from context_compactor.protocols import Store


def clock_of(store: Store) -> Callable[[], datetime] | None:
    """What tells the time of a store's database server; None where there is none but that of this machine."""
    try:
        from context_compactor.store.postgres import PostgresStore
    except ImportError:
        return None
    if not isinstance(store, PostgresStore):
        return None
    database = store._database

    def now() -> datetime:
        moment: datetime = database.row("SELECT clock_timestamp()")[0]
        return moment

    return now
