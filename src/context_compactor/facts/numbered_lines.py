"""Files as agents show them: with line numbers in front, a heading above, a note below."""

from __future__ import annotations

import re
from itertools import pairwise

from msgspec import Struct

# Read over the whole text at once: a leading newline instead of `^` lets the engine jump from line to line.
_STYLES = (
    re.compile(r"\n *(\d{1,9})(?:→|\t)([^\n]*)"),
    re.compile(r"\n *(\d{1,9}) ?\| ?([^\n]*)"),
    re.compile(r"\nL?(\d{1,9}): ?([^\n]*)"),
)
# Where an agent left out the middle: lines behind it have lost their numbers.
_GAP = re.compile(r"…\s?\d+ (?:tokens|chars|characters|lines)|\d+ characters (?:elided|truncated)|<elided_chars>")


class NumberedLines(Struct, frozen=True):
    """A file's lines, and the number of each in the file; 0 where it cannot be known."""

    lines: list[str]
    numbers: list[int]

    @property
    def is_whole_from_start(self) -> bool:
        """Whether the text begins with the file's first line and leaves none out."""
        return bool(self.numbers) and self.numbers[0] == 1 and self.numbers[-1] == len(self.numbers)


def read_numbered_lines(lines: list[str], first: int = 1) -> NumberedLines:
    """Take the line numbers off; without any, count from `first`, or not at all when it is 0."""
    style = next((style for style in _STYLES if _is_in_style(lines[:12], style)), None)
    if style is None:
        return NumberedLines(lines, _count(lines, first))
    found = style.findall("\n" + "\n".join(lines))
    return NumberedLines([text for _, text in found], [int(number) for number, _ in found])


def _count(lines: list[str], first: int) -> list[int]:
    if first == 0:
        return [0] * len(lines)
    text = "\n".join(lines)
    cut = any(word in text for word in ("truncated", "elided", " lines"))
    gap = next((at for at, line in enumerate(lines) if _GAP.search(line)), len(lines)) if cut else len(lines)
    return [*range(first, first + gap), *[0] * (len(lines) - gap)]


def _is_in_style(lines: list[str], style: re.Pattern[str]) -> bool:
    """Numbered: the first numbered lines follow one another, and nearly all lines are."""
    numbers = [int(number) for number, _ in style.findall("\n" + "\n".join(lines))]
    enough = numbers and len(numbers) >= max(min(3, len(lines)), len(lines) - 4)
    return bool(enough) and all(after == before + 1 for before, after in pairwise(numbers))
