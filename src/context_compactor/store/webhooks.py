"""The tables of webhooks: what each is yet to be sent, and the newest delivery attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from context_compactor.store.database import Database, where_given
from context_compactor.store.event_log import stored_event
from context_compactor.store.rows import (
    Delivery,
    DeliveryAttempt,
    StoredEvent,
    Webhook,
    lock_webhook,
    namespace_of,
    plain_reason,
    take_lock,
)

_WEBHOOK_COLUMNS = "id, namespace, url, secret, types, created_at, failures, disabled_at, reason"
_DELIVERY = (
    "d.id, d.webhook, d.attempts, d.due_at, d.worker, d.reason, "
    "e.number, e.id, e.type, e.session_id, e.created_at, e.payload"
)
_JOIN = "FROM deliveries d JOIN events e ON e.number = d.event"
# Of each webhook the oldest event that is still kept, if it is due and nothing else is on its way to the webhook.
_READY = f"""
SELECT d.id FROM webhooks w JOIN deliveries d
ON d.id = (SELECT d.id {_JOIN} WHERE d.webhook = w.id ORDER BY d.event LIMIT 1)
WHERE w.disabled_at = '' AND d.due_at <= ? AND NOT EXISTS (
  SELECT 1 FROM deliveries b WHERE b.webhook = w.id AND b.lease_until <> '' AND b.lease_until >= ?)
ORDER BY d.due_at, d.id LIMIT 1"""
_GONE = "NOT EXISTS (SELECT 1 FROM events e WHERE e.number = deliveries.event)"


class ForgottenDeliveries(Struct, frozen=True):
    """A webhook that will never get some events."""

    webhook: str
    namespace: str
    events: int


class WebhookTable:
    """The webhooks, and the deliveries that are under way."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, webhook: Webhook) -> None:
        """Register a webhook."""
        self._database.write(
            f"INSERT INTO webhooks ({_WEBHOOK_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [" ".join(each) if isinstance(each, tuple) else each for each in structs.astuple(webhook)],
        )

    def all(self, namespace: str | None = None) -> list[Webhook]:
        """The webhooks, of one namespace if it is given, oldest first."""
        where, values = where_given({"namespace = ?": namespace}, {})
        return self._find(f"{where} ORDER BY created_at, id", values)

    def find(self, webhook_id: str, namespace: str) -> Webhook | None:
        """The webhook of this id, if it is one of the namespace."""
        return next(iter(self._find("id = ? AND namespace = ?", [webhook_id, namespace])), None)

    def _find(self, where: str, values: Sequence[Any]) -> list[Webhook]:
        rows = self._database.rows(f"SELECT {_WEBHOOK_COLUMNS} FROM webhooks WHERE {where}", values)
        return [Webhook(*[*row[:4], tuple(row[4].split()), *row[5:]]) for row in rows]

    def remove(self, webhook_id: str, namespace: str) -> bool:
        """Delete a webhook and what it was yet to be sent; whether there was one."""
        with self._database.writing():
            gone = self._database.rows(
                "DELETE FROM webhooks WHERE id = ? AND namespace = ? RETURNING id", [webhook_id, namespace]
            )
            if gone:
                self._database.write("DELETE FROM deliveries WHERE webhook = ?", [webhook_id])
            return bool(gone)

    def disable(self, webhook_id: str, now: str, reason: str) -> None:
        """Send a webhook nothing more; what it was yet to be sent waits until it is enabled, or is too old."""
        statement = "UPDATE webhooks SET disabled_at = ?, reason = ? WHERE id = ?"
        self._database.write(statement, [now, plain_reason(reason), webhook_id])

    def enable(self, webhook_id: str) -> None:
        """Send a webhook events again, as if it had never failed."""
        statement = "UPDATE webhooks SET disabled_at = '', reason = '', failures = 0 WHERE id = ?"
        self._database.write(statement, [webhook_id])

    # Deliveries

    def queue_deliveries(self, stored: StoredEvent, now: str) -> int:
        """Queue an event for every webhook that wants it; how many that are."""
        with self._database.writing():
            near = self.all(namespace_of(stored.event.session_id))
            return sum(self._queue(webhook.id, stored.number, now) for webhook in near if _wants(webhook, stored))

    def replay(self, webhook: Webhook, events: Sequence[StoredEvent], now: str) -> int:
        """Queue these events for a webhook once more, those that it wants; how many that are."""
        with self._database.writing():
            if lock_webhook(self._database, webhook.id) is None:
                return 0
            return sum(self._queue(webhook.id, stored.number, now) for stored in events if _wants(webhook, stored))

    def _queue(self, webhook_id: str, number: int, now: str) -> bool:
        made = self._database.rows(
            "INSERT INTO deliveries (webhook, event, attempts, due_at, lease_until, worker, reason) "
            "VALUES (?, ?, 0, ?, '', '', '') ON CONFLICT (webhook, event) DO NOTHING RETURNING id",
            [webhook_id, number, now],
        )
        return bool(made)

    def claim(self, worker: str, now: str, until: str) -> Delivery | None:
        """The next delivery that is due, held by this worker until then. One webhook's go out one at a time."""
        if self._database.row(_READY, [now, now]) is None:
            return None
        with self._database.writing():
            take_lock(self._database, "delivery")
            found = self._database.row(_READY, [now, now])
            if found is None:
                return None
            change = "attempts = attempts + 1, worker = ?, lease_until = ? WHERE id = ?"
            self._database.write(f"UPDATE deliveries SET {change}", [worker, until, found[0]])
            claimed = self._database.row(f"SELECT {_DELIVERY} {_JOIN} WHERE d.id = ?", [found[0]])
            return _delivery(claimed) if claimed else None  # its webhook may have been removed meanwhile

    def delivered(self, delivery: Delivery) -> bool:
        """The webhook got it; False when another worker has the delivery by now."""
        with self._database.writing():
            self._database.write("UPDATE webhooks SET failures = 0 WHERE id = ?", [delivery.webhook])
            gone = self._database.rows(
                "DELETE FROM deliveries WHERE id = ? AND worker = ? AND attempts = ? RETURNING id", _holder(delivery)
            )
            return bool(gone)

    def failed(self, delivery: Delivery, due_at: str, reason: str) -> int:
        """The webhook did not get it and is to be tried again then; how often it has failed in a row."""
        with self._database.writing():
            failures = self._database.rows(
                "UPDATE webhooks SET failures = failures + 1, reason = ? WHERE id = ? RETURNING failures",
                [plain_reason(reason), delivery.webhook],
            )
            self._database.write(
                "UPDATE deliveries SET due_at = ?, reason = ?, lease_until = '' "
                "WHERE id = ? AND worker = ? AND attempts = ?",
                [due_at, plain_reason(reason), *_holder(delivery)],
            )
            return int(failures[0][0]) if failures else 0

    def waiting(self, webhook_id: str, limit: int = 100) -> list[Delivery]:
        """What a webhook is yet to be sent, in order."""
        statement = f"SELECT {_DELIVERY} {_JOIN} WHERE d.webhook = ? ORDER BY d.event LIMIT ?"
        return [_delivery(row) for row in self._database.rows(statement, [webhook_id, limit])]

    def forget(self) -> list[ForgottenDeliveries]:
        """Delete the deliveries of events that are no longer kept; whom they were for."""
        with self._database.writing():
            late = self._database.rows(f"SELECT DISTINCT webhook FROM deliveries WHERE {_GONE} ORDER BY webhook")
            found = [self._forget(webhook_id) for (webhook_id,) in late]
        return [each for each in found if each is not None]

    def _forget(self, webhook_id: str) -> ForgottenDeliveries | None:
        namespace = lock_webhook(self._database, webhook_id)
        gone = self._database.rows(f"DELETE FROM deliveries WHERE webhook = ? AND {_GONE} RETURNING id", [webhook_id])
        return ForgottenDeliveries(webhook_id, namespace, len(gone)) if gone and namespace is not None else None


