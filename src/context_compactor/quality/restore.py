"""RESTORE: the share of a history's messages that come back byte for byte from a context and its archive."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from context_compactor.errors import CompactorError
from context_compactor.quality.reading import Piece, RawMessage, flat_text, read_message

_REFERENCE = r"\b(tool|file|agent|turn)_(\d{3,9})\b"
_RANGE = re.compile(_REFERENCE + r"(?: to | ?[-–…] ?|\.\.)" + _REFERENCE)
_MOST = 100_000


def references(text: str) -> list[str]:
    """The references a text shows, and those between the two ends of a range."""
    shown = [f"{kind}_{number}" for kind, number in re.findall(_REFERENCE, text)]
    between = [
        f"{kind}_{number:0{len(first)}d}"
        for kind, first, _, last in _RANGE.findall(text)
        for number in range(int(first), min(int(last), int(first) + _MOST) + 1)
    ]
    return list(dict.fromkeys([*shown, *between]))


def restored(
    history: Sequence[RawMessage], context: Sequence[RawMessage], recall: Callable[[str], Any]
) -> float | None:
    """The share of messages that stand in the context as they were or that recalling what it refers to gives back.

    A message is back when a recalled turn holds an equal one, or when each of its parts equals one in the
    context or a recalled text.
    """
    texts, turns = _recalled(references(flat_text(context)), recall)
    whole = [*context, *turns]
    parts: set[tuple[str, str]] = {(piece.kind, piece.text) for message in whole for piece in read_message(message)}
    back = [
        message in whole or all(_is_back(piece, parts, texts) for piece in read_message(message)) for message in history
    ]
    return sum(back) / len(back) if back else None


def _is_back(piece: Piece, parts: set[tuple[str, str]], texts: set[str]) -> bool:
    return (piece.kind, piece.text) in parts or piece.text in texts


def _recalled(shown: Sequence[str], recall: Callable[[str], Any]) -> tuple[set[str], list[RawMessage]]:
    texts: set[str] = set()
    turns: list[RawMessage] = []
    for reference in shown:
        text = _text(reference, recall)
        if reference.startswith("turn_"):
            turns.extend(_messages(text))
        else:
            texts.add(text)
    return texts, turns


def _text(reference: str, recall: Callable[[str], Any]) -> str:
    try:
        return str(recall(reference))
    except (LookupError, CompactorError):
        return ""


def _messages(text: str) -> Iterator[RawMessage]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):  # half a character: no JSON text of ours
        return
    yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict))
