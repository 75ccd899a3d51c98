"""The desk that belongs to a store: what a service keeps in the same database, and in the same transactions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime

from context_compactor.errors import BadSetting
from context_compactor.events.event import Event, make_event
from context_compactor.protocols import Desk, Store
from context_compactor.store.database import Database
from context_compactor.store.desk_answers import Answers
from context_compactor.store.desk_attempts import Attempts
from context_compactor.store.desk_events import Events
from context_compactor.store.desk_jobs import Jobs
from context_compactor.store.desk_rows import KeptEvent, prefix_of, timestamp
from context_compactor.store.desk_webhooks import Forgotten, Webhooks
from context_compactor.store.sql_store import SqlStore

_DAY = 24 * 60 * 60
_KEPT_SECONDS = 7 * _DAY


class SqlDesk:
    """Jobs, events, answers and webhooks in a database that has the tables of `sql/`; see `protocols.Desk`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.jobs = Jobs(database)
        self.events = Events(database)
        self.answers = Answers(database)
        self.webhooks = Webhooks(database)
        self.attempts = Attempts(database)

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
            self.webhooks.owe(KeptEvent(number, event), event.created_at)
            return number

    def tidy(self, now: datetime) -> None:
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


def _given_up(forgotten: Forgotten, now: datetime) -> Event:
    reason = f"events that it was not told of in time, which are too old and no longer kept: {forgotten.events:,}"
    payload = {"what": "webhook", "webhook": forgotten.webhook, "events": forgotten.events, "reason": reason}
    return make_event("job.dropped", prefix_of(forgotten.namespace), payload, now)


def desk_of(store: Store) -> Desk:
    """The desk in the database of a store. It shares the store's connections, and is closed with it."""
    if isinstance(store, SqlStore):
        return SqlDesk(store._database)
    raise BadSetting(f"store: {type(store).__name__} has no desk and so no jobs. Try: a store that `connect` opens.")
