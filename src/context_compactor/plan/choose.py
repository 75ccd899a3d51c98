"""The heart: choose pieces of text so that their sum fits and what they retain is worth most.

A piece is worth what it *adds*: names that are not yet in the context, and lines that are not. So value shrinks as the
choice grows, and a lazy greedy over value per token with a heap is near the best there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from context_compactor.classify.relevance import Weights


class Piece:
    """One option on the scales. A plain object with slots: thousands are made for each compaction.

    `lines` tells equal lines apart from others; `boost` multiplies what its names are worth; `heading` is its part of
    what it costs to open its source.
    """

    __slots__ = ("boost", "heading", "lines", "names", "option", "source", "tokens", "weight")

    def __init__(
        self,
        option: int,
        source: int,
        tokens: float,
        weight: float,
        names: tuple[int, ...],
        lines: tuple[int, ...],
        boost: float,
        heading: float,
    ) -> None:
        self.option = option
        self.source = source
        self.tokens = tokens
        self.weight = weight
        self.names = names
        self.lines = lines
        self.boost = boost
        self.heading = heading


class Chooser:
    """Takes pieces in the order of what they add per token, until it is told to stop."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        worth: Sequence[float],
        weights: Weights,
        headings: dict[int, float],
        most: dict[int, float] | None = None,
    ) -> None:
        self.pieces = pieces
        self.chosen: list[int] = []
        self.tokens = 0.0
        self._worth = worth
        self._again = weights.name_again
        self._neighbour = weights.neighbour
        self._headings = dict(headings)
        self._most = most or {}
        self._used: dict[int, float] = {}
        self._costs: list[float] = []
        self._gains: list[float] = []
        self._seen = bytearray(len(worth))
        self._lines: set[int] = set()
        self._heap: list[tuple[float, int]] = []
        self._taken = bytearray(len(pieces))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is chosen."""
        return not self.chosen

    def cover(self, names: Sequence[int] | set[int], lines: Iterable[int] = ()) -> None:
        """These names and texts stand in the context already."""
        seen = self._seen
        for name in names:
            if seen[name] < 2:
                seen[name] += 1
        self._lines.update(lines)

    def start(self) -> None:
        """Weigh every piece once."""
        density = self._density
        self._heap = [(-density(at), at) for at in range(len(self.pieces))]
        heapify(self._heap)

    def fill(self, tokens: float) -> None:
        """Take the best pieces that fit until about this many tokens are used."""
        heap, density = self._heap, self._density
        skipped: list[tuple[float, int]] = []
        while heap and self.tokens < tokens:
            old, at = heap[0]
            if self._taken[at]:
                heappop(heap)
                continue
            now = -density(at)
            if now > old + 1e-9 and len(heap) > 1:
                heapreplace(heap, (now, at))
                continue
            heappop(heap)
            if now >= 0.0 or self._is_used_up(at):
                continue
            if self.tokens + self._cost(at) > tokens:
                skipped.append((now, at))
                if len(skipped) > 40:
                    break
                continue
            self._take(at)
        for entry in skipped:
            heappush(heap, entry)

    def drop_last(self, tokens: float) -> None:
        """Give back the least valuable pieces until about this many tokens are free."""
        free = 0.0
        while self.chosen and free < tokens:
            at = self.chosen.pop()
            self._taken[at] = 0
            self._lines.difference_update(self.pieces[at].lines)
            heappush(self._heap, (-self._density(at), at))
            cost = self._costs.pop()
            self._gains.pop()
            free += cost
            self.tokens -= cost
            self._use(at, -1)

    def gains(self) -> list[float]:
        """What each piece added for each of its tokens when it was taken, or would add now."""
        taken = dict(zip(self.chosen, self._gains, strict=True))
        return [taken[at] if at in taken else self._density(at) for at in range(len(self.pieces))]

    def _cost(self, at: int) -> float:
        """What a piece costs now: with the heading of its source when it is the first of it."""
        piece = self.pieces[at]
        return piece.tokens + self._headings.get(piece.source, 0.0)

    def _is_used_up(self, at: int) -> bool:
        """Whether a source that may give only some of its text has given it; its first piece it gives anyway."""
        piece = self.pieces[at]
        used = self._used.get(piece.source, 0.0)
        return used > 0.0 and used + piece.tokens > self._most[piece.source]

    def _use(self, at: int, sign: int) -> None:
        piece = self.pieces[at]
        if piece.source in self._most:
            self._used[piece.source] = max(self._used.get(piece.source, 0.0) + sign * piece.tokens, 0.0)

    def _density(self, at: int) -> float:
        piece = self.pieces[at]
        seen, worth, again = self._seen, self._worth, self._again
        value = piece.weight * piece.tokens
        if not self._lines.isdisjoint(piece.lines):
            value *= sum(line not in self._lines for line in piece.lines) / len(piece.lines)
        for name in piece.names:
            times = seen[name]
            if times == 0:
                value += worth[name] * piece.boost
            elif times == 1:
                value += worth[name] * again
        return value / (piece.tokens + (piece.heading if piece.source in self._headings else 0.0))

    def _take(self, at: int) -> None:
        piece = self.pieces[at]
        cost = self._cost(at)
        self._gains.append(self._density(at))
        self.tokens += cost
        self._use(at, 1)
        self._costs.append(cost)
        is_first = self._headings.pop(piece.source, None) is not None
        self.chosen.append(at)
        self._taken[at] = 1
        self.cover(piece.names, piece.lines)
        if is_first:
            self._reweigh(at)
        self._favour(at - 1, piece.source)
        self._favour(at + 1, piece.source)

    def _reweigh(self, at: int) -> None:
        """Once a source has its heading, what else it holds costs less."""
        source = self.pieces[at].source
        for step in (-1, 1):
            near = at + step
            while 0 <= near < len(self.pieces) and self.pieces[near].source == source and abs(near - at) < 100:
                if not self._taken[near]:
                    heappush(self._heap, (-self._density(near), near))
                near += step

    def _favour(self, at: int, source: int) -> None:
        """What stands next to a chosen piece reads on from it."""
        if 0 <= at < len(self.pieces) and not self._taken[at] and self.pieces[at].source == source:
            self.pieces[at].weight *= self._neighbour
            heappush(self._heap, (-self._density(at), at))
