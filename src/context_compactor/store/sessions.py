"""The tables of a session: its row, its log of chained entries, and its lineage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from context_compactor.errors import SessionExists, UnknownSession
from context_compactor.store.contents import ContentTable, PackedContent
from context_compactor.store.database import NO_LIMIT, Database
from context_compactor.store.rows import MESSAGE, LineageEntry, LogEntry, SessionRow, as_bytes, chain_link

_ROW = "id, created_at, updated_at, profile, state, head, messages, view"


class SessionTable:
    """The sessions of one database, by their ids."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, session_id: str, profile: bytes, now: str) -> SessionRow:
        """The session of this id; it is made when there is none."""
        known = self._find(_ROW, session_id)
        if known is not None:
            return _session_row(known)
        with self._database.writing():
            self._insert(session_id, profile, now)
            return self.get(session_id)

    def create(self, session_id: str, profile: bytes, now: str) -> None:
        """Make a session; `SessionExists` when there is one of this id."""
        with self._database.writing():
            if not self._insert(session_id, profile, now):
                raise SessionExists(
                    f"there is a session {session_id!r:.80} in {self._database.path} already. Try: another id."
                )

    def _insert(self, session_id: str, profile: bytes, now: str) -> bool:
        statement = (
            "INSERT INTO sessions (id, created_at, updated_at, profile, state) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO NOTHING RETURNING number"
        )
        return bool(self._database.rows(statement, [session_id, now, now, profile, b"{}"]))

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


_ENTRY = "e.position, e.kind, e.created_at, c.hash, c.codec, c.size, c.bytes"


