"""What a run prints: means, numbers, lines and progress."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are there."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def percent(share: float | None) -> str:
    """A share as a whole percentage."""
    return "–" if share is None else f"{100 * share:.0f} %"


def count(number: int, what: str) -> str:
    """So many of something: `1 file`, `2 files`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def ordinal(number: int) -> str:
    """`2nd`, `3rd`, `11th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


class ProgressListener(Protocol):
    """Told about each stretch of work and each step of it."""

    def start(self, what: str, total: int) -> None:
        """A stretch of work of so many steps begins."""
        ...

    def step(self, amount: int = 1) -> None:
        """So many steps are done."""
        ...
