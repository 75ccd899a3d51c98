"""Results that say the same again. The newest one is kept; the older ones point to it."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from msgspec import Struct

from context_compactor.messages.turn import ToolUse

_SHORT = 200
_LIKENESS = 0.9
_MOST_LINES = 4_000
_MOST_CANDIDATES = 3


class Repeats(Struct, frozen=True):
    """Earlier exchanges with the later one that says the same word for word, or nearly the same."""

    equal: dict[int, int]
    alike: dict[int, int]


def find_repeats(exchanges: Iterable[ToolUse]) -> Repeats:
    """Each result that a later one repeats."""
    repeats = Repeats({}, {})
    newest: dict[str, int] = {}
    sketches: dict[int, list[tuple[int, frozenset[int]]]] = {}
    for exchange in exchanges:
        text = exchange.result.text if exchange.result else ""
        if len(text) < _SHORT:
            continue
        if text in newest:
            repeats.equal[newest[text]] = exchange.number
        newest[text] = exchange.number
        lines = _sketch(text)
        bucket = sketches.setdefault(min(lines), [])
        for known, earlier in bucket[-_MOST_CANDIDATES:]:
            if known not in repeats.equal and _likeness(lines, earlier) >= _LIKENESS:
                repeats.alike[known] = exchange.number
        bucket.append((exchange.number, lines))
    return repeats


def _sketch(text: str) -> frozenset[int]:
    """The lines of a text as numbers. Not `hash`: that differs from run to run, and so would the plan."""
    lines = text.encode("utf-8", "replace").split(b"\n", _MOST_LINES)
    return frozenset(map(crc32, filter(None, lines)))


def _likeness(one: frozenset[int], other: frozenset[int]) -> float:
    if min(len(one), len(other)) < _LIKENESS * max(len(one), len(other)):
        return 0.0
    return len(one & other) / len(one | other)
