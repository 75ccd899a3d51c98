"""Names: the paths, symbols, ids and numbers by which an agent takes up its work again.

A `NameTable` gives each name of one conversation a small number, so that coverage is arithmetic on integers.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# One run of characters that may be a name: a path, a symbol, a version, a hash. ASCII alone is twice as fast, and a
# path in a sentence of Chinese is found by itself.
CHUNK = re.compile(r"[A-Za-z0-9_./~@$-]{4,}")
_NAME_SIGN = re.compile(r"[/_.0-9]|[a-z][A-Z]|[A-Z]{4}|[a-z]-[a-z]")
_PART = re.compile(r"[A-Za-z0-9_-]{4,}")
_NUMBER = re.compile(r"[\d.\-]+")
_EDGES = "./~@$-_"
_LONGEST = 400


class NameTable:
    """Numbers the names of one conversation in the order in which they are met."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._ids: dict[str, int] = {}
        self._chunks = _Chunks(self._number)

    def __len__(self) -> int:
        return len(self.names)

    def ids(self, text: str) -> set[int]:
        """The names in a text, each once."""
        # The loop over a conversation's words is left to C: this is the hottest line of a compaction.
        return set().union(*map(self._chunks.__getitem__, dict.fromkeys(CHUNK.findall(text))))

    def _number(self, name: str) -> int:
        number = self._ids.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number


class _Chunks(dict[str, tuple[int, ...]]):
    """The names of every chunk met so far; a new one is looked into once."""

    def __init__(self, number: Callable[[str], int]) -> None:
        super().__init__()
        self._number = number

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        found = tuple(self._number(name) for name in names_in(chunk))
        self[chunk] = found
        return found


def names_in(chunk: str) -> list[str]:
    """A chunk that is a name, and the names it is made of."""
    if not _NAME_SIGN.search(chunk) or len(chunk) > _LONGEST:
        return []
    whole = chunk.strip(_EDGES)
    if not _is_name(whole):
        return []
    if whole.isidentifier():
        return [whole]
    return [whole, *(part for part in _PART.findall(whole) if part != whole and _is_name(part))]


def _is_name(text: str) -> bool:
    if len(text) < 4 or not _NAME_SIGN.search(text):
        return False
    return not _NUMBER.fullmatch(text) or len(text.replace(".", "")) >= 4
