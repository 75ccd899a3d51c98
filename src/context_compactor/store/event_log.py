"""The table of events: the newest of them, in the order in which they were stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from context_compactor.store.database import NO_LIMIT, Database, where_given
from context_compactor.store.events import Event
from context_compactor.store.rows import StoredEvent, lock_webhook, namespace_of, take_lock

_COLUMNS = "number, id, type, session_id, created_at, payload"
_MOST = 10_000
_TRIM_EVERY = 250


# Deliveries to a webhook that is disabled are not waited for.
_OLDEST_UNDELIVERED = """
SELECT min(oldest) FROM (SELECT (SELECT min(d.event) FROM deliveries d WHERE d.webhook = w.id) AS oldest
FROM webhooks w WHERE w.namespace = ? AND w.disabled_at = '') AS undelivered"""
_OLDEST_OF_NEWEST = "SELECT number FROM events WHERE namespace = ? ORDER BY number DESC LIMIT 1 OFFSET ?"


class EventTable:
    """The newest `most` events of each namespace, and up to 250 more for each process that adds some.

    One that a webhook is yet to be sent is kept for longer, with all of its namespace that came behind it. So nothing
    of a namespace is missing behind any event of it that is kept.
    """

    def __init__(self, database: Database, most: int = _MOST) -> None:
        self._database = database
        self._most = most
        self._untrimmed: dict[str, int] = {}
        """How many events this process has added to a namespace since it was trimmed."""

    def add(self, event: Event) -> int:
        """Keep an event; its number. One that is there already stays as it is."""
        namespace, payload = namespace_of(event.session_id), msgspec.json.encode(event.payload).decode()
        with self._database.writing():
            take_lock(self._database, "event")  # so that what is seen by readers only grows at its end
            made = self._database.rows(
                "INSERT INTO events (id, type, session_id, namespace, created_at, payload) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO NOTHING RETURNING number",
                [event.id, event.type, event.session_id, namespace, event.created_at, payload],
            )
            number = int(made[0][0]) if made else self.number(event.id)
            if made:
                self._trim_sometimes(namespace)
            return number

    def _trim_sometimes(self, namespace: str) -> None:
        """Trim with the first event of this process, since others may have ended before they did, and then rarely."""
        added = self._untrimmed.get(namespace, _TRIM_EVERY) + 1
        if added > _TRIM_EVERY:
            oldest = self._database.row(_OLDEST_OF_NEWEST, [namespace, self._most - 1])
            if oldest is not None:
                undelivered = self._database.row(_OLDEST_UNDELIVERED, [namespace])[0]
                first = int(oldest[0]) if undelivered is None else min(int(oldest[0]), int(undelivered))
                self._database.write("DELETE FROM events WHERE namespace = ? AND number < ?", [namespace, first])
            added = 0
        self._untrimmed[namespace] = added

    def number(self, event_id: str) -> int:
        """The number of an event; of one that is no longer kept, that of the last one before it."""
        row = self._database.row("SELECT number FROM events WHERE id = ?", [event_id])
        if row is None:  # ids sort by time
            row = self._database.row("SELECT max(number) FROM events WHERE id < ?", [event_id])
        return int(row[0] or 0)

    def last(self) -> int:
        """The number of the newest event."""
        return int(self._database.row("SELECT max(number) FROM events")[0] or 0)

    def after(
        self,
        number: int,
        *,
        session_id: str | None = None,
        namespace: str | None = None,
        types: Collection[str] = (),
        limit: int = 1_000,
    ) -> list[StoredEvent]:
        """Events behind a number, oldest first."""
        return self._found("number > ?", number, session_id, namespace, types, "number", limit)

    def newest(
        self,
        *,
        session_id: str | None = None,
        namespace: str | None = None,
        types: Collection[str] = (),
        before: int | None = None,
        limit: int = 100,
    ) -> list[StoredEvent]:
        """Events, newest first; `before` is the number of the last one seen."""
        bound = NO_LIMIT if before is None else before
        return self._found("number < ?", bound, session_id, namespace, types, "number DESC", limit)

    def _found(
        self,
        bound: str,
        number: int,
        session_id: str | None,
        namespace: str | None,
        types: Collection[str],
        order: str,
        limit: int,
    ) -> list[StoredEvent]:
        clauses = {bound: number, "session_id = ?": session_id, "namespace = ?": namespace}
        where, values = where_given(clauses, {"type": types})
        statement = f"SELECT {_COLUMNS} FROM events WHERE {where} ORDER BY {order} LIMIT ?"
        return [stored_event(row) for row in self._database.rows(statement, [*values, limit])]

    def forget(self, before: str) -> None:
        """Delete the events from before a time."""
        self._database.write("DELETE FROM events WHERE created_at < ?", [before])

    def remove(self, session_id: str) -> None:
        """Delete the events of a session, which is no longer there, and their deliveries."""
        with self._database.writing():
            near = "SELECT id FROM webhooks WHERE namespace = ? ORDER BY id"
            for (webhook_id,) in self._database.rows(near, [namespace_of(session_id)]):
                lock_webhook(self._database, webhook_id)
            take_lock(self._database, "event")  # behind the webhooks, as elsewhere: so nobody waits in a circle
            events = "SELECT number FROM events WHERE session_id = ?"
            self._database.write(f"DELETE FROM deliveries WHERE event IN ({events})", [session_id])
            self._database.write("DELETE FROM events WHERE session_id = ?", [session_id])


def stored_event(row: Sequence[Any]) -> StoredEvent:
    """The event of a row of the table."""
    number, *event, payload = row
    return StoredEvent(int(number), Event(*[*event, msgspec.json.decode(payload)]))
