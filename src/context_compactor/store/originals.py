"""Archived originals, and the index of passages by which they are found and ranked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from typing import Any

import zstandard
from msgspec import Struct, structs

from context_compactor.store.contents import ContentTable
from context_compactor.store.database import (
    NO_LIMIT,
    Database,
    TermsOf,
    WordIndex,
    WordQuery,
    is_word,
    kind_word,
    rows_in,
    short_transaction,
)
from context_compactor.store.rows import FoundRun, IndexPart, NewOriginal, OriginalRow, PassageRun, Unindexed

# How many runs are ranked, and how many terms beside those that choose them.
_MOST_RUNS, _MOST_COMMON = 4_000, 6
_BEST = 500


class Ranking:
    """The index of words between two numbers, for one kind of original or all."""

    def __init__(self, words: WordIndex, first: int, last: int, kind: str) -> None:
        self._words = words
        self._first = first
        self._last = last
        self._kind = ((kind_word(kind),),) if kind else ()

    def best(self, terms: Mapping[str, float]) -> list[int]:
        """The numbers of the runs whose terms weigh most, the newer first of two that weigh the same.

        Terms that weigh less than 1 come after all others when it is chosen which runs are ranked.
        """
        holders = {term: self._holders(term) for term in terms if is_word(term)}
        rarest = sorted((term for term in holders if holders[term]), key=lambda each: (terms[each] < 1, holders[each]))
        span = self._last - self._first
        weights = {term: terms[term] * log(1 + span / holders[term]) for term in rarest}
        return self._sum(self._parts(rarest, holders, terms), weights)

    def _holders(self, term: str) -> int:
        """How many runs hold a term; of a common one it is only said that they are many."""
        return self._words.count(self._wanted([term]), _MOST_RUNS + 1)

    def _parts(
        self, rarest: Sequence[str], holders: Mapping[str, int], terms: Mapping[str, float]
    ) -> Iterator[tuple[str, WordQuery]]:
        """Terms to count, and where: the rarest terms everywhere, and others where one of those is.

        When those of full weight choose too few runs, or none, the next term chooses from the newest.
        """
        few = _rarest_within(rarest, holders, _MOST_RUNS)
        common = [term for term in rarest if term not in few][:_MOST_COMMON]
        yield from ((term, self._wanted([term])) for term in few)
        room, begin = _MOST_RUNS - sum(holders[term] for term in few), self._last + 1
        if common and room and sum(holders[term] for term in few if terms[term] >= 1) < _BEST:
            nth_newest = self._words.newest(self._wanted([common[0]]), 1, skip=room - 1)
            begin = nth_newest[0] if nth_newest else self._first
            for term in common:
                yield term, self._wanted([term], [*few, common[0]], first=begin)
        for term in common if few else ():
            yield term, self._wanted([term], few, last=begin - 1)

    def _sum(self, parts: Iterable[tuple[str, WordQuery]], weights: Mapping[str, float]) -> list[int]:
        sums: dict[int, float] = {}
        for term, wanted in parts:
            weight = weights[term]
            for number in self._words.numbers(wanted):
                sums[number] = sums.get(number, 0.0) + weight
        return [number for _, number in sorted(zip(sums.values(), sums, strict=True), reverse=True)[:_BEST]]

    def _wanted(self, *groups: Sequence[str], first: int | None = None, last: int | None = None) -> WordQuery:
        """Runs with a term of each group, of the kind, in the range or a part of it."""
        return WordQuery(
            (*map(tuple, groups), *self._kind),
            self._first if first is None else first,
            self._last if last is None else last,
        )


def _rarest_within(terms: Sequence[str], holders: Mapping[str, int], most: int) -> list[str]:
    """The first terms that no more than so many runs hold, all of them together."""
    few: list[str] = []
    for term in terms:
        if holders[term] <= most:
            few.append(term)
            most -= holders[term]
    return few


_LEVEL = 3
_STEP = 200
# As many passages on each side of a run that was found come with it.
_BESIDE = 3


class SearchFilter(Struct, frozen=True):
    """What the originals of the runs must be: of a kind, archived since a time or until another."""

    kind: str = ""
    since: str = ""
    until: str = ""

    def clauses(self) -> tuple[str, list[str]]:
        """Conditions on an original `o`, and their values."""
        wanted = {"o.kind = ?": self.kind, "o.created_at >= ?": self.since, "o.created_at < ?": self.until}
        given = {clause: value for clause, value in wanted.items() if value}
        return "".join(f" AND {clause}" for clause in given), list(given.values())


class AddedRuns(Struct, frozen=True):
    """Runs of an original, packed, the first of them under a number."""

    original: int
    kind: str
    first: int
    runs: Sequence[PassageRun]

    @property
    def last(self) -> int:
        """The number behind them."""
        return self.first + sum(run.count for run in self.runs)


class PassageRuns:
    """The runs of all sessions in one database; every question is about one session."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def end(self, session: int) -> int:
        """The number of the next run of a session."""
        first, last = self.span(session)
        row = self._database.row(
            "SELECT number + count FROM passages WHERE number BETWEEN ? AND ? ORDER BY number DESC LIMIT 1",
            [first, last],
        )
        return int(row[0]) if row else first

    def add(self, added: Iterable[AddedRuns]) -> None:
        """Keep runs of originals."""
        rows, terms = [], []
        for each in added:
            number = each.first
            for run in each.runs:
                rows.append((number, each.original, run.count, run.size, run.body))
                terms.append((number, _terms(each.kind, run.terms)))
                number += run.count
        self._database.write_many(
            "INSERT INTO passages (number, original, count, size, body) VALUES (?, ?, ?, ?, ?)", rows
        )
        self._database.words.add(terms)

    @staticmethod
    def packed(runs: Iterable[PassageRun]) -> list[PassageRun]:
        """Runs with their bodies compressed, which needs no transaction."""
        packer = zstandard.ZstdCompressor(level=_LEVEL)
        return [structs.replace(run, body=packer.compress(run.body)) for run in runs]

    def of(self, original: int) -> list[tuple[int, int, bytes]]:
        """The runs of an original in their order: passages, characters, and body of each."""
        statement = "SELECT count, size, body FROM passages WHERE original = ? ORDER BY number"
        unpacker = zstandard.ZstdDecompressor()
        return [
            (count, size, unpacker.decompress(body)) for count, size, body in self._database.rows(statement, [original])
        ]

    def remove(self, session: int, terms_of: TermsOf) -> None:
        """Delete the runs of a session, some in each transaction."""
        while self._remove_some(session, terms_of):
            pass

    def _remove_some(self, session: int, terms_of: TermsOf) -> bool:
        unpacker = zstandard.ZstdDecompressor()
        rows = self._database.rows(
            "SELECT p.number, o.kind, p.body FROM passages p JOIN originals o ON o.number = p.original "
            "WHERE p.number BETWEEN ? AND ? ORDER BY p.number LIMIT ?",
            [*self.span(session), _STEP],
        )
        terms = {number: _terms(kind, terms_of(unpacker.decompress(body))) for number, kind, body in rows}
        with short_transaction(self._database.writing()):
            statement = "DELETE FROM passages WHERE number IN ({}) RETURNING number"
            gone = [number for (number,) in rows_in(self._database, statement, list(terms))]
            self._database.words.remove([(number, terms[number]) for number in gone])  # none that another has removed
        return bool(rows)

    def search(self, session: int, terms: Mapping[str, float], most: int, wanted: SearchFilter) -> list[FoundRun]:
        """Runs in their order, of about `most` characters: the best with those beside them, or all there are.

        Without a term they are the newest.
        """
        first, last = self._range(session, wanted)
        newest, are_all = self._newest(first, last, wanted.kind, most)
        if are_all or not terms:
            return list(self._read(newest, wanted))
        ranked = Ranking(self._database.words, first, last, wanted.kind).best(terms)
        return list(self._read(self._with_neighbours(ranked, first, last, most), wanted))

    def beginnings(self, session: int, refs: Sequence[str], most: int) -> list[FoundRun]:
        """The first runs of originals, of about so many passages each."""
        statement = (
            "SELECT p.number, o.ref, p.body FROM originals o "
            "JOIN passages p ON p.original = o.number AND p.number BETWEEN o.first AND o.first + ? "
            "WHERE o.session = ? AND o.ref IN ({}) ORDER BY p.number"
        )
        rows = rows_in(self._database, statement, list(refs), [most, session])
        unpacker = zstandard.ZstdDecompressor()
        each = self._database.passages_per_session
        return [FoundRun(ref, number % each, unpacker.decompress(body)) for number, ref, body in rows]

    def _range(self, session: int, wanted: SearchFilter) -> tuple[int, int]:
        """The first and the last number of what was archived in the time."""
        if not wanted.since and not wanted.until:
            return self.span(session)[0], self.end(session) - 1
        where, values = SearchFilter("", wanted.since, wanted.until).clauses()
        first, end = self._database.row(
            f"SELECT min(o.first), max(o.last) FROM originals o WHERE o.session = ?{where}", [session, *values]
        )
        return first or 0, (end or 0) - 1

    def _newest(self, first: int, last: int, kind: str, most: int) -> tuple[list[int], bool]:
        """The newest runs of so many characters, and whether those are all there are."""
        taken: list[int] = []
        while rows := self._some(first, last, kind):
            for number, size in rows:
                if size > most:
                    return taken, False
                taken.append(number)
                most -= size
            last = rows[-1][0] - 1
        return taken, True

    def _some(self, first: int, last: int, kind: str) -> list[tuple[int, int]]:
        """Some runs with their sizes, from the last one backwards."""
        if not kind:
            statement = "SELECT number, size FROM passages WHERE number BETWEEN ? AND ? ORDER BY number DESC LIMIT ?"
            return self._database.rows(statement, [first, last, _STEP])
        newest = self._database.words.newest(WordQuery(((kind_word(kind),),), first, last), _STEP)
        return sorted(
            rows_in(self._database, "SELECT number, size FROM passages WHERE number IN ({})", newest), reverse=True
        )

    def _with_neighbours(self, ranked: Sequence[int], first: int, last: int, most: int) -> list[int]:
        taken: set[int] = set()
        for number in ranked:
            new = [(near, size) for near, size in self._around(number, first, last) if near not in taken]
            most -= sum(size for _, size in new)
            if most < 0:
                break
            taken.update(near for near, _ in new)
        return list(taken)

    def _around(self, number: int, first: int, last: int) -> list[tuple[int, int]]:
        """A run and those that hold the next passages on both sides, with their sizes."""
        return self._database.rows(
            "SELECT number, size FROM passages WHERE number BETWEEN "
            "coalesce((SELECT max(number) FROM passages WHERE number BETWEEN ? AND ?), ?) AND ? "
            "AND number < (SELECT number + count FROM passages WHERE number = ?) + ?",
            [first, number - _BESIDE, first, last, number, _BESIDE],
        )

    def _read(self, numbers: Sequence[int], wanted: SearchFilter) -> Iterator[FoundRun]:
        where, values = wanted.clauses()
        statement = (
            "SELECT p.number, o.ref, p.body FROM passages p, originals o "
            f"WHERE o.number = p.original{where} AND p.number IN ({{}}) ORDER BY p.number"
        )
        unpacker = zstandard.ZstdDecompressor()
        for number, ref, body in rows_in(self._database, statement, sorted(numbers), values):
            yield FoundRun(ref, number % self._database.passages_per_session, unpacker.decompress(body))

    def span(self, session: int) -> tuple[int, int]:
        """The first and the last number that a session's runs may have."""
        most = self._database.passages_per_session
        return session * most, (session + 1) * most - 1


