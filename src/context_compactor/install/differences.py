"""A change as people read it: a unified diff."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import unified_diff
from itertools import takewhile

from context_compactor.install.planning import FilePlan

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_LONGEST_LINE = 300
_AROUND = 40
_NO_END = "\\ No newline at end of file"


def diff_lines(plan: FilePlan) -> Iterator[str]:
    """The lines of the diff of one settings file. Of a long line only what stands around the change is shown.

    Some programs write a whole file into one line, and there may be secrets in it.
    """
    before, after = _lines(plan.change.before), _lines(plan.change.after)
    name = str(plan.path)
    names = ("/dev/null" if plan.change.before is None else name, "/dev/null" if plan.change.after is None else name)
    lines = list(unified_diff(before, after, *names))
    for number, line in enumerate(lines):
        text = line.rstrip("\r\n")
        yield text if number < 2 else _short(text, _partner(lines, number))
        if not line.endswith("\n"):
            yield _NO_END


def _partner(lines: list[str], number: int) -> str:
    """The line that stands in the place of this one, or stood there."""
    at = {"-": number + 1, "+": number - 1}.get(lines[number][0], number)
    found = lines[at].rstrip("\r\n") if 2 <= at < len(lines) else ""
    return found if {found[:1], lines[number][0]} == {"-", "+"} else ""


def _lines(content: bytes | None) -> list[str]:
    return _LINE.findall((content or b"").decode("utf-8", "replace"))


def _short(line: str, other: str) -> str:
    if len(line) <= _LONGEST_LINE:
        return line
    start = _in_common(line[1:], other[1:])
    end = _in_common(line[:start:-1], other[:start:-1])
    first, last = max(1, 1 + start - _AROUND), min(len(line), len(line) - end + _AROUND)
    shown = line[first:last] if other else f"{line[1 : 1 + _AROUND]} … {line[-_AROUND:]}"
    left = len(line) - len(shown)
    return f"{line[0]}{'… ' if first > 1 else ''}{shown}{' …' if last < len(line) else ''} ({left:,} more characters)"


def _in_common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
