"""Any command's output: exit code, complaints with counts, the first and the last lines."""

from __future__ import annotations

import re
from itertools import islice

from context_compactor.apply.digests.text import TIMES, clip, counted, to_lines
from context_compactor.classify.envelope import Output
from context_compactor.messages.message import ToolCall

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


def digest_command(_: ToolCall | None, output: Output) -> list[str]:
    """Exit code and size, then what complains, then how it begins and ends."""
    return telling_lines(output)


def telling_lines(output: Output) -> list[str]:
    """The lines of an output that say what came of it, in their order; complaints that repeat carry a count."""
    lines = [line for line in to_lines(output.body) if line.strip()]
    more = min(len(lines) // 20, 4)
    counts, complaints = _complaints(lines)
    first = _telling(lines, range(min(len(lines), _ENDS_READ)), _FIRST + more // 2)
    last = _telling(lines, range(len(lines) - 1, max(len(lines) - _ENDS_READ, 0) - 1, -1), _LAST + more)
    shown: dict[str, str] = {}
    for at in sorted({*first, *complaints, *last}):
        text = clip(lines[at], _LINE)
        shown.setdefault(_key(text) if _key(text) in counts else text, text)
    kept = [f"{text}  {TIMES}{counts[key]:,}" if counts.get(key, 1) > 1 else text for key, text in shown.items()]
    return [_heading(output, len(lines)), *kept] if lines else []


def _telling(lines: list[str], order: range, count: int) -> list[int]:
    """Where the first few lines are that are more than progress and rulers."""
    return list(islice((at for at in order if not NOISE.match(lines[at])), count))


def _heading(output: Output, count: int) -> str:
    code = f"exit code {output.exit_code}, " if output.exit_code is not None else ""
    return f"{code}{counted(count, 'line')}"


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
            key = _key(clip(line, _LINE))
            places += [] if key in counts else [at]
            counts[key] = counts.get(key, 0) + 1
    half = _MOST_COMPLAINTS // 2
    return counts, places[:half] + places[half:][-half:]
