"""A store over any database that has the tables of `sql/`: every operation of `protocols.Store`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress

from context_compactor.errors import StoreError, UnknownSession
from context_compactor.store.contents import ContentTable, PackedContent
from context_compactor.store.database import Database, TermsOf, rows_in
from context_compactor.store.deletion import clear, delete, old_sessions
from context_compactor.store.originals import OriginalTable, SearchFilter
from context_compactor.store.rows import (
    FactRow,
    FoundRun,
    IndexPart,
    LineageEntry,
    LogEntry,
    NewOriginal,
    OriginalRow,
    SessionRow,
    Unindexed,
    hash_of,
)
from context_compactor.store.sessions import LineageTable, LogTable, SessionTable

_READ = "SELECT name FROM turns WHERE name = 'ready'"
_WRITE = "INSERT INTO turns (name) VALUES ('ready') ON CONFLICT (name) DO UPDATE SET name = excluded.name"


class SqlStore:
    """Sessions in a database; see `protocols.Store` for what each verb promises."""

    def __init__(self, database: Database) -> None:
        self.path = database.path
        self.schema = database.schema
        self._database = database
        self._sessions = SessionTable(database)
        self._contents = ContentTable(database)
        self._log = LogTable(database, self._contents)
        self._lineage = LineageTable(database)
        self._originals = OriginalTable(database, self._contents)

    def close(self) -> None:
        """Give the database back."""
        self._database.close()

    # Sessions

    def open_session(self, session_id: str, profile: bytes, now: str) -> SessionRow:
        """The session of this id; it is made when there is none."""
        return self._sessions.open(session_id, profile, now)

    def session(self, session_id: str) -> SessionRow:
        """The session of this id, as it is now."""
        return self._sessions.get(session_id)

    def together(self) -> AbstractContextManager[None]:
        """Whatever is written in the block, to any sessions, is one transaction: all of it is kept, or nothing."""
        return self._database.writing()

    def sessions(self, *, limit: int = -1, after: str = "") -> list[SessionRow]:
        """Sessions by their ids, those behind `after`."""
        return self._sessions.list(limit, after)

    def save_profile(self, session_id: str, profile: bytes) -> None:
        """What the session is from now on."""
        self._sessions.save(session_id, "profile", profile)

    def save_state(self, session_id: str, state: bytes) -> None:
        """What the session wants to remember beside its log."""
        self._sessions.save(session_id, "state", state)

    # The log

    def writing(self, session_id: str) -> AbstractContextManager[SessionRow]:
        """The session as it is, and until the end of the block nobody else writes to it; all happens or nothing."""
        return self._sessions.locked_row(session_id)

    def append(
        self, session_id: str, kind: str, bodies: Iterable[bytes | PackedContent], now: str, times: Sequence[str] = ()
    ) -> int:
        """Add entries of a kind behind the last one; the position of the last of them.

        `times` are those of the entries where they are not from `now`.
        """
        with self._sessions.locked(session_id) as number:
            return self._log.append(number, kind, bodies, now, times)

    def entries(
        self, session_id: str, *, kinds: Sequence[str] = (), after: int = 0, until: int | None = None
    ) -> list[LogEntry]:
        """Entries in order, those behind `after` and up to `until`."""
        return self._log.entries(self._sessions.number(session_id), kinds, after, until)

    def message_position(self, session_id: str, count: int) -> int | None:
        """The position of the message with so many messages up to and with it; None when there are fewer."""
        return self._log.message_position(self._sessions.number(session_id), count)

    def fork(self, session_id: str, new_id: str, until: int, now: str) -> SessionRow:
        """A new session with the log of another one up to a position, and what it remembers of these messages."""
        with self._sessions.locked_row(session_id) as row:
            source = self._sessions.number(session_id)
            self._sessions.create(new_id, row.profile, now)
            with self._sessions.locked(new_id) as target:
                self._log.copy(source, target, until)
                self._lineage.copy(source, target, self._sessions.get(new_id).messages)
            return self._sessions.get(new_id)

    def lineage(self, session_id: str, after: int = 0) -> list[LineageEntry]:
        """What the messages behind the first ones say, as far as that was noted."""
        return self._lineage.entries(self._sessions.number(session_id), after)

    def lineage_ends(self, session_id: str) -> tuple[LineageEntry, LineageEntry] | None:
        """The same of the first and the last message of which it was noted."""
        return self._lineage.ends(self._sessions.number(session_id))

    def add_lineage(self, session_id: str, entries: Iterable[LineageEntry]) -> None:
        """Note what messages say."""
        with self._sessions.locked(session_id) as number:
            self._lineage.add(number, entries)

    # Contents and originals

    def ready(self, contents: Iterable[bytes]) -> list[PackedContent]:
        """Contents made ready to be put or appended: hashed and packed before anybody waits for it."""
        return [self._contents.ready(content) for content in contents]

    def ready_list(self, parts: Sequence[bytes]) -> list[PackedContent]:
        """A JSON list whose values are contents of their own, made ready to be put; the list is the last of them."""
        return self._contents.ready_list(parts)

    def put(self, contents: Iterable[bytes | PackedContent]) -> list[str]:
        """Keep contents; their hashes."""
        with self._database.writing():
            return [name for _, name in self._contents.put_many(contents)]

    def get(self, hashes: Iterable[str]) -> dict[str, bytes]:
        """Contents by their hashes, each checked against it."""
        return self._contents.get(hashes)

    def archive(self, session_id: str, items: Sequence[NewOriginal], now: str) -> list[str]:
        """Put originals into the archive; on the disk when it returns. The ids of those that were not there."""
        with self._sessions.locked(session_id) as number:
            return self._originals.add(number, items, now)

    def unindexed(self, session_id: str) -> list[Unindexed]:
        """The originals of a session of which the index does not have all passages yet."""
        return self._originals.unindexed(self._sessions.number(session_id))

    def index(self, session_id: str, parts: Sequence[IndexPart]) -> dict[int, int]:
        """Put runs of originals into the index; how far those of them are that are not whole yet."""
        packed = [(part, self._originals.runs.packed(part.runs)) for part in parts]
        with self._sessions.locked(session_id) as number:
            return self._originals.index(number, packed)

    def original(self, session_id: str, ref: str) -> OriginalRow | None:
        """The original under an id."""
        return self._originals.find(self._sessions.number(session_id), ref)

    def originals(
        self,
        session_id: str,
        *,
        kind: str = "",
        since: str = "",
        until: str = "",
        after: int = 0,
        limit: int = 0,
        newest: int = 0,
    ) -> list[OriginalRow]:
        """The originals of a session in the order in which they were archived.

        Of those behind `after` only the first `limit`, or the `newest`, if given.
        """
        return self._originals.all(
            self._sessions.number(session_id), SearchFilter(kind, since, until), after, limit, newest
        )

    def search(
        self,
        session_id: str,
        terms: Mapping[str, float],
        *,
        most: int,
        kind: str = "",
        since: str = "",
        until: str = "",
    ) -> list[FoundRun]:
        """Runs of passages, in their order, of about `most` characters: those with the rarest terms, or all."""
        return self._originals.runs.search(
            self._sessions.number(session_id), terms, most, SearchFilter(kind, since, until)
        )

    def beginnings(self, session_id: str, refs: Sequence[str], most: int) -> list[FoundRun]:
        """The first runs of some originals, in their order, of about `most` passages of each."""
        return self._originals.runs.beginnings(self._sessions.number(session_id), refs, most)

    # Facts and holders

    def put_facts(self, session_id: str, facts: Iterable[FactRow], now: str) -> None:
        """Keep facts; one of the same kind, turn and content takes the place of what was known."""
        with self._sessions.locked(session_id) as number:
            rows = [
                (number, fact.kind, fact.turn, bytes.fromhex(hash_of(fact.body))[:16], fact.pattern, now, fact.body)
                for fact in facts
            ]
            self._database.write_many(
                "INSERT INTO facts (session, kind, turn, hash, pattern, updated_at, body) VALUES (?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (session, kind, turn, hash) DO UPDATE SET pattern = excluded.pattern, "
                "updated_at = excluded.updated_at, body = excluded.body",
                rows,
            )

    def drop_facts(self, session_id: str, from_turn: int) -> None:
        """Forget what was extracted from these turns on: it is about to be extracted again."""
        with self._sessions.locked(session_id) as number:
            self._database.write("DELETE FROM facts WHERE session = ? AND turn >= ?", [number, from_turn])

    def facts(self, session_id: str, kind: str = "") -> list[FactRow]:
        """Facts by turn."""
        where, values = (" AND kind = ?", [kind]) if kind else ("", [])
        rows = self._database.rows(
            f"SELECT kind, turn, body, pattern, updated_at FROM facts WHERE session = ?{where} "
            "ORDER BY turn, kind, hash",
            [self._sessions.number(session_id), *values],
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

    def hold(self, session_id: str, holder: str, now: str) -> None:
        """Note that somebody has the session open."""
        with self._database.writing():
            self._database.write(
                "INSERT INTO holders (session, holder, opened_at) VALUES (?, ?, ?) "
                "ON CONFLICT (session, holder) DO UPDATE SET opened_at = excluded.opened_at",
                [self._sessions.number(session_id), holder, now],
            )

    def release(self, session_id: str, holder: str) -> None:
        """Note that somebody has closed it."""
        values = [self._sessions.number(session_id), holder]
        self._database.write("DELETE FROM holders WHERE session = ? AND holder = ?", values)

    def holders(self, session_id: str) -> dict[str, str]:
        """Who has the session open, and since when; a killed process may still be among them."""
        statement = "SELECT holder, opened_at FROM holders WHERE session = ? ORDER BY opened_at, holder"
        return dict(self._database.rows(statement, [self._sessions.number(session_id)]))

    def open_sessions(self) -> list[tuple[str, str, str]]:
        """Who has which session open: session, holder, and since when."""
        return self._database.rows(
            "SELECT s.id, h.holder, h.opened_at FROM holders h JOIN sessions s ON s.number = h.session "
            "ORDER BY h.opened_at, s.id"
        )

    # Deleting

    def delete(self, session_id: str) -> None:
        """Delete a session: from now on nobody finds it. What it leaves behind goes with `clear_deleted`."""
        with self._database.erasing(), self._sessions.locked(session_id) as number:
            delete(self._database, number, session_id)

    def expire(self, before: str, spare: Collection[str] = ()) -> list[str]:
        """Delete the sessions last used before a time, all but those that are spared; their ids."""
        expired = []
        for session_id in old_sessions(self._database, before, spare):
            with suppress(UnknownSession):  # somebody else has just deleted it
                with self.writing(session_id) as row:
                    if row.updated_at >= before:
                        continue  # somebody has just used it
                    self.delete(session_id)
                expired.append(session_id)
        return expired

    def clear_deleted(self, terms_of: TermsOf, *, thorough: bool = False) -> None:
        """Remove what deleted sessions have left behind, in steps between which others write; not in a transaction.

        `terms_of` gives the terms of a run. With `thorough` the index, which may still hold single words, is rewritten.
        """
        clear(self._database, self._contents, terms_of, thorough=thorough)

    # Proof

    def failing(self, seconds: float) -> dict[str, str]:
        """What fails now, `read` or `write`, and why: a row is read, written, and read again.

        It goes over a connection of its own, and waits for a lock no longer than that.
        """
        found: dict[str, str] = {}
        for what, statement in (("read", _READ), ("write", _WRITE), ("read", _READ)):
            if what not in found:
                try:
                    self._database.probe(statement, seconds)
                except StoreError as error:
                    found[what] = str(error)
        return found

    def verify(self, session_id: str | None = None) -> Iterator[str]:
        """Hash everything again; one line for each thing that is not as it was stored."""
        for name in self._contents.damaged():
            yield f"content {name}: not what its hash says"
        for row in self.sessions() if session_id is None else [self.session(session_id)]:
            number = self._sessions.number(row.id)
            yield from self._log.verify(row.id, number)
            yield from self._originals.verify(row.id, number)
