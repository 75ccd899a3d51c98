"""Output of any command and of logs: exit code, complaints and levels with counts, the first and the last lines."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

from msgspec import Struct

from context_compactor.dialects.messages import ToolCall
from context_compactor.facts.outputs import ToolOutput, read_numbered_lines
from context_compactor.text import TIMES, clip_line, plural, to_lines

_COMPLAINTS = (
    *"error fatal panic exception failed failure denied cannot undefined unresolved warning deprecated refused".split(),
    *("could not", "not found", "timed out", "no such"),
)
# Progress and rulers.
NOISE = re.compile(
    r"\s*(?:Downloading|Collecting|Using cached|Requirement already|Preparing (?:to unpack|metadata|wheel)"
    r"|Building wheel|Unpacking|Selecting previously|Get:\d|Hit:\d|Reading (?:package|state|database)"
    r"|Fetched|Compiling \S+ v|npm http|remote: (?:Count|Compress|Enumerat)|Receiving objects|Resolving deltas"
    r"|Updating files: +\d|\d+%|[-=_*#.~+ ]{4,}$|[|/\\-]$|[\u2501\u2500\u2588\u2591\u2592]{8,})"
)
_DIGITS = re.compile(r"\d+")
_MOST_COMPLAINTS = 8
_FIRST = 2
_LAST = 5
_ENDS_READ = 200
_LINE = 160


def digest_command(_: ToolCall | None, output: ToolOutput) -> list[str]:
    """Exit code and size, then what complains, then how it begins and ends."""
    return informative_lines(output)


def informative_lines(output: ToolOutput) -> list[str]:
    """The lines of an output that say what came of it, in their order; complaints that repeat carry a count."""
    lines = [line for line in to_lines(output.body) if line.strip()]
    more = min(len(lines) // 20, 4)
    counts, complaints = _complaints(lines)
    first = _telling(lines, range(min(len(lines), _ENDS_READ)), _FIRST + more // 2)
    last = _telling(lines, range(len(lines) - 1, max(len(lines) - _ENDS_READ, 0) - 1, -1), _LAST + more)
    shown: dict[str, str] = {}
    for at in sorted({*first, *complaints, *last}):
        text = clip_line(lines[at], _LINE)
        shown.setdefault(_key(text) if _key(text) in counts else text, text)
    kept = [f"{text}  {TIMES}{counts[key]:,}" if counts.get(key, 1) > 1 else text for key, text in shown.items()]
    code = f"exit code {output.exit_code}, " if output.exit_code is not None else ""
    return [f"{code}{plural(len(lines), 'line')}", *kept] if lines else []


def _telling(lines: list[str], order: range, count: int) -> list[int]:
    """Where the first few lines are that are more than progress and rulers."""
    return list(islice((at for at in order if not NOISE.match(lines[at])), count))


def _key(line: str) -> str:
    """The same for lines that differ only in numbers."""
    return _DIGITS.sub("0", line)


def _complaints(lines: list[str]) -> tuple[dict[str, int], list[int]]:
    """How often each complaint comes, and where the first and the last few stand for the first time."""
    lowered = "\n".join(lines).lower()
    words = [word for word in _COMPLAINTS if word in lowered]
    counts: dict[str, int] = {}
    places: list[int] = []
    for at, line in enumerate(lines) if words else ():
        small = line.lower()
        if any(word in small for word in words) and not NOISE.match(line):
            key = _key(clip_line(line, _LINE))
            places += [] if key in counts else [at]
            counts[key] = counts.get(key, 0) + 1
    half = _MOST_COMPLAINTS // 2
    return counts, places[:half] + places[half:][-half:]


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


class _Repeated(Struct):
    """Lines that differ only in numbers: the first of them, how many, how bad."""

    line: str
    level: int
    count: int = 0


def digest_log(_: ToolCall | None, output: ToolOutput) -> list[str]:
    """Counts by level, first and last time, then errors and warnings merged with counts, then the last line."""
    lines = [line for line in read_numbered_lines(to_lines(output.body)).lines if line.strip()]
    if not lines:
        return []
    levels, repeats = _count_repeats(lines)
    counts = ", ".join(f"{name} {levels[name]:,}" for name in _NAMES if levels[name])
    heading = "; ".join(part for part in (plural(len(lines), "line"), counts, _span(lines)) if part)
    return [heading, *_merged(repeats), f"last: {clip_line(lines[-1], 170)}"]


def _count_repeats(lines: list[str]) -> tuple[Counter[str], list[_Repeated]]:
    """Errors and warnings; in a log without levels every line counts as one."""
    found = [(line, _level_of(line)) for line in lines]
    levels = Counter(_NAMES[level] for _, level in found if level < _PLAIN_LEVEL)
    worth = [(line, level) for line, level in found if level <= _WORTH]
    repeats: dict[str, _Repeated] = {}
    for line, level in worth if levels else [(line, _PLAIN_LEVEL) for line in lines]:
        key = f"{level}{_CHANGING.sub('0', line[:200])}"
        repeats.setdefault(key, _Repeated(line, level)).count += 1
    return levels, list(repeats.values())


def _level_of(line: str) -> int:
    match = _LEVEL.search(line, 0, _LEVEL_WITHIN)
    if match is None or (match.start() and line[match.start() - 1].isalnum()):
        return _PLAIN_LEVEL
    return _LEVEL_WORDS[match.group()]


def _span(lines: list[str]) -> str:
    first = next((match.group() for line in lines[:50] if (match := _TIME.search(line, 0, 120))), "")
    last = next((match.group() for line in reversed(lines[-50:]) if (match := _TIME.search(line, 0, 120))), "")
    return f"{first} to {last}" if first and last else ""


def _merged(repeats: list[_Repeated]) -> list[str]:
    """Worst level first, then the most frequent."""
    ranked = sorted(repeats, key=lambda each: (each.level, -each.count))
    lines = [
        clip_line(each.line, 170) + (f"  {TIMES}{each.count:,}" if each.count > 1 else "") for each in ranked[:_MOST]
    ]
    left = len(ranked) - len(lines)
    return [*lines, f"… {plural(left, 'more kind')} of line"] if left > 0 else lines
