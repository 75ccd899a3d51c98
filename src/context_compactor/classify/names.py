"""Names: the paths, symbols, ids and numbers by which an agent takes up its work again.

A `NameTable` gives each name of one conversation a small number, so that coverage is arithmetic on integers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# One run of characters that may be a name: a path, a symbol, a version, a hash.
CHUNK = re.compile(r"[\w./~@$-]{4,}")
_NAME_SIGN = re.compile(r"[/_.\d]|[a-z][A-Z]|[A-Z]{4}|\w-\w")
_PART = re.compile(r"[\w-]{4,}")
_NUMBER = re.compile(r"[\d.\-]+")
_EDGES = "./~@$-_"
_LONGEST = 400


class NameTable:
    """Numbers the names of one conversation in the order in which they are met."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._ids: dict[str, int] = {}
        self._chunks: dict[str, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.names)

    def ids(self, text: str) -> set[int]:
        """The names in a text, each once."""
        chunks = self._chunks
        found: set[int] = set()
        for chunk in CHUNK.findall(text):
            known = chunks.get(chunk)
            if known is None:
                known = self._learn(chunk)
            if known:
                found.update(known)
        return found

    def text_of(self, ids: Iterable[int]) -> list[str]:
        """The names behind some numbers."""
        return [self.names[at] for at in ids]

    def _learn(self, chunk: str) -> tuple[int, ...]:
        found = tuple(dict.fromkeys(self._number(name) for name in names_in(chunk)))
        self._chunks[chunk] = found
        return found

    def _number(self, name: str) -> int:
        number = self._ids.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number


def names_in(chunk: str) -> list[str]:
    """A chunk that is a name, and the names it is made of."""
    if len(chunk) > _LONGEST:
        return []
    whole = chunk.strip(_EDGES)
    if not _is_name(whole):
        return []
    parts = [part for part in _PART.findall(whole) if part != whole and _is_name(part)]
    return [whole, *parts]


def _is_name(text: str) -> bool:
    if len(text) < 4 or not _NAME_SIGN.search(text):
        return False
    return not _NUMBER.fullmatch(text) or len(text.replace(".", "")) >= 4