class LogTable:
    """The logs of all sessions in one database, each under the number of its session."""

    def __init__(self, database: Database, contents: ContentTable) -> None:
        self._database = database
        self._contents = contents

    def append(
        self, session: int, kind: str, bodies: Iterable[bytes | PackedContent], now: str, times: Sequence[str] = ()
    ) -> int:
        """Add entries behind the last one; the position of the last of them. The session's row must be locked.

        `times` are those of the entries where they are not from `now`.
        """
        current = self._database.current
        head, chain = (current.ends.get(session) if current else None) or self.end(session)
        rows = []
        for at, (content, name) in enumerate(self._contents.put_many(bodies)):
            head, chain = head + 1, chain_link(chain, kind, name)
            rows.append((session, head, kind, times[at] if times else now, content, chain))
        self._database.write_many(
            "INSERT INTO entries (session, position, kind, created_at, content, chain) VALUES (?, ?, ?, ?, ?, ?)", rows
        )
        counted, view = (len(rows), 0) if kind == MESSAGE else (0, head if rows else 0)
        self._database.write(
            "UPDATE sessions SET head = ?, chain = ?, updated_at = ?, messages = messages + ?, "
            "view = CASE WHEN ? > 0 THEN ? ELSE view END WHERE number = ?",
            [head, chain, now, counted, view, view, session],
        )
        if current is not None:
            current.ends[session] = head, chain
        return int(head)

    def end(self, session: int) -> tuple[int, bytes]:
        """The position of the last entry and the chain up to it."""
        head, chain = self._database.row("SELECT head, chain FROM sessions WHERE number = ?", [session])
        return head, chain

    def entries(self, session: int, kinds: Sequence[str], after: int, until: int | None) -> list[LogEntry]:
        """Entries in order, those behind `after` and up to `until`."""
        marks = ",".join("?" * len(kinds))
        where = f" AND e.kind IN ({marks})" if kinds else ""
        # Without it SQLite may walk the whole log for the few entries that are no message.
        hint = self._database.by_index("entries_by_kind") if kinds and MESSAGE not in kinds else ""
        rare = f" AND e.kind <> '{MESSAGE}'" if kinds and MESSAGE not in kinds else ""
        rows = self._database.rows(
            f"SELECT {_ENTRY} FROM entries e{hint} JOIN contents c ON c.number = e.content "
            f"WHERE e.session = ? AND e.position > ? AND e.position <= ?{rare}{where} ORDER BY e.position",
            [session, after, NO_LIMIT if until is None else until, *kinds],
        )
        return [
            LogEntry(position, kind, at, name.hex(), self._contents.read(name.hex(), codec, size, stored))
            for position, kind, at, name, codec, size, stored in rows
        ]

    def copy(self, source: int, target: int, until: int) -> None:
        """Give a session without entries those of another one up to a position. The rows of both must be locked."""
        self._database.write(
            "INSERT INTO entries (session, position, kind, created_at, content, chain) "
            "SELECT CAST(? AS BIGINT), position, kind, created_at, content, chain FROM entries "
            "WHERE session = ? AND position <= ?",
            [target, source, until],
        )
        row = self._database.row("SELECT chain FROM entries WHERE session = ? AND position = ?", [source, until])
        counted = (
            "SELECT count(*), coalesce(max(position), 0) FROM entries WHERE session = ? AND position <= ? AND kind <> ?"
        )
        others, view = self._database.row(counted, [source, until, MESSAGE])
        self._database.write(
            "UPDATE sessions SET head = ?, chain = ?, messages = ?, view = ? WHERE number = ?",
            [until, row[0] if row else b"", until - others, view, target],
        )
        if self._database.current is not None:
            self._database.current.ends.pop(target, None)

    def message_position(self, session: int, count: int) -> int | None:
        """The position of the message with so many messages up to and with it; None when there are fewer."""
        if count > self._database.row("SELECT messages FROM sessions WHERE number = ?", [session])[0]:
            return None
        # No position is left out, so only the few entries that are no message have to be counted.
        others = self._database.rows(
            f"SELECT position FROM entries{self._database.by_index('entries_by_kind')} "
            f"WHERE session = ? AND kind <> '{MESSAGE}' ORDER BY position",
            [session],
        )
        position = count
        for (other,) in others:
            if other > position:
                break
            position += 1
        return position

    def verify(self, session_id: str, session: int) -> Iterator[str]:
        """Follow the chain again; one line for each thing that is not as it was stored."""
        rows = self._database.rows(  # in one statement, since others may append meanwhile
            "SELECT s.head, s.chain, e.position, e.kind, c.hash, e.chain FROM sessions s "
            "LEFT JOIN entries e ON e.session = s.number LEFT JOIN contents c ON c.number = e.content "
            "WHERE s.number = ? ORDER BY e.position",
            [session],
        )
        chain, last = b"", 0
        for _, _, position, kind, name, stored in rows if rows and rows[0][2] is not None else ():
            if position != last + 1 or name is None:
                yield f"session {session_id}: entry {last + 1} is missing"
                return
            chain, last = chain_link(chain, kind, name.hex()), position
            if chain != stored:
                yield f"session {session_id}: entry {position} was changed"
                return
        for head, end in [row[:2] for row in rows[:1]]:
            if last != head:
                yield f"session {session_id}: {head - last} entries are missing at the end"
            elif chain != end:
                yield f"session {session_id}: entries behind {last} were taken out"


class LineageTable:
    """What the messages of sessions say, as digests."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def entries(self, session: int, after: int) -> list[LineageEntry]:
        """Entries by number, those behind `after`."""
        statement = "SELECT number, digest, link FROM lineage WHERE session = ? AND number > ? ORDER BY number"
        return [LineageEntry(*row) for row in self._database.rows(statement, [session, after])]

    def ends(self, session: int) -> tuple[LineageEntry, LineageEntry] | None:
        """The entries of the first and the last message that have one."""
        statement = "SELECT number, digest, link FROM lineage WHERE session = ? ORDER BY number {} LIMIT 1"
        first, last = (self._database.row(statement.format(order), [session]) for order in ("ASC", "DESC"))
        return (LineageEntry(*first), LineageEntry(*last)) if first and last else None

    def add(self, session: int, entries: Iterable[LineageEntry]) -> None:
        """Note what messages say."""
        self._database.write_many(
            "INSERT INTO lineage (session, number, digest, link) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (session, number) DO UPDATE SET digest = excluded.digest, link = excluded.link",
            [(session, each.number, each.digest, each.link) for each in entries],
        )

    def copy(self, source: int, target: int, until: int) -> None:
        """Give a session the entries of another one up to a number."""
        self._database.write(
            "INSERT INTO lineage (session, number, digest, link) "
            "SELECT CAST(? AS BIGINT), number, digest, link FROM lineage WHERE session = ? AND number <= ?",
            [target, source, until],
        )
