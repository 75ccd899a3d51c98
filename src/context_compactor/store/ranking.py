"""Ranking: which runs hold the terms that tell most.

A run weighs the sum of its terms, each by how few runs hold it. Looking at every run that holds a common word would
take too long, and most of them would come to nothing. So the terms that the fewest runs hold say which runs are looked
at, and all others only count in those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log

import msgspec
from msgspec import Struct

from context_compactor.store.database import Database

# How many runs are looked at, and how many terms beside those that choose them.
_MOST_RUNS, _MOST_COMMON = 4_000, 6
_BEST = 500
# What the index takes for one word. Half a character is none: SQLite takes only what UTF-8 can write.
_WORD = re.compile(r"[0-9A-Za-z\x80-\ud7ff\ue000-\U0010ffff]{1,200}")


class Part(Struct, frozen=True):
    """A term to count: wherever its expression matches in a range of numbers."""

    term: str
    expression: str
    first: int
    last: int


class Ranking:
    """The index of words between two numbers, for one kind of original or all."""

    def __init__(self, database: Database, first: int, last: int, kind: str) -> None:
        self._database = database
        self._first = first
        self._last = last
        self._kind = kind

    def best(self, terms: Mapping[str, float]) -> list[int]:
        """The numbers of the runs whose terms weigh most, the newer first of two that weigh the same.

        Terms that weigh less than 1 come after all others when it is chosen which runs are looked at.
        """
        holders = {term: self._holders(term) for term in terms if _WORD.fullmatch(term)}
        rarest = sorted((term for term in holders if holders[term]), key=lambda each: (terms[each] < 1, holders[each]))
        span = self._last - self._first
        weights = {term: terms[term] * log(1 + span / holders[term]) for term in rarest}
        return self._sum(self._parts(rarest, holders, terms), weights)

    def _holders(self, term: str) -> int:
        """How many runs hold a term; of a common one it is only said that they are many."""
        row = self._database.row(
            "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?)",
            [self._match(_any([term])), self._first, self._last, _MOST_RUNS + 1],
        )
        return int(row[0])

    def _parts(self, rarest: Sequence[str], holders: Mapping[str, int], terms: Mapping[str, float]) -> Iterator[Part]:
        """The rarest terms everywhere, and others where one of those is.

        When those of full weight choose too few runs, or none, the next term chooses from the newest.
        """
        few = _rarest_within(rarest, holders, _MOST_RUNS)
        common = [term for term in rarest if term not in few][:_MOST_COMMON]
        yield from (Part(term, _any([term]), self._first, self._last) for term in few)
        room, begin = _MOST_RUNS - sum(holders[term] for term in few), self._last + 1
        if common and room and sum(holders[term] for term in few if terms[term] >= 1) < _BEST:
            begin = self._nth_newest(common[0], room)
            for term in common:
                yield Part(term, f"{_any([term])} AND {_any([*few, common[0]])}", begin, self._last)
        for term in common if few else ():
            yield Part(term, f"{_any([term])} AND {_any(few)}", self._first, begin - 1)

    def _nth_newest(self, term: str, nth: int) -> int:
        row = self._database.row(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? "
            "ORDER BY rowid DESC LIMIT 1 OFFSET ?",
            [self._match(_any([term])), self._first, self._last, nth - 1],
        )
        return int(row[0]) if row else self._first

    def _sum(self, parts: Iterable[Part], weights: Mapping[str, float]) -> list[int]:
        sums: dict[int, float] = {}
        for part in parts:
            weight = weights[part.term]
            for number in self._numbers(part):
                sums[number] = sums.get(number, 0.0) + weight
        return [number for _, number in sorted(zip(sums.values(), sums, strict=True), reverse=True)[:_BEST]]

    def _numbers(self, part: Part) -> list[int]:
        """All numbers in one value: taking them row by row takes longer than finding them."""
        row = self._database.row(
            "SELECT json_group_array(rowid) FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ?",
            [self._match(part.expression), part.first, part.last],
        )
        return msgspec.json.decode(row[0], type=list[int])

    def _match(self, expression: str) -> str:
        return f'({expression}) AND "{kind_word(self._kind)}"' if self._kind else expression


def _rarest_within(terms: Sequence[str], holders: Mapping[str, int], most: int) -> list[str]:
    """The first terms that no more than so many runs hold, all of them together."""
    few: list[str] = []
    for term in terms:
        if holders[term] <= most:
            few.append(term)
            most -= holders[term]
    return few


def kind_word(kind: str) -> str:
    """The word by which runs of originals of a kind are found. No term is one, since none holds a colon."""
    return f"kind:{kind.encode().hex()}"


def _any(terms: Sequence[str]) -> str:
    return "(" + " OR ".join(f'"{term}"' for term in terms) + ")"
