"""Whether a file is still what a tool has shown of it.

Tools put numbers before the lines and notes around them, show some lines only, or leave out the end of a long file.
"""

from __future__ import annotations

import re

from msgspec import Struct

from context_compactor.apply.digests.numbered import Source, read_source
from context_compactor.archive.archive import Original
from context_compactor.classify.envelope import unwrap

# Reading tools cut lines and files that are longer.
_LONG_LINE, _LONG_FILE = 1_900, 2_000
_RANGE = re.compile(r" \((\d{1,9})-(\d{0,9})\)$")
_OPENING = re.compile(r"\A.{0,2000}?<output_head>\n", re.DOTALL)
# Where a tool says that it has left something out. Its notes are short.
_GAP = re.compile(
    r"</output_head>|.*…\s?\d+ (?:tokens|chars|characters|lines)|.*\d (?:characters|lines|bytes) (?:elided|truncated)"
    r"|\s*[\[(<.…]{1,6}.{0,80}\b(?:truncated|omitted|left out|elided|more lines)\b",
    re.IGNORECASE,
)
_LONG_NOTE = 300
_NOTE = re.compile(r"Shell cwd was reset to |\s*$")


class Shown(Struct, frozen=True):
    """What a tool has shown of a file.

    `first` and `last` are the lines that were asked for: 0 and None where that was the whole file or cannot be told.
    `is_cut` says that the end was left out, `is_mixed` that a command may have shown other things too.
    """

    lines: list[str]
    first: int = 0
    last: int | None = None
    is_cut: bool = False
    is_mixed: bool = False


def read_shown(original: Original) -> Shown:
    """Take off what a tool has put around the lines of a file."""
    body = unwrap(original.text).body.replace("\r\n", "\n")
    lines = _OPENING.sub("", body, count=1).split("\n")
    while lines and _NOTE.match(lines[-1]):
        lines.pop()
    gap = next((at for at, line in enumerate(lines) if len(line) < _LONG_NOTE and _GAP.match(line)), None)
    asked = _RANGE.search(original.summary)
    return Shown(
        lines if gap is None else lines[: max(gap - 1, 0)],  # the line before the gap may be cut too
        first=int(asked[1]) if asked else 0,
        last=int(asked[2]) if asked and asked[2] else None,
        is_cut=gap is not None or len(lines) >= _LONG_FILE,
        is_mixed="`" in original.summary,
    )


def has_changed(shown: Shown, text: str) -> bool | None:
    """Whether a file that says this now said something else; None where that cannot be told."""
    block = "\n".join(shown.lines).strip("\n").rstrip()
    if not block:
        return None
    source = read_source(shown.lines, first=0)
    if any(source.numbers) and _stand_at_their_numbers(shown, source, text.split("\n")):
        return False
    if shown.first and not any(source.numbers):
        there = "\n".join(text.split("\n")[shown.first - 1 : shown.last]).strip("\n").rstrip()
        return not (there.startswith(block) if shown.is_cut else there == block)
    return _is_gone(shown, block, text)


def _stand_at_their_numbers(shown: Shown, source: Source, now: list[str]) -> bool:
    """Whether every line is where it was, and no line has come behind a file that was shown to its end."""
    there = zip(source.numbers, source.lines, strict=True)
    if source.numbers[-1] > len(now) or not all(_is_line(line, now[number - 1]) for number, line in there):
        return False
    is_part = shown.is_cut or shown.first > 0 or source.numbers[0] > 1 or len(source.lines) < len(shown.lines)
    return is_part or not any(line.strip() for line in now[source.numbers[-1] :])


def _is_line(shown: str, line: str) -> bool:
    return shown == line or (len(shown) > _LONG_LINE and line.startswith(shown[:_LONG_LINE]))


def _is_gone(shown: Shown, block: str, text: str) -> bool | None:
    """Whether a text of which the place is not known stands nowhere in the file, or is no longer all of it."""
    text = text.rstrip()
    at = f"\n{text}\n".find(f"\n{block}\n")
    if at < 0:
        return None if shown.is_mixed else True
    goes_on = bool(text[at + len(block) :].strip())
    return goes_on and not text[:at].strip() and not shown.is_cut and not shown.is_mixed
