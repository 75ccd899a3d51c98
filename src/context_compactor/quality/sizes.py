"""The one way in which the harness counts tokens, for every method alike."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from context_compactor.quality.reading import RawMessage, billed_text, printable

PER_MESSAGE = 4


@cache
def _tokenizer() -> Any:
    from splintr import Tokenizer

    return Tokenizer.from_pretrained("o200k_base")


def count_text(text: str) -> int:
    """The o200k tokens of a text."""
    return len(_tokenizer().encode(printable(text)))


def count_message(message: RawMessage) -> int:
    """The o200k tokens of a message's text, names and JSON arguments, and four more."""
    return count_text(billed_text(message)) + PER_MESSAGE


def count_messages(messages: Iterable[RawMessage]) -> int:
    """The tokens of a context."""
    return sum(map(count_message, messages))
