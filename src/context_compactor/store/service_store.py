"""What a service stores beside sessions, in the same database and transactions: jobs, events, idempotency keys,
webhooks, proxied requests; its clock and notifications."""

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
from context_compactor.store.proxied import ProxyTable
from context_compactor.store.rows import StoredEvent, prefix_of, timestamp
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.webhooks import AttemptTable, ForgottenDeliveries, WebhookTable

_DAY = 24 * 60 * 60
_KEPT_SECONDS = 7 * _DAY


class SqlServiceStore:
    """Jobs, events, answers, webhooks and proxied requests in the tables of `sql/`; see `protocols.ServiceStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.jobs = JobTable(database)
        self.events = EventTable(database)
        self.answers = IdempotencyTable(database)
        self.webhooks = WebhookTable(database)
        self.attempts = AttemptTable(database)
        self.proxied = ProxyTable(database)

    def writing(self) -> AbstractContextManager[None]:
        """A transaction over all of it; within one of the store it is that one."""
        return self._database.writing()

    def savepoint(self) -> AbstractContextManager[None]:
        """A part of the transaction under way, of which all or nothing happens, while the rest goes on."""
        return self._database.savepoint()

    def record_event(self, event: Event) -> int:
        """Store an event and queue its deliveries to webhooks; its number."""
        with self.writing():
            number = self.events.add(event)
            self.webhooks.queue_deliveries(StoredEvent(number, event), event.created_at)
            return number

    def delete_expired(self, now: datetime) -> None:
        """Delete what is too old to be asked for: answers of a day, the rest of a week.

        What a webhook has not got by then, it never will, and that is an event.
        """
        before = timestamp(now, -_KEPT_SECONDS)
        with self.writing():
            self.jobs.forget(before)
            self.events.forget(before)
            self.answers.forget(timestamp(now, -_DAY))
        with self.writing():  # apart from the deletions, for which somebody may wait who is about to store an event
            for forgotten in self.webhooks.forget():
                self.record_event(_given_up(forgotten, now))


def _given_up(forgotten: ForgottenDeliveries, now: datetime) -> Event:
    reason = f"events that could not be delivered in time, too old and no longer stored: {forgotten.events:,}"
    payload = {"what": "webhook", "webhook": forgotten.webhook, "events": forgotten.events, "reason": reason}
    return make_event("job.dropped", prefix_of(forgotten.namespace), payload, now)


def service_store_of(store: Store) -> ServiceStore:
    """The service store in the database of a store. It shares the store's connections, and is closed with it."""
    if isinstance(store, SqlStore):
        return SqlServiceStore(store._database)
    raise BadSetting(f"store: {type(store).__name__} cannot run jobs. Try: a store opened with `connect`.")


def clock_of(store: Store) -> Callable[[], datetime] | None:
    """The clock of a store's database server; None where there is none but that of this machine."""
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
    """Reports events that anybody has committed, from `start` to `stop`."""

    is_listening: bool

    def start(self) -> None:
        """Begin to listen."""

    def stop(self) -> None:
        """Listen no more."""


def event_listener_of(store: Store, on_event: Callable[[str], None]) -> EventListener | None:
    """What calls `on_event`, in a thread, with the type of every event that is committed to a store.

    None where the database cannot notify, and events must be polled. "" means that something may have been missed.
    """
    try:
        from context_compactor.store.postgres import PostgresDatabase, PostgresStore
        from context_compactor.store.postgres_notifications import PostgresEventListener
    except ImportError:
        return None
    if not isinstance(store, PostgresStore) or not isinstance(store._database, PostgresDatabase):
        return None
    return PostgresEventListener(store._database._address, on_event)
