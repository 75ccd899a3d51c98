"""Pastes that are too long to be shown: held aside under a label, which stands in the prompt as one piece."""

from __future__ import annotations

import re
from collections.abc import Iterator
from unicodedata import category

_LABEL = re.compile(r"\[pasted [^\[\]\n]{1,60}\]")
_MOST_CHARACTERS, _MOST_LINES = 2_000, 12
"""What is longer than that is held aside."""
_HARMLESS = "\n\t\u200d"
"""Also what joins several emoji into one."""


class Held:
    """Texts by their labels. A label says how much it stands for."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def label(self, text: str) -> str:
        """Hold a text; the label that stands for it."""
        lines = text.count("\n") + 1
        size = f"{len(text):,} characters" + (f", {lines:,} lines" if lines > 1 else "")
        number, label = 1, f"[pasted {size}]"
        while self._texts.get(label, text) != text:
            number += 1
            label = f"[pasted {size} #{number}]"
        self._texts[label] = text
        return label

    def spans(self, line: str) -> Iterator[tuple[int, int]]:
        """Where in a line labels stand."""
        for found in _LABEL.finditer(line):
            if found[0] in self._texts:
                yield found.span()

    def full(self, text: str) -> str:
        """A text with what its labels stand for."""
        return _LABEL.sub(lambda found: self._texts.get(found[0], found[0]), text)

    @property
    def size(self) -> int:
        """The characters of all of them."""
        return sum(map(len, self._texts.values()))

    def keep_only(self, texts: list[str]) -> None:
        """Let go of what none of these texts has a label for."""
        named = {found for text in texts for found in _LABEL.findall(text)}
        self._texts = {label: text for label, text in self._texts.items() if label in named}


def plain_lines(text: str) -> str:
    """A paste with its lines ended in one way: terminals send a carriage return for each."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def can_be_shown(text: str) -> bool:
    """Whether a paste is short, and nothing in it could drive the terminal or would have to be left out."""
    if len(text) > _MOST_CHARACTERS or text.count("\n") >= _MOST_LINES:
        return False
    return all(char.isprintable() or char in _HARMLESS or category(char) == "Zs" for char in text)
