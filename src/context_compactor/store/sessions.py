"""The table of sessions: which there are, and what each remembers beside its log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from context_compactor.errors import UnknownSession
from context_compactor.store.database import NO_LIMIT, Database
from context_compactor.store.rows import SessionRow, as_bytes

_ROW = "id, created_at, updated_at, profile, state, head, messages, view"


class Sessions:
    """The sessions of one database, by their ids."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, session_id: str, profile: bytes, now: str) -> SessionRow:
        """The session of this id; it is made when there is none."""
        known = self._find(_ROW, session_id)
        if known is not None:
            return _session_row(known)
        with self._database.writing():
            self._database.write(
                "INSERT INTO sessions (id, created_at, updated_at, profile, state) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO NOTHING",
                [session_id, now, now, profile, b"{}"],
            )
            return self.get(session_id)

    def get(self, session_id: str) -> SessionRow:
        """The session of this id, as it is now."""
        return _session_row(self._must_find(_ROW, session_id))

    def number(self, session_id: str) -> int:
        """The number of the session of this id."""
        return int(self._must_find("number", session_id)[0])

    def list(self, limit: int, after: str) -> list[SessionRow]:
        """Sessions by their ids, those behind `after`."""
        statement = f"SELECT {_ROW} FROM sessions WHERE id > ? ORDER BY id LIMIT ?"
        rows = self._database.rows(statement, [after, NO_LIMIT if limit < 0 else limit])
        return [_session_row(row) for row in rows]

    @contextmanager
    def locked(self, session_id: str) -> Iterator[int]:
        """A transaction on a session, by its number: until its end nobody else writes to the session."""
        with self._database.writing():
            current = self._database.current
            number = current.numbers.get(session_id) if current else None
            if number is None:
                number = int(self._lock("number", session_id)[0])
            yield number

    @contextmanager
    def locked_row(self, session_id: str) -> Iterator[SessionRow]:
        """The same, with the session as it is."""
        with self._database.writing():
            number, chain, *row = self._lock(f"number, chain, {_ROW}", session_id)
            found, current = _session_row(row), self._database.current
            if current is not None:
                current.ends[number] = found.head, chain
            yield found

    def _lock(self, columns: str, session_id: str) -> Any:
        row = self._must_find(columns, session_id, self._database.row_lock)
        current = self._database.current
        if current is not None:
            current.numbers[session_id] = row[0]
        return row

    def save(self, session_id: str, column: str, value: bytes) -> None:
        """Change what the session is or remembers."""
        with self.locked(session_id) as number:
            self._database.write(f"UPDATE sessions SET {column} = ? WHERE number = ?", [value, number])

    def _find(self, columns: str, session_id: str, lock: str = "") -> Any:
        return self._database.row(f"SELECT {columns} FROM sessions WHERE id = ?{lock}", [session_id])

    def _must_find(self, columns: str, session_id: str, lock: str = "") -> Any:
        row = self._find(columns, session_id, lock)
        if row is None:
            raise UnknownSession(self._unknown(session_id))
        return row

    def _unknown(self, session_id: str) -> str:
        known = [row.id for row in self.list(4, "")]
        there = (
            f"there are {', '.join(map(repr, known[:3]))}{', …' if len(known) > 3 else ''}" if known else "it is empty"
        )
        return f"no session {session_id!r:.80} in {self._database.path}; {there}. Try: `compactor sessions`."


def _session_row(row: Sequence[Any]) -> SessionRow:
    session_id, created_at, updated_at, profile, state, *counts = row
    return SessionRow(session_id, created_at, updated_at, as_bytes(profile), as_bytes(state), *counts)
