"""Wording the future copies from the history: spans of arguments, and the old text of edits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from context_compactor.quality.reading import Piece, origin

SPAN_WORDS = 5
EDIT_LINE = 20

_WORD = re.compile(r"\w+")
_PATCH_LINE = re.compile(r"^[- ](?!--)(.*)$", re.MULTILINE)


class Span(Struct, frozen=True):
    """A wanted piece of wording, who wrote it in H, and how far through H it stood last, 0 to 1."""

    text: str
    origins: tuple[str, ...]
    last: float


def spans_of(text: str) -> list[str]:
    """Every run of five words of a text: letters, digits and underscores, whatever stands between them."""
    words = _WORD.findall(text)
    return [" ".join(words[start : start + SPAN_WORDS]) for start in range(len(words) - SPAN_WORDS + 1)]


def copied_spans(history: Sequence[Piece], future: Sequence[Piece]) -> list[Span]:
    """Five-word runs of F's arguments that stood in H and that nothing in F had shown or used before."""
    asked: dict[str, None] = {}
    shown: set[str] = set()
    for piece in future:
        own = [span for value in piece.values for span in spans_of(value)]
        asked.update(dict.fromkeys(span for span in own if span not in shown))
        shown.update(own or spans_of(piece.text))
    return _in_history(asked, [(origin(piece), set(spans_of(piece.text))) for piece in history])


def _in_history(asked: Iterable[str], pieces: Sequence[tuple[str, set[str]]]) -> list[Span]:
    wanted = set(asked)
    places: dict[str, dict[str, int]] = {}
    for index, (who, spans) in enumerate(pieces):
        for span in wanted & spans:
            places.setdefault(span, {})[who] = index
    return [_span(span, places[span], len(pieces)) for span in asked if span in places]


def _span(text: str, places: Mapping[str, int], count: int) -> Span:
    return Span(text, tuple(places), max(places.values()) / count)


def edited_lines(history: Sequence[Piece], future: Sequence[Piece]) -> list[Span]:
    """Lines of the old text of F's edits that stood in H and that nothing in F had shown or used before."""
    asked: dict[str, None] = {}
    shown = ""
    for piece in future:
        asked.update(dict.fromkeys(line for line in old_lines(piece) if line not in shown))
        shown += "\n" + piece.text
    texts = [(origin(piece), piece.text) for piece in history]
    places = {line: {who: index for index, (who, text) in enumerate(texts) if line in text} for line in asked}
    return [_span(line, found, len(texts)) for line, found in places.items() if found]


def old_lines(piece: Piece) -> list[str]:
    """The lines of 20+ characters an edit expects to find: what it replaces, a patch's removed and context lines."""
    if piece.kind != "call":
        return []
    patches = (value for value in piece.values if "*** Begin Patch" in value)
    old = [*piece.replaced, *(match.group(1) for patch in patches for match in _PATCH_LINE.finditer(patch))]
    lines = (line.strip() for line in "\n".join(old).splitlines())
    return list(dict.fromkeys(line for line in lines if len(line) >= EDIT_LINE))
