"""Ranking: which runs hold the terms that tell most.

A run weighs the sum of its terms, each by how few runs hold it. Looking at every run that holds a common word would
take too long, and most of them would come to nothing. So the terms that the fewest runs hold say which runs are looked
at, and all others only count in those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log

from msgspec import Struct

from context_compactor.store.words import Wanted, Words, is_word, kind_word

# How many runs are looked at, and how many terms beside those that choose them.
_MOST_RUNS, _MOST_COMMON = 4_000, 6
_BEST = 500


class Part(Struct, frozen=True):
    """A term to count, wherever it is wanted."""

    term: str
    wanted: Wanted


class Ranking:
    """The index of words between two numbers, for one kind of original or all."""

    def __init__(self, words: Words, first: int, last: int, kind: str) -> None:
        self._words = words
        self._first = first
        self._last = last
        self._kind = ((kind_word(kind),),) if kind else ()

    def best(self, terms: Mapping[str, float]) -> list[int]:
        """The numbers of the runs whose terms weigh most, the newer first of two that weigh the same.

        Terms that weigh less than 1 come after all others when it is chosen which runs are looked at.
        """
        holders = {term: self._holders(term) for term in terms if is_word(term)}
        rarest = sorted((term for term in holders if holders[term]), key=lambda each: (terms[each] < 1, holders[each]))
        span = self._last - self._first
        weights = {term: terms[term] * log(1 + span / holders[term]) for term in rarest}
        return self._sum(self._parts(rarest, holders, terms), weights)

    def _holders(self, term: str) -> int:
        """How many runs hold a term; of a common one it is only said that they are many."""
        return self._words.count(self._wanted([term]), _MOST_RUNS + 1)

    def _parts(self, rarest: Sequence[str], holders: Mapping[str, int], terms: Mapping[str, float]) -> Iterator[Part]:
        """The rarest terms everywhere, and others where one of those is.

        When those of full weight choose too few runs, or none, the next term chooses from the newest.
        """
        few = _rarest_within(rarest, holders, _MOST_RUNS)
        common = [term for term in rarest if term not in few][:_MOST_COMMON]
        yield from (Part(term, self._wanted([term])) for term in few)
        room, begin = _MOST_RUNS - sum(holders[term] for term in few), self._last + 1
        if common and room and sum(holders[term] for term in few if terms[term] >= 1) < _BEST:
            begin = self._nth_newest(common[0], room)
            for term in common:
                yield Part(term, self._wanted([term], [*few, common[0]], first=begin))
        for term in common if few else ():
            yield Part(term, self._wanted([term], few, last=begin - 1))

    def _nth_newest(self, term: str, nth: int) -> int:
        found = self._words.newest(self._wanted([term]), 1, skip=nth - 1)
        return found[0] if found else self._first

    def _sum(self, parts: Iterable[Part], weights: Mapping[str, float]) -> list[int]:
        sums: dict[int, float] = {}
        for part in parts:
            weight = weights[part.term]
            for number in self._words.numbers(part.wanted):
                sums[number] = sums.get(number, 0.0) + weight
        return [number for _, number in sorted(zip(sums.values(), sums, strict=True), reverse=True)[:_BEST]]

    def _wanted(self, *groups: Sequence[str], first: int | None = None, last: int | None = None) -> Wanted:
        """Runs with a term of each group, of the kind, in the range or a part of it."""
        return Wanted(
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
