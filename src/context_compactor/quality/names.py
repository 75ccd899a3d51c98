"""Identifiers the future takes from the history, and the words they stood with."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from msgspec import Struct

from context_compactor.quality.identifiers import identifiers, longest_identifiers
from context_compactor.quality.reading import Piece, origin

NEXT_CALLS = 10
NEAR = 200
MOST_LINES = 60
FEWEST_WORDS = 3

_WORD = re.compile(r"\w{2,}")
_JOINED = string.ascii_letters + string.digits + "_./~@+-"


class Name(Struct, frozen=True):
    """A wanted identifier, the words it stood with in each line of H, and who wrote those lines.

    `last` is how far through H it stood last, 0 to 1.
    """

    text: str
    company: tuple[frozenset[str], ...]
    origins: tuple[str, ...]
    last: float


def recalled_names(
    history: Sequence[Piece], future: Sequence[Piece], common: frozenset[str]
) -> tuple[list[str], list[tuple[int, ...]]]:
    """The identifiers that F takes from H, and for each call that needs some, which.

    An identifier counts when the agent writes it, in words or arguments, before any result or user message
    of F shows it. It stood in H, not in the system prompt, and is not common to many projects.
    """
    known = identifiers(_joined(history, instructions=False))
    barred = common | identifiers(_joined(history, instructions=True))
    shown: set[str] = set()
    order: dict[str, int] = {}
    calls: list[tuple[int, ...]] = []
    for piece in future:
        if piece.kind in ("result", "user", "system"):
            shown |= identifiers(piece.text)
            continue
        needed = [name for name in _recalled(piece, known) if name not in shown and name not in barred]
        places = tuple(order.setdefault(name, len(order)) for name in needed)
        if piece.kind == "call" and places:
            calls.append(places)
    return list(order), calls[:NEXT_CALLS]


def _joined(pieces: Sequence[Piece], *, instructions: bool) -> str:
    return "\n".join(piece.text for piece in pieces if (piece.kind == "system") is instructions)


def _recalled(piece: Piece, known: set[str]) -> list[str]:
    """The identifiers of a piece that stood in H, each in the longest form that did."""
    text = "\n".join(piece.values) if piece.kind == "call" else piece.text
    matches = (next((form for form in forms if form in known), None) for forms in longest_identifiers(text))
    return [name for name in dict.fromkeys(matches) if name]


def with_company(name: str, history: Sequence[Piece]) -> Name:
    """An identifier with the other words of the lines in which it stood; lines with hardly any do not count."""
    company: dict[frozenset[str], None] = {}
    origins: dict[str, None] = {}
    last = 0
    for index in range(len(history) - 1, -1, -1):
        piece = history[index]
        places = occurrences(name, piece.text, MOST_LINES) if piece.kind != "system" else []
        if places:
            last = last or index
            origins[origin(piece)] = None
        if len(company) < MOST_LINES:
            company.update((line_words(piece.text, start, name), None) for start in places)
    rich = tuple(words for words in company if len(words) >= FEWEST_WORDS)
    return Name(name, rich[:MOST_LINES] or tuple(company), tuple(origins), last / len(history))


def is_bound(name: Name, text: str) -> bool:
    """Whether a name stands within 200 characters of half the words it stood with in some line of H."""
    for start in occurrences(name.text, text):
        near = near_words(text, start, name.text)
        if any(2 * len(words & near) >= len(words) for words in name.company):
            return True
    return False


def occurrences(name: str, text: str, most: int = 200) -> list[int]:
    """Where a name stands in a text as a whole word."""
    found: list[int] = []
    start = text.find(name)
    while start >= 0 and len(found) < most:
        end = start + len(name)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not (before.isalnum() or before == "_" or after.isalnum() or after == "_"):
            found.append(start)
        start = text.find(name, end)
    return found


def line_words(text: str, start: int, name: str) -> frozenset[str]:
    """The other words of the line a name stands in, at most 200 characters away."""
    end = start + len(name)
    left = max(text.rfind("\n", max(0, start - NEAR), start) + 1, start - NEAR, 0)
    stop = text.find("\n", end, end + NEAR)
    return _words(text[left:start], text[end : stop if stop >= 0 else end + NEAR])


def near_words(text: str, start: int, name: str) -> frozenset[str]:
    """The other words at most 200 characters away from a name, whatever their line."""
    end = start + len(name)
    return _words(text[max(0, start - NEAR) : start], text[end : end + NEAR])


def _words(left: str, right: str) -> frozenset[str]:
    """The words of both sides, without the rest of the path or expression the name is a part of."""
    return frozenset(_WORD.findall(f"{left.rstrip(_JOINED)} {right.lstrip(_JOINED)}".lower()))
