"""Search the originals of a history: from a question to the few lines that answer it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

from context_compactor.archive.archive import Original
from context_compactor.archive.search.hits import GAP, Hit, heading, make_hits, render_hits
from context_compactor.archive.search.index import Index
from context_compactor.archive.search.pack import ranked
from context_compactor.archive.search.passages import cut_originals
from context_compactor.archive.search.query import read_query
from context_compactor.errors import BadSetting
from context_compactor.protocols import TokenCounter

_TOO_FEW = 6


class Searcher:
    """Searches originals for a reader who has `shown` before the eyes; all preparing is left to the first search."""

    def __init__(self, originals: Iterable[Original], counter: TokenCounter, shown: Sequence[str] = ()) -> None:
        self._originals = originals
        self._counter = counter
        self._texts = shown

    @cached_property
    def _index(self) -> Index:
        return Index(cut_originals(self._originals))

    @cached_property
    def _tokens(self) -> list[int]:
        return self._counter.count_many([f"{passage.text}\n" for passage in self._index.passages])

    @cached_property
    def _shown(self) -> set[int]:
        return set().union(*map(self._index.names.ids, self._texts))

    def search(self, text: str, *, tokens: int = 2000, limit: int | None = None) -> list[Hit]:
        """The hits, best first: as many as `render_hits` shows in so many tokens, and no more than `limit`."""
        _check(text, tokens, limit)
        query = read_query(text, self._index.speakers)
        relevance = self._index.relevance(query) if query.weights else self._index.containing(text.strip())
        taken: set[int] = set()
        order = ranked(self._index, query, relevance, self._tokens, self._shown, taken)
        chosen = self._fill(order, taken, tokens, limit)
        while chosen:
            hits = make_hits([self._index.passages[at] for at in sorted(chosen)], relevance)
            if self._counter.count(render_hits(hits)) <= tokens and len(hits) <= (limit or len(hits)):
                return hits
            chosen.pop()
        return []

    def _fill(self, order: Iterable[int], taken: set[int], tokens: int, limit: int | None) -> list[int]:
        """Take passages while there is room. Once there are enough hits, only what touches one of them is added."""
        gap = self._counter.count(GAP)
        opened: set[str] = set()
        chosen: dict[int, None] = {}
        hits = 0
        for at in order:
            joined = self._joined(at, chosen)
            head = heading(self._index.passages[at])
            cost = self._tokens[at] + (gap if head in opened else self._counter.count(head))
            if cost > tokens or (limit is not None and hits + 1 - joined > limit):
                continue
            opened.add(head)
            chosen[at] = None
            taken |= self._index.named[at]
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


def _check(text: str, tokens: int, limit: int | None) -> None:
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
