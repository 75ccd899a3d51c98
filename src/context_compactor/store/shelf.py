"""The archive's shelf: originals by their ids, and the words by which they are found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from context_compactor.store.contents import Contents
from context_compactor.store.database import NO_LIMIT, Database, rows_in
from context_compactor.store.rows import Found, IndexPart, Item, Shelved, Unindexed
from context_compactor.store.runs import Added, Filter, Packed, Runs

_COLUMNS = (
    "o.number, o.ref, o.kind, o.summary, o.tokens, o.recovery, o.hint, o.target, o.same_as, o.created_at, "
    "(SELECT hash FROM contents WHERE number = o.content)"
)

_ALL = Filter()


class Shelf:
    """Originals of all sessions in one database; every question is about one session."""

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self.runs = Runs(database)

    def add(self, session: int, items: Sequence[Item], now: str) -> list[str]:
        """Put originals on the shelf; the ids of those that were not there. The first under an id stays for ever.

        An original whose value is archived under another id already refers to that one and is not found twice. The
        session's row must be locked.
        """
        new = self._new(session, items)
        numbers = self._contents.numbers([item.content for item in new])
        twins = self._twins(session, list(numbers))
        added, missing, first = [], [], self.runs.end(session)
        for item in new:
            twin = twins.setdefault(item.content, item.ref)
            same_as, runs = (twin, ()) if twin != item.ref else ("", item.runs)
            last = first + sum(run.count for run in runs)
            values = [session, *_fields(item), same_as, now, numbers[item.content], first, last]
            original = self._insert(values)
            added.append(Added(original, item.kind, first, self.runs.packed(runs) if runs else ()))
            if not item.is_indexed and not same_as:
                missing.append((session, original, last - first))
            first = last
        self.runs.add(added)
        self._database.write_many("INSERT INTO unindexed (session, original, done) VALUES (?, ?, ?)", missing)
        return [item.ref for item in new]

    def unindexed(self, session: int) -> list[Unindexed]:
        """The originals of a session that are not wholly in the index, in the order in which they were archived."""
        rows = self._database.rows(
            f"SELECT u.done, {_COLUMNS} FROM unindexed u JOIN originals o ON o.number = u.original "
            "WHERE u.session = ? ORDER BY u.original",
            [session],
        )
        return [Unindexed(_shelved(row), done) for done, *row in rows]

    def index(self, session: int, parts: Iterable[tuple[IndexPart, Sequence[Packed]]]) -> dict[int, int]:
        """Put runs of originals into the index, each behind those that are there; see `protocols.Store.index`.

        The session's row must be locked.
        """
        reached: dict[int, int] = {}
        for part, runs in parts:
            row = self._database.row(
                "SELECT u.done, o.kind FROM unindexed u JOIN originals o ON o.number = u.original "
                "WHERE u.session = ? AND u.original = ?",
                [session, part.original],
            )
            if row is not None and row[0] == part.done:
                self._extend(session, Added(part.original, row[1], self.runs.end(session), runs), part)
                if not part.is_last:
                    reached[part.original] = part.done + sum(run.count for run in runs)
            elif row is not None:
                reached[part.original] = row[0]
        return reached

    def _extend(self, session: int, added: Added, part: IndexPart) -> None:
        self.runs.add([added])
        self._database.write(
            "UPDATE originals SET first = CASE WHEN first = last THEN ? ELSE first END, last = ? WHERE number = ?",
            [added.first, added.last, added.original],
        )
        mark = [session, added.original]
        if part.is_last:
            self._database.write("DELETE FROM unindexed WHERE session = ? AND original = ?", mark)
        else:
            done = part.done + added.last - added.first
            self._database.write("UPDATE unindexed SET done = ? WHERE session = ? AND original = ?", [done, *mark])

    def _new(self, session: int, items: Sequence[Item]) -> list[Item]:
        """Those whose id is not taken, each id once."""
        statement = "SELECT ref FROM originals WHERE session = ? AND ref IN ({})"
        taken = {ref for (ref,) in rows_in(self._database, statement, [item.ref for item in items], [session])}
        first: dict[str, Item] = {}
        for item in items:
            if item.ref not in taken:
                first.setdefault(item.ref, item)
        return list(first.values())

    def _twins(self, session: int, contents: Sequence[str]) -> dict[str, str]:
        """The ids under which contents were archived first."""
        statement = (
            "SELECT c.hash, o.ref FROM contents c JOIN originals o ON o.content = c.number "
            "WHERE o.session = ? AND c.hash IN ({}) ORDER BY o.number DESC"
        )
        rows = rows_in(self._database, statement, [bytes.fromhex(name) for name in contents], [session])
        return {name.hex(): ref for name, ref in rows}

    def _insert(self, values: Sequence[object]) -> int:
        row = self._database.row(
            "INSERT INTO originals (session, ref, kind, summary, tokens, recovery, hint, target, same_as, created_at, "
            "content, first, last) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number",
            values,
        )
        return int(row[0])

    def find(self, session: int, ref: str) -> Shelved | None:
        """The original under an id."""
        row = self._database.row(
            f"SELECT {_COLUMNS} FROM originals o WHERE o.session = ? AND o.ref = ?", [session, ref]
        )
        return _shelved(row) if row else None

    def all(
        self, session: int, wanted: Filter = _ALL, after: int = 0, limit: int = 0, newest: int = 0
    ) -> list[Shelved]:
        """The originals of a session in the order in which they were archived; the first or the `newest`, if given."""
        where, values = wanted.clauses()
        order, most = ("DESC", newest) if newest else ("ASC", limit or NO_LIMIT)
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM originals o WHERE o.session = ? AND o.number > ?{where} "
            f"ORDER BY o.number {order} LIMIT ?",
            [session, after, *values, most],
        )
        return [_shelved(row) for row in (reversed(rows) if newest else rows)]

    def search(self, session: int, terms: Mapping[str, float], most: int, wanted: Filter) -> list[Found]:
        """The runs of passages that hold the terms which tell most, in their order."""
        return self.runs.search(session, terms, most, wanted)

    def beginnings(self, session: int, refs: Sequence[str], most: int) -> list[Found]:
        """The first runs of originals."""
        return self.runs.beginnings(session, refs, most)

    def verify(self, session_id: str, session: int) -> Iterator[str]:
        """One line for each original whose value is gone."""
        lost = self._database.rows(
            "SELECT o.ref FROM originals o LEFT JOIN contents c ON c.number = o.content "
            "WHERE o.session = ? AND c.number IS NULL ORDER BY o.number",
            [session],
        )
        yield from (f"session {session_id}: the original of {ref} is missing" for (ref,) in lost)


def _fields(item: Item) -> list[object]:
    return [item.ref, item.kind, item.summary, item.tokens, item.recovery, item.hint, item.target]


def _shelved(row: Sequence[Any]) -> Shelved:
    name = row[-1].hex() if row[-1] else ""  # gone from the store
    return Shelved(*[*row[:-1], name])
