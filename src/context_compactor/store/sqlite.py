"""The store of one machine: one SQLite file, as many processes as you like."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from context_compactor.errors import UnknownSession
from context_compactor.store.contents import Contents
from context_compactor.store.database import MEMORY, Database
from context_compactor.store.expire import expire
from context_compactor.store.rows import MESSAGE, Entry, FactRow, Found, Item, SessionRow, Shelved, hash_of, link
from context_compactor.store.runs import Filter
from context_compactor.store.shelf import Shelf

_ROW = "id, created_at, updated_at, profile, state, head, messages, view"
_ENTRY = "e.position, e.kind, e.created_at, lower(hex(c.hash)), c.codec, c.size, c.bytes"


class SqliteStore:
    """Sessions in a SQLite file; see `protocols.Store` for what each verb promises."""

    def __init__(self, path: str = MEMORY, *, busy_seconds: float = 10.0) -> None:
        self.path = path
        self._database = Database(path, busy_seconds)
        self._contents = Contents(self._database)
        self._shelf = Shelf(self._database, self._contents)

    def close(self) -> None:
        """Give the file back."""
        self._database.close()

    # Sessions

    def open_session(self, session_id: str, profile: bytes, now: str) -> SessionRow:
        """The session of this id; it is made when there is none."""
        if self._database.row("SELECT 1 FROM sessions WHERE id = ?", [session_id]):
            return self.session(session_id)
        with self._database.writing():
            self._database.write(
                "INSERT INTO sessions (id, created_at, updated_at, profile, state) VALUES (?, ?, ?, ?, '{}') "
                "ON CONFLICT (id) DO NOTHING",
                [session_id, now, now, profile],
            )
            return self.session(session_id)

    def session(self, session_id: str) -> SessionRow:
        """The session of this id, as it is now."""
        row = self._database.row(f"SELECT {_ROW} FROM sessions WHERE id = ?", [session_id])
        if row is None:
            raise UnknownSession(self._unknown(session_id))
        return _session_row(row)

    def sessions(self, *, limit: int = -1, after: str = "") -> list[SessionRow]:
        """Sessions by their ids, those behind `after`."""
        statement = f"SELECT {_ROW} FROM sessions WHERE id > ? ORDER BY id LIMIT ?"
        return [_session_row(row) for row in self._database.rows(statement, [after, limit])]

    def save_profile(self, session_id: str, profile: bytes) -> None:
        """What the session is from now on."""
        self._database.write("UPDATE sessions SET profile = ? WHERE number = ?", [profile, self._number(session_id)])

    def _unknown(self, session_id: str) -> str:
        known = [row.id for row in self.sessions(limit=4)]
        there = (
            f"there are {', '.join(map(repr, known[:3]))}{', …' if len(known) > 3 else ''}" if known else "it is empty"
        )
        return f"no session {session_id!r:.80} in {self.path}; {there}. Try: `compactor sessions`."

    def _number(self, session_id: str) -> int:
        row = self._database.row("SELECT number FROM sessions WHERE id = ?", [session_id])
        if row is None:
            raise UnknownSession(self._unknown(session_id))
        return int(row[0])

    # The log

    @contextmanager
    def writing(self, session_id: str) -> Iterator[SessionRow]:
        """The session as it is, and until the end of the block nobody else writes; all of it happens or nothing."""
        with self._database.writing():
            yield self.session(session_id)

    def append(self, session_id: str, kind: str, bodies: Iterable[bytes], now: str) -> int:
        """Add entries of a kind behind the last one; the position of the last of them."""
        with self._database.writing():
            number = self._number(session_id)
            head, chain = self._database.row("SELECT head, chain FROM sessions WHERE number = ?", [number])
            rows = []
            for body in bodies:
                content, name = self._contents.put(body)
                head, chain = head + 1, link(chain, kind, name)
                rows.append((number, head, kind, now, content, chain))
            self._database.write_many("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", rows)
            is_message = kind == MESSAGE
            self._database.write(
                "UPDATE sessions SET head = ?, chain = ?, updated_at = ?, messages = messages + ?, "
                "view = iif(?, view, ?) WHERE number = ?",
                [head, chain, now, len(rows) * is_message, is_message or not rows, head, number],
            )
            return int(head)

    def save_state(self, session_id: str, state: bytes) -> None:
        """What the session wants to remember beside its log."""
        self._database.write("UPDATE sessions SET state = ? WHERE number = ?", [state, self._number(session_id)])

    def entries(
        self, session_id: str, *, kinds: Sequence[str] = (), after: int = 0, until: int | None = None
    ) -> list[Entry]:
        """Entries in order, those behind `after` and up to `until`."""
        marks = ",".join("?" * len(kinds))
        where = f" AND e.kind IN ({marks})" if kinds else ""
        # Without it SQLite may walk the whole log for the few entries that are no message.
        hint = " INDEXED BY entries_by_kind" if kinds and MESSAGE not in kinds else ""
        rare = " AND e.kind <> 'message'" if hint else ""
        rows = self._database.rows(
            f"SELECT {_ENTRY} FROM entries e{hint} JOIN contents c ON c.number = e.content "
            f"WHERE e.session = ? AND e.position > ? AND e.position <= ?{rare}{where} ORDER BY e.position",
            [self._number(session_id), after, 1 << 62 if until is None else until, *kinds],
        )
        return [
            Entry(position, kind, at, name, self._contents.read(name, codec, size, stored))
            for position, kind, at, name, codec, size, stored in rows
        ]

    def message_position(self, session_id: str, count: int) -> int | None:
        """The position of the message with so many messages up to and with it; None when there are fewer."""
        row = self._database.row(
            "SELECT position FROM entries WHERE session = ? AND kind = 'message' ORDER BY position LIMIT 1 OFFSET ?",
            [self._number(session_id), count - 1],
        )
        return row[0] if row else None

    # Contents and originals

    def put(self, contents: Iterable[bytes]) -> list[str]:
        """Keep contents; their hashes."""
        with self._database.writing():
            return [self._contents.put(content)[1] for content in contents]

    def put_list(self, parts: Sequence[bytes]) -> str:
        """Keep a JSON list whose values are contents of their own; the hash of the whole list."""
        with self._database.writing():
            return self._contents.put_list(parts)[1]

    def get(self, hashes: Iterable[str]) -> dict[str, bytes]:
        """Contents by their hashes, each checked against it."""
        return self._contents.get(hashes)

    def archive(self, session_id: str, items: Sequence[Item], now: str) -> list[str]:
        """Put originals into the archive; on the disk when it returns. The ids of those that were not there."""
        return self._shelf.add(self._number(session_id), items, now)

    def original(self, session_id: str, ref: str) -> Shelved | None:
        """The original under an id."""
        return self._shelf.find(self._number(session_id), ref)

    def originals(
        self, session_id: str, *, kind: str = "", since: str = "", until: str = "", after: int = 0, newest: int = 0
    ) -> list[Shelved]:
        """The originals of a session in the order in which they were archived; only the `newest` of them, if given."""
        return self._shelf.all(self._number(session_id), kind, since, until, after, newest)

    def search(
        self,
        session_id: str,
        terms: Mapping[str, float],
        *,
        most: int,
        kind: str = "",
        since: str = "",
        until: str = "",
    ) -> list[Found]:
        """Runs of passages, in their order, of about `most` characters: those whose terms tell most, or all."""
        return self._shelf.search(self._number(session_id), terms, most, Filter(kind, since, until))

    # Facts and holders

    def put_facts(self, session_id: str, facts: Iterable[FactRow], now: str) -> None:
        """Keep facts; one of the same kind, turn and content takes the place of what was known."""
        number = self._number(session_id)
        rows = [
            (number, fact.kind, fact.turn, bytes.fromhex(hash_of(fact.body))[:16], fact.pattern, now, fact.body)
            for fact in facts
        ]
        self._database.write_many("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def drop_facts(self, session_id: str, from_turn: int) -> None:
        """Forget what was extracted from these turns on: it is about to be extracted again."""
        self._database.write("DELETE FROM facts WHERE session = ? AND turn >= ?", [self._number(session_id), from_turn])

    def facts(self, session_id: str, kind: str = "") -> list[FactRow]:
        """Facts by turn."""
        rows = self._database.rows(
            "SELECT kind, turn, body, pattern, updated_at FROM facts WHERE session = ? AND (? = '' OR kind = ?) "
            "ORDER BY turn, kind, hash",
            [self._number(session_id), kind, kind],
        )
        return [FactRow(*row) for row in rows]

    def sessions_with(self, patterns: Sequence[str]) -> dict[str, set[str]]:
        """The sessions in which a fact with each of these patterns was seen."""
        statement = (
            "SELECT DISTINCT f.pattern, s.id FROM facts f JOIN sessions s ON s.number = f.session "
            "WHERE f.pattern IN ({})"
        )
        found: dict[str, set[str]] = {}
        for pattern, session_id in self._database.rows_in(statement, list(dict.fromkeys(patterns))):
            found.setdefault(pattern, set()).add(session_id)
        return found

    def hold(self, session_id: str, holder: str, now: str) -> None:
        """Note that somebody has the session open."""
        self._database.write("INSERT OR REPLACE INTO holders VALUES (?, ?, ?)", [self._number(session_id), holder, now])

    def release(self, session_id: str, holder: str) -> None:
        """Note that somebody has closed it."""
        self._database.write("DELETE FROM holders WHERE session = ? AND holder = ?", [self._number(session_id), holder])

    def holders(self, session_id: str) -> dict[str, str]:
        """Who has the session open, and since when; a killed process may still be among them."""
        statement = "SELECT holder, opened_at FROM holders WHERE session = ? ORDER BY opened_at"
        return dict(self._database.rows(statement, [self._number(session_id)]))

    def open_sessions(self) -> list[tuple[str, str, str]]:
        """Who has which session open: session, holder, and since when."""
        return self._database.rows(
            "SELECT s.id, h.holder, h.opened_at FROM holders h JOIN sessions s ON s.number = h.session "
            "ORDER BY h.opened_at, s.id"
        )

    def expire(self, before: str, spare: Collection[str] = ()) -> list[str]:
        """Delete the sessions last used before a time, all but those that are spared; their ids."""
        return expire(self._database, self._contents, before, spare)

    # Proof

    def verify(self, session_id: str | None = None) -> Iterator[str]:
        """Hash everything again; one line for each thing that is not as it was stored."""
        for name in self._contents.damaged():
            yield f"content {name}: not what its hash says"
        for row in self.sessions() if session_id is None else [self.session(session_id)]:
            yield from self._verify_log(row)

    def _verify_log(self, session: SessionRow) -> Iterator[str]:
        number = self._number(session.id)
        chain, expected = b"", 1
        rows = self._database.rows(
            "SELECT e.position, e.kind, lower(hex(c.hash)), e.chain FROM entries e "
            "LEFT JOIN contents c ON c.number = e.content WHERE e.session = ? ORDER BY e.position",
            [number],
        )
        for position, kind, name, stored in rows:
            if position != expected or name is None:
                yield f"session {session.id}: entry {expected} is missing"
                return
            chain = link(chain, kind, name)
            if chain != stored:
                yield f"session {session.id}: entry {position} was changed"
                return
            expected += 1
        last = self._database.row("SELECT chain FROM sessions WHERE number = ?", [number])[0]
        if expected - 1 != session.head:
            yield f"session {session.id}: {session.head - expected + 1} entries are missing at the end"
        elif chain != last:
            yield f"session {session.id}: entries behind {expected - 1} were taken out"
        lost = self._database.rows(
            "SELECT o.ref FROM originals o LEFT JOIN contents c ON c.number = o.content "
            "WHERE o.session = ? AND c.number IS NULL ORDER BY o.number",
            [number],
        )
        yield from (f"session {session.id}: the original of {ref} is missing" for (ref,) in lost)


def _session_row(row: Sequence[object]) -> SessionRow:
    text = [bytes(value, "utf-8") if isinstance(value, str) else value for value in row[3:5]]
    return SessionRow(*row[:3], *text, *row[5:])  # type: ignore[arg-type]
