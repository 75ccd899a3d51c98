"""The index of words: which runs of passages hold which terms. Each database has its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

# What the index takes for one word. Half a character is none: no database takes what UTF-8 cannot write.
_WORD = re.compile(r"[0-9A-Za-z\x80-\ud7ff\ue000-\U0010ffff]{1,200}")


TermsOf = Callable[[bytes], str]
"""The terms by which the passages in a run's body are found. An index may not know them any more."""


class Wanted(Struct, frozen=True):
    """Runs between two numbers of one session that hold a term of each group."""

    groups: tuple[tuple[str, ...], ...]
    first: int
    last: int


class Words(Protocol):
    """The terms of each run, under its number."""

    def add(self, runs: Iterable[tuple[int, str]]) -> None:
        """Note the terms of runs, with spaces between them."""
        ...

    def remove(self, runs: Iterable[tuple[int, str]]) -> None:
        """Forget runs, which are given with the terms that were noted for them."""
        ...

    def purge(self) -> None:
        """Rewrite the index, in steps, without what was forgotten."""
        ...

    def count(self, wanted: Wanted, most: int) -> int:
        """How many runs are wanted; `most` when there are more."""
        ...

    def numbers(self, wanted: Wanted) -> list[int]:
        """The numbers of all that are wanted."""
        ...

    def newest(self, wanted: Wanted, limit: int, skip: int = 0) -> list[int]:
        """The highest numbers of those that are wanted, from the last one backwards."""
        ...


def is_word(term: str) -> bool:
    """Whether a term can stand in an index."""
    return _WORD.fullmatch(term) is not None


def kind_word(kind: str) -> str:
    """The word by which runs of originals of a kind are found. No term is one, since none holds a colon."""
    return f"kind:{kind.encode().hex()}"
