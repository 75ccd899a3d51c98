"""Requests that may be sent twice: the second time they are answered as the first time, and change nothing."""

from __future__ import annotations

from context_compactor.errors import KeyReused
from context_compactor.store.database import Database
from context_compactor.store.rows import StoredAnswer


class IdempotencyTable:
    """What requests with a key were answered, by session."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, session_id: str, key: str, body_hash: str) -> StoredAnswer | None:
        """What this request was answered, or None when it is new. The same key with another body is `KeyReused`."""
        row = self._database.row(
            "SELECT body_hash, answer, created_at FROM answers WHERE session_id = ? AND key = ?", [session_id, key]
        )
        kept = StoredAnswer(*row) if row else None
        if kept is not None and kept.body_hash != body_hash:
            raise KeyReused(
                f"the key {key!r:.80} was already used at {kept.created_at} for a different request. "
                "Try: a new key for each request."
            )
        return kept

    def take(self, session_id: str, key: str, body_hash: str, now: str) -> bool:
        """Note, in the transaction of what a request changes, that it was done; False when it had been done before."""
        with self._database.writing():
            made = self._database.rows(
                "INSERT INTO answers (session_id, key, body_hash, answer, created_at) VALUES (?, ?, ?, '', ?) "
                "ON CONFLICT (session_id, key) DO NOTHING RETURNING key",
                [session_id, key, body_hash, now],
            )
            return bool(made) or self.find(session_id, key, body_hash) is None

    def keep(self, session_id: str, key: str, answer: str) -> None:
        """Keep what a request that was taken is answered from now on."""
        statement = "UPDATE answers SET answer = ? WHERE session_id = ? AND key = ?"
        self._database.write(statement, [answer, session_id, key])

    def release(self, session_id: str, key: str) -> None:
        """Forget that a request was taken, since nothing came of it; one that was answered stays."""
        self._database.write("DELETE FROM answers WHERE session_id = ? AND key = ? AND answer = ''", [session_id, key])

    def of(self, session_id: str) -> list[tuple[str, StoredAnswer]]:
        """The keys of a session and what is kept for each, oldest first."""
        rows = self._database.rows(
            "SELECT key, body_hash, answer, created_at FROM answers WHERE session_id = ? ORDER BY created_at, key",
            [session_id],
        )
        return [(key, StoredAnswer(*kept)) for key, *kept in rows]

    def remove(self, session_id: str) -> None:
        """Delete what is kept for a session, which is no longer there."""
        self._database.write("DELETE FROM answers WHERE session_id = ?", [session_id])

    def forget(self, before: str) -> None:
        """Delete what was kept before a time; its keys may be used again."""
        self._database.write("DELETE FROM answers WHERE created_at < ?", [before])
