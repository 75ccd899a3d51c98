"""What of a user's message was typed, and what was pasted in: logs, code, JSON, traces, and lines nobody types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec import Struct

# A paste is worth shortening from here on.
LEAST_PASTE = 600
# Nobody types a line as long as this, nor a paragraph of so many lines, nor more prose than this in one message.
_LONGEST_LINE = 4_000
_MOST_LINES = 12
MOST_TYPED = 8_000
# So many sentences inside a run of other lines may have been typed there; where there are more, they belong to it.
_MOST_REMARKS = 5
_PROSE_SHARE = 0.93
_LINE_READ = 400

_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})")
_LISTED = re.compile(r"\s{0,3}(?:[-*+•] |\d{1,3}[.)] )")
_CODE_START = re.compile(
    r"(?: {4}|\t|//|/\*|\* |--|#!|<[\w/!?]|[\[{}\]()]|[\w.]+\(|at |\$ |> ?\w+ |\+\+\+|@@|[-+][^\s]|\|)"
)
_STAMP = re.compile(
    r"\[?(?:\d{4}[-/]\d\d|\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:|(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b)"
)
_CODE_END = tuple("{}[];,()\\<=|")
# Letters of any script, spaces, and the signs between words; the later ranges are those of other scripts.
_PLAIN = re.compile(r"[^\W\d_]|[ .,:;!?'\"()\u2010-\u2027\u3000-\u303f\uff00-\uffef-]")
_SENTENCE_END = re.compile(r"[.?!:\u2026\u3002\uff01\uff1a\uff1f]$")


class TextSpan(Struct, frozen=True):
    """A stretch of a text: typed by its user, or pasted in. All pieces of a text together are the text."""

    text: str
    is_pasted: bool


def split_pasted(text: str) -> list[TextSpan]:
    """A text as the pieces that were typed and those that were pasted."""
    marked = [mark for paragraph in _paragraphs(text) for mark in _marked(paragraph)]
    return _joined(marked)


def without_ends(pieces: Sequence[TextSpan]) -> list[TextSpan]:
    """The pieces with the middle of all that counts as typed counted as pasted: what is left is no more than is typed.

    The first and the last words are those with which somebody says what the rest is for.
    """
    text = "".join(piece.text for piece in pieces)
    first = _end_of_opening(text, MOST_TYPED // 2)
    last = max(len(text) - _end_of_opening(text[:-MOST_TYPED:-1], MOST_TYPED // 2), first)
    whole = (TextSpan(text[:first], False), TextSpan(text[first:last], True), TextSpan(text[last:], False))
    return [piece for piece in whole if piece.text]


def _end_of_opening(text: str, most: int) -> int:
    """The end of the last line that ends within so many characters; 0 when the first one is longer."""
    return text.rfind("\n", 0, most) + 1 if len(text) > most else len(text)


def _joined(marked: Sequence[tuple[str, bool]]) -> list[TextSpan]:
    """Neighbours of one sort as one piece; what is too short to be worth it counts as typed."""
    runs = [("".join(line for line, _ in group), pasted) for pasted, group in groupby(marked, key=lambda mark: mark[1])]
    large = [(run, pasted and len(run) >= LEAST_PASTE) for run, pasted in runs]
    return [
        TextSpan("".join(run for run, _ in group), pasted) for pasted, group in groupby(large, key=lambda mark: mark[1])
    ]


class _Paragraph(Struct, frozen=True):
    lines: list[str]
    is_fenced: bool = False


def _paragraphs(text: str) -> Iterator[_Paragraph]:
    """Lines between blank ones, each with its line end; the blank lines belong to the paragraph before them."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        opening = _FENCE.match(line)
        mark = opening.group().strip()[:3] if opening else ""
        if fence:
            lines.append(line)
            if mark == fence and not line.strip().strip("`~"):
                yield _Paragraph(lines, is_fenced=True)
                lines, fence = [], ""
            continue
        if mark or (lines and not lines[-1].strip() and line.strip()):
            if lines:
                yield _Paragraph(lines)
            lines = []
        fence = mark
        lines.append(line)
    if lines:
        yield _Paragraph(lines, is_fenced=bool(fence))


def _marked(paragraph: _Paragraph) -> list[tuple[str, bool]]:
    """Each line of a paragraph, and whether it was pasted."""
    lines = paragraph.lines
    if paragraph.is_fenced:
        return [(line, True) for line in lines]
    prose = [is_prose(line) for line in lines]
    told = [line for line in lines if line.strip()]
    listed = sum(_LISTED.match(line) is not None for line in told)
    is_long = len(told) > _MOST_LINES and listed * 2 < len(told)
    if not is_long and sum(prose) * 2 > len(lines):
        return [(line, len(line) > _LONGEST_LINE) for line in lines]
    remarks = {at for at, line in enumerate(lines) if prose[at] and _is_sentence(line)}
    remarks = remarks if len(remarks) <= _MOST_REMARKS else set()
    first = next((at for at in range(min(3, len(lines))) if not prose[at]), min(3, len(lines)))
    last = next((at for at in range(min(3, len(lines))) if not prose[-1 - at]), min(3, len(lines)))
    typed = {*remarks, *range(first), *range(len(lines) - last, len(lines))}
    return [(line, at not in typed or len(line) > _LONGEST_LINE) for at, line in enumerate(lines)]


def is_prose(line: str) -> bool:
    """Whether a line reads like something that a person writes to another; a blank one may stand anywhere."""
    text = line[:_LINE_READ].rstrip()
    if not text:
        return True
    if len(line) > _LONGEST_LINE or _CODE_START.match(text) or _STAMP.match(text) or text.endswith(_CODE_END):
        return False
    return len(_PLAIN.findall(text)) >= _PROSE_SHARE * len(text)


def _is_sentence(line: str) -> bool:
    text = line.strip()
    return _SENTENCE_END.search(text) is not None and (len(text.split()) >= 4 or not text.isascii())
