"""A text taken apart into passages: sentences, list items, lines of short blocks, each under its heading."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from context_compactor.handoff.rules import Rank, rank_of, shown_of_block

# What ends a text of which not everything could be shown.
MARK = "[… more was left out]"

_FENCE = "```"
_HEADING = re.compile(r"\s{0,3}#{1,6} \S|\s{0,3}\*\*[^*\n]{2,80}\*\*:?\s*$|[^|\n]{2,80}:(?:\*\*)?\s*$")
_BARE = re.compile(r"[\s|:=*_#>-]*$")
_ITEM = re.compile(r"\s*(?:[-*+•|]|\(?\d{1,3}[.)])\s")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+(?=[\"'(`*\[]{0,2}[A-Z0-9])|(?<=[\u3002\uff01\uff1f])(?=.)")
_WRAPPED = 40


class Passage(Struct, frozen=True):
    """The least that is shown or left out. Passages of one line stand beside each other.

    `at` is its place among all passages; a block is code or output that the text quotes.
    """

    at: int
    line: int
    text: str
    rank: Rank
    heading: str = ""
    is_block: bool = False


class _Line(Struct, frozen=True):
    text: str
    is_block: bool = False


def passages_of(text: str) -> list[Passage]:
    """Every passage in order. A heading stands with the passages below it, or by itself when there are none."""
    found: list[Passage] = []
    heading, is_bare = "", False
    for number, line in enumerate((*_lines(text), None)):
        if line is not None and not _is_heading(line):
            parts = _parts(line, heading)
            for sentence, rank in parts:
                found.append(Passage(len(found), number, sentence, rank, heading, line.is_block))
            is_bare = is_bare and not parts
            continue
        if is_bare:
            found.append(Passage(len(found), number, heading, rank_of(heading)))
        heading, is_bare = ("" if line is None else line.text), True
    return found


def _lines(text: str) -> Iterator[_Line]:
    """Fenced blocks and lines; what was wrapped stays together."""
    fence: list[str] | None = None
    held = ""
    for line in (line for line in text.split("\n") if line != MARK):
        if line.lstrip().startswith(_FENCE):
            yield _Line(held) if fence is None else _Line("\n".join(fence), is_block=True)
            fence, held = ([] if fence is None else None), ""
        elif fence is not None:
            fence.append(line)
        elif held and _goes_on(held, line):
            held = f"{held}\n{line}"
        else:
            yield _Line(held)
            held = line
    yield _Line(held) if fence is None else _Line("\n".join(fence), is_block=True)


def _goes_on(before: str, line: str) -> bool:
    """Whether a line goes on with the sentence before it, or shows the code of a stack frame."""
    last = before.rpartition("\n")[2]
    if last.lstrip().startswith('File "'):
        return line.startswith("    ")
    return len(last) >= _WRAPPED and line[:1].islower() and last.rstrip()[-1:] not in ".!?:;|"


def _is_heading(line: _Line) -> bool:
    return not line.is_block and bool(_HEADING.match(line.text)) and not _ITEM.match(line.text)


def _parts(line: _Line, heading: str) -> list[tuple[str, Rank]]:
    if line.is_block:
        shown = shown_of_block(line.text)
        gone = [] if "\n".join(shown) == line.text else [(line.text, Rank.OUT)]
        return [*((each, Rank.NAMED) for each in shown), *gone]
    if _BARE.match(line.text):
        return []
    sentences = [line.text] if _ITEM.match(line.text) else _SENTENCE.split(line.text)
    return [(each, rank_of(each, heading)) for each in sentences if each.strip()]
