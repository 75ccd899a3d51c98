"""Runs of passages: kept beside their originals, found by their terms, and read in their order.

The number of a run tells its session and the position of its first passage, in the table and in the index alike. So a
range of numbers is a session or a part of one, and what stands beside a run in the history has a number beside its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import zstandard
from msgspec import Struct

from context_compactor.store.database import Database, one_of_many, rows_in
from context_compactor.store.ranking import Ranking
from context_compactor.store.rows import Found, Run
from context_compactor.store.words import TermsOf, Wanted, kind_word

_LEVEL = 3
_STEP = 200
# As many passages on each side of a run that was found come with it.
_BESIDE = 3


class Filter(Struct, frozen=True):
    """What the originals of the runs must be: of a kind, archived since a time or until another."""

    kind: str = ""
    since: str = ""
    until: str = ""

    def clauses(self) -> tuple[str, list[str]]:
        """Conditions on an original `o`, and their values."""
        wanted = {"o.kind = ?": self.kind, "o.created_at >= ?": self.since, "o.created_at < ?": self.until}
        given = {clause: value for clause, value in wanted.items() if value}
        return "".join(f" AND {clause}" for clause in given), list(given.values())


class Packed(Struct, frozen=True):
    """A run as it is stored."""

    count: int
    size: int
    terms: str
    body: bytes


class Added(Struct, frozen=True):
    """Runs of an original, the first of them under a number."""

    original: int
    kind: str
    first: int
    runs: Sequence[Packed]

    @property
    def last(self) -> int:
        """The number behind them."""
        return self.first + sum(run.count for run in self.runs)


class Runs:
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

    def add(self, added: Iterable[Added]) -> None:
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
    def packed(runs: Iterable[Run]) -> list[Packed]:
        """Runs made ready to be kept, which needs no transaction."""
        packer = zstandard.ZstdCompressor(level=_LEVEL)
        return [Packed(run.count, run.size, run.terms, packer.compress(run.body)) for run in runs]

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
        with one_of_many(self._database.writing()):
            statement = "DELETE FROM passages WHERE number IN ({}) RETURNING number"
            gone = [number for (number,) in rows_in(self._database, statement, list(terms))]
            self._database.words.remove([(number, terms[number]) for number in gone])  # none that another has removed
        return bool(rows)

    def search(self, session: int, terms: Mapping[str, float], most: int, wanted: Filter) -> list[Found]:
        """Runs in their order, of about `most` characters: the best with those beside them, or all there are.

        Without a term they are the newest.
        """
        first, last = self._range(session, wanted)
        newest, are_all = self._newest(first, last, wanted.kind, most)
        if are_all or not terms:
            return list(self._read(newest, wanted))
        ranked = Ranking(self._database.words, first, last, wanted.kind).best(terms)
        return list(self._read(self._with_neighbours(ranked, first, last, most), wanted))

    def beginnings(self, session: int, refs: Sequence[str], most: int) -> list[Found]:
        """The first runs of originals, of about so many passages each."""
        statement = (
            "SELECT p.number, o.ref, p.body FROM originals o "
            "JOIN passages p ON p.original = o.number AND p.number BETWEEN o.first AND o.first + ? "
            "WHERE o.session = ? AND o.ref IN ({}) ORDER BY p.number"
        )
        rows = rows_in(self._database, statement, list(refs), [most, session])
        unpacker = zstandard.ZstdDecompressor()
        each = self._database.passages_per_session
        return [Found(ref, number % each, unpacker.decompress(body)) for number, ref, body in rows]

    def _range(self, session: int, wanted: Filter) -> tuple[int, int]:
        """The first and the last number of what was archived in the time."""
        if not wanted.since and not wanted.until:
            return self.span(session)[0], self.end(session) - 1
        where, values = Filter("", wanted.since, wanted.until).clauses()
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
        newest = self._database.words.newest(Wanted(((kind_word(kind),),), first, last), _STEP)
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

    def _read(self, numbers: Sequence[int], wanted: Filter) -> Iterator[Found]:
        where, values = wanted.clauses()
        statement = (
            "SELECT p.number, o.ref, p.body FROM passages p, originals o "
            f"WHERE o.number = p.original{where} AND p.number IN ({{}}) ORDER BY p.number"
        )
        unpacker = zstandard.ZstdDecompressor()
        for number, ref, body in rows_in(self._database, statement, sorted(numbers), values):
            yield Found(ref, number % self._database.passages_per_session, unpacker.decompress(body))

    def span(self, session: int) -> tuple[int, int]:
        """The first and the last number that a session's runs may have."""
        most = self._database.passages_per_session
        return session * most, (session + 1) * most - 1


def _terms(kind: str, terms: str) -> str:
    """What the index knows of a run: its terms, and the kind of its original."""
    return f"{kind_word(kind)} {terms}"
