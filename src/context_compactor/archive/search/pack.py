"""Packing: which passages make the most of a number of tokens.

A passage is worth what it adds: its text, and the names in it that neither the reader's context nor a passage taken
before has shown. Each is weighed against its tokens, so short passages rich in names go before long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import fsum

from context_compactor.archive.search.index import Index
from context_compactor.archive.search.query import Query
from context_compactor.archive.search.words import terms

# Beside a new name, which is worth 1: a token of text, a name the reader has, and a name whose parts were asked for.
_TEXT, _SHOWN, _ASKED = 0.03, 0.05, 3.0
_BESIDE = 2
# Beside the best answer, what is as faint as this is none.
_FAINT = 0.05
# The power of relevance: a short question means its words, a long one is about them.
_LONG, _SHORT = 0.7, 8


def ranked(
    index: Index,
    query: Query,
    places: Iterable[int],
    relevance: Sequence[float],
    tokens: Mapping[int, int],
    shown: Collection[str],
    taken: Collection[str],
) -> Iterator[int]:
    """Some passages by what each adds per token, best first.

    `shown` are the names that the reader has; `taken` those of the passages taken so far, to which the caller adds.
    """
    worth = _name_worth(index, query, shown)
    sharpness = _LONG + _SHORT / max(len(query.asked), 1)

    def gain(at: int) -> float:
        names = fsum(worth(name) for name in index.named(at) if name not in taken)
        return float(relevance[at] ** sharpness) * (_TEXT * tokens[at] + names) / (tokens[at] + _BESIDE)

    return best_first(places, gain)


def telling(relevance: Sequence[float]) -> list[int]:
    """The places of what is no fainter than an answer may be."""
    faint = _FAINT * max(relevance, default=0.0)
    return [at for at, relevant in enumerate(relevance) if relevant > faint]


def best_first(items: Iterable[int], gain: Callable[[int], float]) -> Iterator[int]:
    """Items by what each still adds when its turn comes, until none adds anything.

    What an item adds only ever shrinks, so one that still leads when its gain is worked out again is the best there is.
    """
    heap = [(-gain(item), item) for item in items]
    heapify(heap)
    while heap:
        _, item = heappop(heap)
        now = (-gain(item), item)
        if heap and now > heap[0]:
            heappush(heap, now)
        elif now[0] < 0:
            yield item


def _name_worth(index: Index, query: Query, shown: Collection[str]) -> Callable[[str], float]:
    """A name counts for more when its parts were asked for, and for little when the reader has it already."""
    known: dict[str, float] = {}

    def worth(name: str) -> float:
        if name not in known:
            known[name] = (1 + _ASKED * _asked_share(index, query, name)) * (_SHOWN if name in shown else 1)
        return known[name]

    return worth


def _asked_share(index: Index, query: Query, name: str) -> float:
    """How much of what a name tells was asked for."""
    parts = dict.fromkeys(terms(name))
    if query.asked.isdisjoint(parts):
        return 0.0
    rarities = {term: index.rarity(term) for term in parts}
    return sum(rarity for term, rarity in rarities.items() if term in query.asked) / (sum(rarities.values()) or 1)