def _wants(webhook: Webhook, stored: StoredEvent) -> bool:
    if webhook.disabled_at or namespace_of(stored.event.session_id) != webhook.namespace:
        return False
    return not webhook.types or stored.event.type in webhook.types


def _holder(delivery: Delivery) -> tuple[int, str, int]:
    return delivery.id, delivery.worker, delivery.attempts


def _delivery(row: Sequence[Any]) -> Delivery:
    return Delivery(*[*row[:6], stored_event(row[6:])])


_ATTEMPT_COLUMNS = "webhook, event_id, type, attempt, created_at, status, reason"
_KEPT = 200


class AttemptTable:
    """The newest `keep` attempts of each webhook."""

    def __init__(self, database: Database, keep: int = _KEPT) -> None:
        self._database = database
        self._keep = keep

    def add(self, attempt: DeliveryAttempt) -> None:
        """Keep one, and no longer the oldest. Of a webhook that is gone none is kept."""
        with self._database.writing():
            if lock_webhook(self._database, attempt.webhook) is None:
                return
            self._database.write(
                f"INSERT INTO attempts ({_ATTEMPT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                structs.astuple(structs.replace(attempt, reason=plain_reason(attempt.reason))),
            )
            self._database.write(
                "DELETE FROM attempts WHERE webhook = ? AND id <= "
                "(SELECT id FROM attempts WHERE webhook = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                [attempt.webhook, attempt.webhook, self._keep],
            )

    def newest(self, webhook_id: str, limit: int = _KEPT) -> list[DeliveryAttempt]:
        """The attempts of a webhook, newest first."""
        statement = f"SELECT {_ATTEMPT_COLUMNS} FROM attempts WHERE webhook = ? ORDER BY id DESC LIMIT ?"
        return [DeliveryAttempt(*row) for row in self._database.rows(statement, [webhook_id, limit])]

    def forget(self, webhook_id: str) -> None:
        """Delete those of a webhook that is gone."""
        self._database.write("DELETE FROM attempts WHERE webhook = ?", [webhook_id])
