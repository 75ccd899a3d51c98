"""Search the originals of a history: from a question to the few lines that answer it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from context_compactor.archive.archive import Original
from context_compactor.archive.search.hits import Hit
from context_compactor.archive.search.lines import Lines, check_search
from context_compactor.archive.search.passages import cut_originals
from context_compactor.protocols import TokenCounter


class Searcher:
    """Searches originals for a reader who has `shown` before the eyes; all preparing is left to the first search."""

    def __init__(self, originals: Iterable[Original], counter: TokenCounter, shown: Sequence[str] = ()) -> None:
        self._originals = originals
        self._counter = counter
        self._texts = shown

    @cached_property
    def _lines(self) -> Lines:
        return Lines(cut_originals(self._originals), self._counter, self._texts)

    def search(self, text: str, *, tokens: int = 2000, limit: int | None = None) -> list[Hit]:
        """The hits, best first: as many as `render_hits` shows in so many tokens, and no more than `limit`."""
        check_search(text, tokens, limit)
        return self._lines.choose(text, tokens, limit)
