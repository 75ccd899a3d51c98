"""What a service stores beside sessions, in the same database and transactions: jobs, events, idempotency keys,
webhooks; its clock and notifications."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from context_compactor.errors import BadSetting
from context_compactor.protocols import ServiceStore, Store
from context_compactor.store.database import Database
from context_compactor.store.event_log import EventTable
from context_compactor.store.events import Event, make_event
from context_compactor.store.idempotency import IdempotencyTable
from context_compactor.store.jobs import JobTable
from context_compactor.store.rows import StoredEvent, prefix_of, timestamp
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.webhooks import AttemptTable, ForgottenDeliveries, WebhookTable

_DAY = 24 * 60 * 60
_KEPT_SECONDS = 7 * _DAY


class SqlServiceStore:
    """Jobs, events, answers and webhooks in a database that has the tables of `sql/`; see `protocols.Desk`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.jobs = JobTable(database)
        self.events = EventTable(database)
        self.answers = IdempotencyTable(database)
        self.webhooks = WebhookTable(database)
        self.attempts = AttemptTable(database)

    def writing(self) -> AbstractContextManager[None]:
        """A transaction over all of it; within one of the store it is that one."""
        return self._database.writing()

    def part(self) -> AbstractContextManager[None]:
        """A part of the transaction under way, of which all or nothing happens, while the rest goes on."""
        return self._database.part()

    def tell(self, event: Event) -> int:
        """Keep an event and note which webhooks are to be told; its number."""
        with self.writing():
            number = self.events.add(event)
            self.webhooks.owe(StoredEvent(number, event), event.created_at)
            return number

    def delete_expired(self, now: datetime) -> None:
        """Delete what is too old to be asked for: answers of a day, the rest of a week.

        When a webhook has not been told of something by then, it never will be, and that is an event.
        """
        before = timestamp(now, -_KEPT_SECONDS)
        with self.writing():
            self.jobs.forget(before)
            self.events.forget(before)
            self.answers.forget(timestamp(now, -_DAY))
        with self.writing():  # apart from the deletions, for which somebody may wait whose turn it is to tell an event
            for forgotten in self.webhooks.forget():
                self.tell(_given_up(forgotten, now))


def _given_up(forgotten: ForgottenDeliveries, now: datetime) -> Event:
    reason = f"events that it was not told of in time, which are too old and no longer kept: {forgotten.events:,}"
    payload = {"what": "webhook", "webhook": forgotten.webhook, "events": forgotten.events, "reason": reason}
    return make_event("job.dropped", prefix_of(forgotten.namespace), payload, now)


def service_store_of(store: Store) -> ServiceStore:
    """The desk in the database of a store. It shares the store's connections, and is closed with it."""
    if isinstance(store, SqlStore):
        return SqlServiceStore(store._database)
    raise BadSetting(f"store: {type(store).__name__} cannot run jobs. Try: a store opened with `connect`.")


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


class EventListener(Protocol):
    """Tells of events that anybody has committed, from `start` to `stop`."""

    is_listening: bool

    def start(self) -> None:
        """Begin to listen."""
        ...

    def stop(self) -> None:
        """Listen no more."""
        ...


def event_listener_of(store: Store, told: Callable[[str], None]) -> EventListener | None:
    """What calls `told`, in a thread, with the type of every event that is committed to a store.

    None where the database cannot tell, and somebody has to look. "" means that something may have been missed.
    """
    try:
        from context_compactor.store.postgres import PostgresDatabase, PostgresStore
        from context_compactor.store.postgres_notifications import PostgresEventListener as PostgresNotices
    except ImportError:
        return None
    if not isinstance(store, PostgresStore) or not isinstance(store._database, PostgresDatabase):
        return None
    return PostgresNotices(store._database._address, told)
