"""All of a span is shown, in as many chunks as it takes: cut between turns, and inside one that is larger than a chunk.

What was shown is proved from the places in the text and not from the tokens that were sent: every character of every
turn stands in exactly one chunk, or `Coverage` says how much does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import TypeVar

from msgspec import Struct

from context_compactor.summarize.quoting import Telling

Count = Callable[[str], int]
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

# What a heading takes beside the text under it, and how many characters of it say what goes on.
_HEADING_TOKENS = 32
_LONGEST_WITHIN = 60
# A turn is cut into parts of about one size that leave some room, so that its small neighbours need no chunk each.
_FILLED = 0.9
_EVEN = 1.05


class Piece(Struct, frozen=True):
    """A part of a turn's text, from one character to before another."""

    turn: int
    start: int
    end: int


class Chunk(Struct, frozen=True):
    """As much of a span as is shown at once."""

    text: str
    tokens: int
    pieces: tuple[Piece, ...]

    @property
    def turns(self) -> frozenset[int]:
        """The turns that have a part in it."""
        return frozenset(piece.turn for piece in self.pieces)


class Coverage(Struct, frozen=True):
    """How many tokens of a span a model was shown, in how many chunks.

    `refused` of these got no usable answer, and their ledgers stand for them. `reasoning` tokens are left out on
    purpose and not among the others.
    """

    tokens: int = 0
    shown: int = 0
    chunks: int = 0
    reasoning: int = 0
    refused: int = 0

    @property
    def share(self) -> float:
        """From 0 to 1: only 1 will do."""
        return self.shown / self.tokens if self.tokens else 1.0


def cut_chunks(tellings: Sequence[Telling], most: int, count: Count) -> list[Chunk]:
    """All tellings in order, in chunks of at most so many tokens."""
    chunks: list[Chunk] = []
    lines: list[str] = []
    pieces: list[Piece] = []
    tokens = 0
    for text, piece, cost in _pieces(tellings, max(most - _HEADING_TOKENS, 1), count):
        if pieces and tokens + cost > most:
            chunks.append(Chunk("\n".join(lines), tokens, tuple(pieces)))
            lines, pieces, tokens = [], [], 0
        lines.append(text)
        pieces.append(piece)
        tokens += cost
    return [*chunks, Chunk("\n".join(lines), tokens, tuple(pieces))] if pieces else chunks


def _pieces(tellings: Sequence[Telling], most: int, count: Count) -> Iterator[tuple[str, Piece, int]]:
    for telling in tellings:
        whole = count(telling.body)
        size = min(int(_EVEN * whole / ceil(whole / (_FILLED * most))) + 1, most) if whole > most else whole
        places = [(0, len(telling.body), whole)] if whole <= most else list(_cut(telling.body, size, count))
        for number, (start, end, cost) in enumerate(places, 1):
            part = f", part {number} of {len(places)}{_within(telling.body, start)}" if len(places) > 1 else ""
            body = telling.body[start:end]
            yield f"[{telling.heading}{part}]\n{body}", Piece(telling.turn, start, end), cost + _HEADING_TOKENS


def _within(body: str, start: int) -> str:
    """In what a part begins, by the line of ours that stands above it: what follows may be the middle of a file."""
    above = [line for line in body[:start].splitlines() if line.startswith("[")]
    return f", within {above[-1][1:-1][:_LONGEST_WITHIN]}" if above and above[-1].endswith("]") else ""


def _cut(text: str, most: int, count: Count) -> Iterator[tuple[int, int, int]]:
    """A long text in runs of lines; a line that is too long by itself is cut inside."""
    start = end = tokens = 0
    for line in text.splitlines(keepends=True):
        for part in _parts(line, most, count):
            cost = count(part)
            if end > start and tokens + cost > most:
                yield start, end, tokens
                start, tokens = end, 0
            end += len(part)
            tokens += cost
    if end > start:
        yield start, end, tokens


def _parts(line: str, most: int, count: Count) -> Iterator[str]:
    while line and count(line) > most:
        length = _longest(line, most, count)
        yield line[:length]
        line = line[length:]
    if line:
        yield line


def _longest(line: str, most: int, count: Count) -> int:
    """How many characters of a line stay within so many tokens; one at least, or nothing would ever end."""
    low, high = 1, min(len(line) - 1, most * 8)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(line[:middle]) <= most else (low, middle - 1)
    return max(low, 1)


def measure_coverage(tellings: Sequence[Telling], shown: Sequence[Chunk], count: Count) -> Coverage:
    """What these chunks show of the tellings, by the places in their texts."""
    places: dict[int, list[tuple[int, int]]] = {}
    for piece in (piece for chunk in shown for piece in chunk.pieces):
        places.setdefault(piece.turn, []).append((piece.start, piece.end))
    tokens = covered = reasoning = 0
    for telling in tellings:
        cost, length = count(telling.body), len(telling.body)
        tokens += cost
        seen = _length(places.get(telling.turn, ()))
        covered += cost if seen == length else cost * seen // length
        reasoning += telling.reasoning // 4
    return Coverage(tokens, covered, len(shown), reasoning)


def _length(places: Sequence[tuple[int, int]]) -> int:
    """How many characters the places cover, each counted once."""
    reached = seen = 0
    for start, end in sorted(places):
        seen += max(end - max(start, reached), 0)
        reached = max(reached, end)
    return seen


def map_parallel(
    work: Callable[[_Item], _Answer], items: Sequence[_Item], limit: int, stop: Callable[[], None] = lambda: None
) -> list[_Answer]:
    """The answer to each item in order, so many at once. When one raises, those not begun are not begun.

    When the user interrupts it, `stop` ends those that run.
    """
    if len(items) < 2 or limit < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(max_workers=min(limit, len(items)), thread_name_prefix="summary") as pool:
        waiting = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in waiting]
        except KeyboardInterrupt:
            stop()
            raise
        finally:
            for future in waiting:
                future.cancel()
