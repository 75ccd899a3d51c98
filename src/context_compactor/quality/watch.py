"""How long work tells somebody how far it is."""

from __future__ import annotations

from typing import Protocol


class Watch(Protocol):
    """Told about each stretch of work and each step of it."""

    def start(self, what: str, total: int) -> None:
        """A stretch of work of so many steps begins."""
        ...

    def step(self, amount: int = 1) -> None:
        """So many steps are done."""
        ...


class Unwatched:
    """Nobody looks."""

    def start(self, what: str, total: int) -> None:
        """Nothing to say."""

    def step(self, amount: int = 1) -> None:
        """Nothing to say."""