def _terms(kind: str, terms: str) -> str:
    """What the index knows of a run: its terms, and the kind of its original."""
    return f"{kind_word(kind)} {terms}"


_COLUMNS = (
    "o.number, o.ref, o.kind, o.summary, o.tokens, o.recovery, o.hint, o.target, o.same_as, o.created_at, "
    "(SELECT hash FROM contents WHERE number = o.content)"
)
_INSERT = (
    "INSERT INTO originals (session, ref, kind, summary, tokens, recovery, hint, target, same_as, created_at, content, "
    "first, last) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"
)

_ALL = SearchFilter()


class OriginalTable:
    """Originals of all sessions in one database; every question is about one session."""

    def __init__(self, database: Database, contents: ContentTable) -> None:
        self._database = database
        self._contents = contents
        self.runs = PassageRuns(database)

    def add(self, session: int, items: Sequence[NewOriginal], now: str) -> list[str]:
        """Put originals into the archive; the ids of those that were not there. The first under an id stays for ever.

        An original whose value is archived under another id already refers to that one and is not found twice. The
        session's row must be locked.
        """
        new = self._new(session, items)
        numbers = self._contents.numbers([item.content for item in new])
        known = self._first_refs(session, list(numbers))
        added, missing, first = [], [], self.runs.end(session)
        for item in new:
            ref = known.setdefault(item.content, item.ref)
            same_as, runs = (ref, ()) if ref != item.ref else ("", item.runs)
            last = first + sum(run.count for run in runs)
            fields = [item.ref, item.kind, item.summary, item.tokens, item.recovery, item.hint, item.target]
            values = [session, *fields, same_as, now, numbers[item.content], first, last]
            original = int(self._database.row(_INSERT, values)[0])
            added.append(AddedRuns(original, item.kind, first, self.runs.packed(runs) if runs else ()))
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
        return [Unindexed(_original_row(row), done) for done, *row in rows]

    def index(self, session: int, parts: Iterable[tuple[IndexPart, Sequence[PassageRun]]]) -> dict[int, int]:
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
                self._extend(session, AddedRuns(part.original, row[1], self.runs.end(session), runs), part)
                if not part.is_last:
                    reached[part.original] = part.done + sum(run.count for run in runs)
            elif row is not None:
                reached[part.original] = row[0]
        return reached

    def _extend(self, session: int, added: AddedRuns, part: IndexPart) -> None:
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

    def _new(self, session: int, items: Sequence[NewOriginal]) -> list[NewOriginal]:
        """Those whose id is not taken, each id once."""
        statement = "SELECT ref FROM originals WHERE session = ? AND ref IN ({})"
        taken = {ref for (ref,) in rows_in(self._database, statement, [item.ref for item in items], [session])}
        first: dict[str, NewOriginal] = {}
        for item in items:
            if item.ref not in taken:
                first.setdefault(item.ref, item)
        return list(first.values())

    def _first_refs(self, session: int, contents: Sequence[str]) -> dict[str, str]:
        """The ids under which contents were archived first."""
        statement = (
            "SELECT c.hash, o.ref FROM contents c JOIN originals o ON o.content = c.number "
            "WHERE o.session = ? AND c.hash IN ({}) ORDER BY o.number DESC"
        )
        rows = rows_in(self._database, statement, [bytes.fromhex(name) for name in contents], [session])
        return {name.hex(): ref for name, ref in rows}

    def find(self, session: int, ref: str) -> OriginalRow | None:
        """The original under an id."""
        row = self._database.row(
            f"SELECT {_COLUMNS} FROM originals o WHERE o.session = ? AND o.ref = ?", [session, ref]
        )
        return _original_row(row) if row else None

    def all(
        self, session: int, wanted: SearchFilter = _ALL, after: int = 0, limit: int = 0, newest: int = 0
    ) -> list[OriginalRow]:
        """The originals of a session in the order in which they were archived; the first or the `newest`, if given."""
        where, values = wanted.clauses()
        order, most = ("DESC", newest) if newest else ("ASC", limit or NO_LIMIT)
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM originals o WHERE o.session = ? AND o.number > ?{where} "
            f"ORDER BY o.number {order} LIMIT ?",
            [session, after, *values, most],
        )
        return [_original_row(row) for row in (reversed(rows) if newest else rows)]

    def verify(self, session_id: str, session: int) -> Iterator[str]:
        """One line for each original whose value is gone."""
        lost = self._database.rows(
            "SELECT o.ref FROM originals o LEFT JOIN contents c ON c.number = o.content "
            "WHERE o.session = ? AND c.number IS NULL ORDER BY o.number",
            [session],
        )
        yield from (f"session {session_id}: the original of {ref} is missing" for (ref,) in lost)


def _original_row(row: Sequence[Any]) -> OriginalRow:
    *fields, content = row
    return OriginalRow(*[*fields, content.hex() if content else ""])  # it may be gone from the store
