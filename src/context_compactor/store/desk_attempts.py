"""How webhooks were told: the newest attempts of each."""

from __future__ import annotations

from context_compactor.store.database import Database
from context_compactor.store.desk_rows import Attempt, plain_reason, take_webhook

_COLUMNS = "webhook, event_id, type, attempt, created_at, status, reason"
_KEPT = 200


class Attempts:
    """The newest `keep` attempts of each webhook."""

    def __init__(self, database: Database, keep: int = _KEPT) -> None:
        self._database = database
        self._keep = keep

    def add(self, attempt: Attempt) -> None:
        """Keep one, and no longer the oldest. Of a webhook that is gone none is kept."""
        with self._database.writing():
            if take_webhook(self._database, attempt.webhook) is None:
                return
            self._database.write(
                f"INSERT INTO attempts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    attempt.webhook,
                    attempt.event_id,
                    attempt.type,
                    attempt.attempt,
                    attempt.created_at,
                    attempt.status,
                    plain_reason(attempt.reason),
                ],
            )
            self._database.write(
                "DELETE FROM attempts WHERE webhook = ? AND id <= "
                "(SELECT id FROM attempts WHERE webhook = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                [attempt.webhook, attempt.webhook, self._keep],
            )

    def newest(self, webhook_id: str, limit: int = _KEPT) -> list[Attempt]:
        """The attempts of a webhook, newest first."""
        statement = f"SELECT {_COLUMNS} FROM attempts WHERE webhook = ? ORDER BY id DESC LIMIT ?"
        return [Attempt(*row) for row in self._database.rows(statement, [webhook_id, limit])]

    def forget(self, webhook_id: str) -> None:
        """Delete those of a webhook that is gone."""
        self._database.write("DELETE FROM attempts WHERE webhook = ?", [webhook_id])
