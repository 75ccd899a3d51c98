"""Facts as rows: by session, kind and turn, and by what they have in common with those of other sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from context_compactor.store.database import Database, rows_in
from context_compactor.store.rows import FactRow, hash_of

_PUT = (
    "INSERT INTO facts (session, kind, turn, hash, pattern, updated_at, body) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (session, kind, turn, hash) DO UPDATE SET pattern = excluded.pattern, "
    "updated_at = excluded.updated_at, body = excluded.body"
)


class Facts:
    """The facts of all sessions in one database, each under the number of its session."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, session: int, facts: Iterable[FactRow], now: str) -> None:
        """Keep facts; one of the same kind, turn and content takes the place of what was known."""
        rows = [
            (session, fact.kind, fact.turn, bytes.fromhex(hash_of(fact.body))[:16], fact.pattern, now, fact.body)
            for fact in facts
        ]
        self._database.write_many(_PUT, rows)

    def drop(self, session: int, from_turn: int) -> None:
        """Forget what was extracted from a turn on."""
        self._database.write("DELETE FROM facts WHERE session = ? AND turn >= ?", [session, from_turn])

    def of(self, session: int, kind: str) -> list[FactRow]:
        """Facts by turn."""
        where, values = (" AND kind = ?", [kind]) if kind else ("", [])
        rows = self._database.rows(
            f"SELECT kind, turn, body, pattern, updated_at FROM facts WHERE session = ?{where} "
            "ORDER BY turn, kind, hash",
            [session, *values],
        )
        return [FactRow(*row) for row in rows]

    def sessions_with(self, patterns: Sequence[str]) -> dict[str, set[str]]:
        """The sessions in which a fact with each of these patterns was seen."""
        statement = (
            "SELECT DISTINCT f.pattern, s.id FROM facts f JOIN sessions s ON s.number = f.session "
            "WHERE f.pattern <> '' AND f.pattern IN ({})"
        )
        found: dict[str, set[str]] = {}
        for pattern, session_id in rows_in(self._database, statement, list(dict.fromkeys(patterns))):
            found.setdefault(pattern, set()).add(session_id)
        return found
