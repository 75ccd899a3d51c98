"""A log as its levels, its span of time, and its errors and warnings with counts."""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

from context_compactor.apply.digests.numbered import read_source
from context_compactor.apply.digests.text import TIMES, clip, counted, to_lines
from context_compactor.classify.envelope import Output
from context_compactor.messages.message import ToolCall

# Written out in three cases, since a pattern that ignores case is several times slower.
_LEVEL_WORDS = {
    word: level
    for level, names in enumerate(
        ("fatal critical panic", "error err severe", "warn warning", "info notice", "debug trace")
    )
    for name in names.split()
    for word in (name, name.upper(), name.capitalize())
}
_LEVEL = re.compile(rf"(?:{'|'.join(sorted(_LEVEL_WORDS, reverse=True))})\b")
_NAMES = ("fatal", "error", "warning", "info", "debug")
_TIME = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
)
_CHANGING = re.compile(r"0x[0-9a-f]{1,40}|[0-9a-f-]{8,40}|\d+", re.IGNORECASE)
_MOST = 10
_LEVEL_WITHIN = 160
_PLAIN_LEVEL = 9
_WORTH = 2


class _Tally(Struct):
    """Lines that differ only in numbers: the first of them, how many, how bad."""

    line: str
    level: int
    count: int = 0


def digest_log(_: ToolCall | None, output: Output) -> list[str]:
    """Counts by level, first and last time, then errors and warnings merged with counts, then the last line."""
    lines = [line for line in read_source(to_lines(output.body)).lines if line.strip()]
    if not lines:
        return []
    levels, tallies = _tally(lines)
    return [_heading(lines, levels), *_merged(tallies), f"last: {clip(lines[-1], 170)}"]


def _tally(lines: list[str]) -> tuple[Counter[str], list[_Tally]]:
    """Errors and warnings; in a log without levels every line counts as one."""
    found = [(line, _level_of(line)) for line in lines]
    levels = Counter(_NAMES[level] for _, level in found if level < _PLAIN_LEVEL)
    worth = [(line, level) for line, level in found if level <= _WORTH]
    tallies: dict[str, _Tally] = {}
    for line, level in worth if levels else [(line, _PLAIN_LEVEL) for line in lines]:
        key = f"{level}{_CHANGING.sub('0', line[:200])}"
        tallies.setdefault(key, _Tally(line, level)).count += 1
    return levels, list(tallies.values())


def _level_of(line: str) -> int:
    match = _LEVEL.search(line, 0, _LEVEL_WITHIN)
    if match is None or (match.start() and line[match.start() - 1].isalnum()):
        return _PLAIN_LEVEL
    return _LEVEL_WORDS[match.group()]


def _heading(lines: list[str], levels: Counter[str]) -> str:
    told = ", ".join(f"{name} {levels[name]:,}" for name in _NAMES if levels[name])
    return "; ".join(part for part in (counted(len(lines), "line"), told, _span(lines)) if part)


def _span(lines: list[str]) -> str:
    first = next((match.group() for line in lines[:50] if (match := _TIME.search(line, 0, 120))), "")
    last = next((match.group() for line in reversed(lines[-50:]) if (match := _TIME.search(line, 0, 120))), "")
    return f"{first} to {last}" if first and last else ""


def _merged(tallies: list[_Tally]) -> list[str]:
    """Worst level first, then the most frequent."""
    ranked = sorted(tallies, key=lambda tally: (tally.level, -tally.count))
    lines = [clip(each.line, 170) + (f"  {TIMES}{each.count:,}" if each.count > 1 else "") for each in ranked[:_MOST]]
    left = len(ranked) - len(lines)
    return [*lines, f"… {counted(left, 'more kind')} of line"] if left > 0 else lines
