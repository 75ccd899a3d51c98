"""The shapes you may implement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from context_compactor.plan.options import Option
    from context_compactor.plan.view import View
    from context_compactor.plan.zones import Room, Zone


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens the way one model does.

    `name` is what a report calls it; `margin` is the share by which the truth may be higher (0.0 when exact).
    """

    name: str
    margin: float

    def count(self, text: str) -> int:
        """The tokens of one text."""
        ...

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text; one call is cheaper than many."""
        ...


@runtime_checkable
class Strategy(Protocol):
    """A way to save tokens: looks at a conversation and proposes options. It changes nothing itself."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def propose(self, view: View) -> Iterable[Option]:
        """Options for any of the view's sources."""
        ...


@runtime_checkable
class Layout(Protocol):
    """Decides which turns stay, which are shortened in place and which are folded."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """The zone of every turn by its number, or None when this layout does not serve here."""
        ...
