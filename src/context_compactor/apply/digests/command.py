"""Any command's output: exit code, complaints with counts, the first and the last lines."""

from __future__ import annotations

import re

from context_compactor.apply.digests.text import TIMES, clip, counted, merged, to_lines
from context_compactor.classify.envelope import Output
from context_compactor.messages.message import ToolCall

_COMPLAINTS = (
    *"error fatal panic exception failed failure denied cannot undefined unresolved warning deprecated refused".split(),
    *("could not", "not found", "timed out", "no such"),
)
_NOISE = re.compile(
    r"\s*(?:Downloading|Collecting|Using cached|Requirement already|Preparing|Building wheel|Unpacking|Selecting"
    r"|Get:\d|Hit:\d|Reading |remote: (?:Count|Compress|Enumerat)|Receiving|Resolving|Fetched|Compiling \S+ v"
    r"|\d+%|[-=_*#.~+ ]{4,}$|[|/\\-]$)"
)
_DIGITS = re.compile(r"\d+")
_MOST_COMPLAINTS = 8
_FIRST = 2
_LAST = 5
_LINE = 160


def digest_command(_: ToolCall | None, output: Output) -> list[str]:
    """Exit code and size, then what complains, then how it begins and ends."""
    return telling_lines(output)


def telling_lines(output: Output) -> list[str]:
    """The lines of an output that say what came of it."""
    lines = [line for line in to_lines(output.body) if line.strip()]
    more = min(len(lines) // 20, 4)
    first = _telling(lines, _FIRST + more // 2)
    last = _telling(lines[:0:-1], _LAST + more)[::-1]
    complaints = _complaints(lines)
    told = {_key(line.partition(f"  {TIMES}")[0]) for line in complaints}
    begin = [line for line in first if _key(line) not in told]
    end = [line for line in last if _key(line) not in told and line not in first]
    gap = ["…"] if len(lines) > len(first) + len(last) else []
    return [_heading(output, len(lines)), *merged(begin), *complaints, *gap, *merged(end)] if lines else []


def _telling(lines: list[str], count: int) -> list[str]:
    """The first few lines that are more than progress and rulers."""
    found = (line for line in lines[:200] if not _NOISE.match(line))
    return [clip(line, _LINE) for line, _ in zip(found, range(count), strict=False)]


def _heading(output: Output, count: int) -> str:
    code = f"exit code {output.exit_code}, " if output.exit_code is not None else ""
    return f"{code}{counted(count, 'line')}"


def _key(line: str) -> str:
    """The same for lines that differ only in numbers."""
    return _DIGITS.sub("0", line)


def _complaints(lines: list[str]) -> list[str]:
    """Complaints that differ only in numbers count as one; the first is shown."""
    lowered = "\n".join(lines).lower()
    words = [word for word in _COMPLAINTS if word in lowered]
    shown: dict[str, str] = {}
    counts: dict[str, int] = {}
    for line in lines if words else ():
        small = line.lower()
        if any(word in small for word in words) and not _NOISE.match(line):
            text = clip(line, _LINE)
            key = _key(text)
            shown.setdefault(key, text)
            counts[key] = counts.get(key, 0) + 1
    found = [f"{line}  {TIMES}{counts[key]}" if counts[key] > 1 else line for key, line in shown.items()]
    half = _MOST_COMPLAINTS // 2
    return found[:half] + found[half:][-half:]
