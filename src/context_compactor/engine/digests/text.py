"""Lines in, lines out: what every digest needs to read a text and to write a short one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from context_compactor.text import clip_line

LINE_LIMIT = 190
TIMES = "\N{MULTIPLICATION SIGN}"
# No digest looks further into one line; a minified file or a base64 blob is one line.
_LINE_READ = 1000
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,300}(?:\x07|\x1b\\)|[@-Z\\-_])")


def to_lines(text: str) -> list[str]:
    """The lines of a text as a terminal would leave them: no colours, no overwritten progress."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    lines = text.replace("\r\n", "\n").split("\n") if "\r" in text else text.split("\n")
    if "\r" in text:
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    if len(text) > _LINE_READ and max(map(len, lines)) > _LINE_READ:
        return [line[:_LINE_READ] for line in lines]
    return lines


def clip(text: str, limit: int = LINE_LIMIT) -> str:
    """A text as one line of at most `limit` characters; a cut shows."""
    return clip_line(text, limit)


def in_room(names: Iterable[str], room: int = LINE_LIMIT, separator: str = ", ") -> str:
    """As many names as one line has room for, and how many are left out."""
    every = list(names)
    kept: list[str] = []
    used = 0
    for name in every:
        used += len(name) + len(separator)
        if used > room - 10:
            break
        kept.append(name)
    left = len(every) - len(kept)
    return separator.join(kept) + (f" … {left:,} more" if left else "")


def wrapped(names: Sequence[str], lines: int, indent: str = "", separator: str = ", ") -> list[str]:
    """Names in at most `lines` lines; the last one says how many are left out."""
    out: list[str] = []
    line: list[str] = []
    used, shown = 0, 0
    for name in names:
        if line and used + len(name) > LINE_LIMIT - 30 - len(indent):
            out.append(indent + separator.join(line))
            line, used = [], 0
            if len(out) == lines:
                break
        line.append(name)
        shown += 1
        used += len(name) + len(separator)
    else:
        out += [indent + separator.join(line)] if line else []
    if shown < len(names) and out:
        out[-1] += f" … {len(names) - shown:,} more"
    return out


def counted(number: int, one: str, several: str = "") -> str:
    """A number with its noun: 1 file, 1,200 files."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def merged(lines: Iterable[str]) -> list[str]:
    """Equal lines once, with how often they came."""
    counts: dict[str, int] = {}
    for line in lines:
        counts[line] = counts.get(line, 0) + 1
    return [f"{line}  {TIMES}{count}" if count > 1 else line for line, count in counts.items()]
