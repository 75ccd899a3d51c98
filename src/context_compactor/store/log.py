"""The log of a session: entries that are only ever added, each chained to the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from context_compactor.store.contents import Contents, Kept
from context_compactor.store.database import NO_LIMIT, Database
from context_compactor.store.rows import MESSAGE, Entry, link

_ENTRY = "e.position, e.kind, e.created_at, c.hash, c.codec, c.size, c.bytes"


class Log:
    """The logs of all sessions in one database, each under the number of its session."""

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents

    def append(
        self, session: int, kind: str, bodies: Iterable[bytes | Kept], now: str, times: Sequence[str] = ()
    ) -> int:
        """Add entries behind the last one; the position of the last of them. The session's row must be locked.

        `times` are those of the entries where they are not from `now`.
        """
        current = self._database.current
        head, chain = (current.ends.get(session) if current else None) or self.end(session)
        rows = []
        for at, (content, name) in enumerate(self._contents.put_many(bodies)):
            head, chain = head + 1, link(chain, kind, name)
            rows.append((session, head, kind, times[at] if times else now, content, chain))
        self._database.write_many(
            "INSERT INTO entries (session, position, kind, created_at, content, chain) VALUES (?, ?, ?, ?, ?, ?)", rows
        )
        counted, seen = (len(rows), 0) if kind == MESSAGE else (0, head if rows else 0)
        self._database.write(
            "UPDATE sessions SET head = ?, chain = ?, updated_at = ?, messages = messages + ?, "
            "view = CASE WHEN ? > 0 THEN ? ELSE view END WHERE number = ?",
            [head, chain, now, counted, seen, seen, session],
        )
        if current is not None:
            current.ends[session] = head, chain
        return int(head)

    def end(self, session: int) -> tuple[int, bytes]:
        """The position of the last entry and the chain up to it."""
        head, chain = self._database.row("SELECT head, chain FROM sessions WHERE number = ?", [session])
        return head, chain

    def entries(self, session: int, kinds: Sequence[str], after: int, until: int | None) -> list[Entry]:
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
            Entry(position, kind, at, name.hex(), self._contents.read(name.hex(), codec, size, stored))
            for position, kind, at, name, codec, size, stored in rows
        ]

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
            chain, last = link(chain, kind, name.hex()), position
            if chain != stored:
                yield f"session {session_id}: entry {position} was changed"
                return
        for head, end in [row[:2] for row in rows[:1]]:
            if last != head:
                yield f"session {session_id}: {head - last} entries are missing at the end"
            elif chain != end:
                yield f"session {session_id}: entries behind {last} were taken out"
