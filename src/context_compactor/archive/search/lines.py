"""Lines: from passages and a question to the few lines that answer it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property, lru_cache

from context_compactor.archive.search.hits import GAP, Hit, heading, make_hits, render_hits
from context_compactor.archive.search.index import Index, names_of
from context_compactor.archive.search.pack import ranked, telling
from context_compactor.archive.search.passages import Passage
from context_compactor.archive.search.query import read_query
from context_compactor.errors import BadSetting
from context_compactor.protocols import TokenCounter

_TOO_FEW = 6


class Lines:
    """Passages, in the order of the history, out of which lines are chosen for a reader who has `shown`.

    They need not be all there are: what has no neighbour among them is not joined with another.
    """

    def __init__(self, passages: Sequence[Passage], counter: TokenCounter, shown: Iterable[str] = ()) -> None:
        self._index = Index(passages)
        self._counter = counter
        self._texts = shown
        self._counted: dict[int, int] = {}

    @cached_property
    def _shown(self) -> set[str]:
        return set().union(*map(_names_shown, self._texts))

    def choose(self, text: str, tokens: int, limit: int | None) -> list[Hit]:
        """The hits, best first: as many as `render_hits` shows in so many tokens, and no more than `limit`."""
        index = self._index
        query = read_query(text, index.speakers)
        relevance = index.relevance(query) if query.weights else index.containing(text.strip())
        places = telling(relevance)
        self._count(places)
        taken: set[str] = set()
        order = ranked(index, query, places, relevance, self._counted, self._shown, taken)
        chosen = self._fill(order, taken, tokens, limit)
        while chosen:
            hits = make_hits([(index.passages[at], relevance[at]) for at in sorted(chosen)])
            if self._counter.count(render_hits(hits)) <= tokens and len(hits) <= (limit or len(hits)):
                return hits
            chosen.pop()
        return []

    def _count(self, places: Iterable[int]) -> None:
        new = [at for at in places if at not in self._counted]
        counts = self._counter.count_many([f"{self._index.passages[at].text}\n" for at in new])
        self._counted.update(zip(new, counts, strict=True))

    def _fill(self, order: Iterable[int], taken: set[str], tokens: int, limit: int | None) -> list[int]:
        """Take passages while there is room. Once there are enough hits, only what touches one of them is added."""
        gap = self._counter.count(GAP)
        opened: set[str] = set()
        chosen: dict[int, None] = {}
        hits = 0
        for at in order:
            joined = self._joined(at, chosen)
            head = heading(self._index.passages[at])
            cost = self._counted[at] + (gap if head in opened else self._counter.count(head))
            if cost > tokens or (limit is not None and hits + 1 - joined > limit):
                continue
            opened.add(head)
            chosen[at] = None
            taken |= self._index.named(at)
            hits += 1 - joined
            tokens -= cost
            if tokens < _TOO_FEW:
                break
        return list(chosen)

    def _joined(self, at: int, chosen: Collection[int]) -> int:
        """How many hits a passage would grow together with: none, one, or the two it stands between."""
        passages = self._index.passages
        before = at - 1 in chosen and passages[at - 1].goes_on_in(passages[at])
        after = at + 1 in chosen and passages[at].goes_on_in(passages[at + 1])
        return before + after


# Most of what is before the reader's eyes was there at the last search.
_names_shown = lru_cache(maxsize=1024)(names_of)


def check_search(text: str, tokens: int, limit: int | None) -> None:
    """Refuse what cannot be searched for."""
    if not isinstance(text, str):
        raise BadSetting(f"search: the text to look for is {type(text).__name__}, not text")
    for name, value in (("tokens", tokens), ("limit", limit if limit is not None else 1)):
        if not isinstance(value, int):
            raise BadSetting(f"search: {name} is {value!r:.40}, not a whole number")
    if not text.strip():
        raise BadSetting("search: the text to look for is empty; say in a few words what is wanted")
    if tokens < 1:
        raise BadSetting(f"search: tokens={tokens} leaves no room for an answer; 2000 is a good number")
    if limit is not None and limit < 1:
        raise BadSetting(f"search: limit={limit} allows no hit; leave it out for as many as fit into the tokens")
