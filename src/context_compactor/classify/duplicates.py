"""Results that say the same again. The newest one is kept; the older ones point to it."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from context_compactor.messages.turn import Exchange

_SHORT = 200
_TELLING = 12
_LIKENESS = 0.9
_MOST_LINES = 4_000


def find_duplicates(exchanges: Iterable[Exchange]) -> dict[int, int]:
    """Each result that a later one repeats, word for word or nearly, with the number of that later one."""
    found: dict[int, int] = {}
    newest: dict[int, int] = {}
    sketches: dict[int, list[tuple[int, frozenset[int]]]] = {}
    for exchange in exchanges:
        text = exchange.result.text if exchange.result else ""
        if len(text) < _SHORT:
            continue
        key = hash(text)
        if key in newest:
            found[newest[key]] = exchange.number
        newest[key] = exchange.number
        lines = _sketch(text)
        for mark in sorted(lines)[:2]:
            for known, earlier in sketches.get(mark, ()):
                if known not in found and _likeness(lines, earlier) >= _LIKENESS:
                    found[known] = exchange.number
            sketches.setdefault(mark, []).append((exchange.number, lines))
    return {earlier: later for earlier, later in found.items() if earlier != later}


def _sketch(text: str) -> frozenset[int]:
    """The lines of a text as numbers. Not `hash`: that differs from run to run, and so would the plan."""
    lines = text.encode("utf-8", "replace").split(b"\n", _MOST_LINES)
    return frozenset(crc32(line) for line in lines if len(line) > _TELLING)


def _likeness(one: frozenset[int], other: frozenset[int]) -> float:
    if min(len(one), len(other)) < _LIKENESS * max(len(one), len(other)):
        return 0.0
    return len(one & other) / len(one | other)
