"""What a model's tokens cost, and what was spent on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct

Rate = Annotated[float, Meta(ge=0, le=10**9)]


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars for a million tokens. A cache's rates are those of the input where they are not given.

    A request of more than `long_above` tokens costs `long_input` times as much to read and `long_output` times as
    much to answer, where a maker asks more for long requests.
    """

    input: Rate
    output: Rate
    cache_read: Rate | None = None
    cache_write: Rate | None = None
    long_above: Annotated[int, Meta(ge=1, le=10**12)] | None = None
    long_input: Rate = 1.0
    long_output: Rate = 1.0


class Spent(Struct, frozen=True):
    """What model calls have taken: US dollars, as far as prices are known, and attempts, retries among them."""

    dollars: float = 0.0
    attempts: int = 0

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(self.dollars + other.dollars, self.attempts + other.attempts)

    def take(self, more: Spent, look: Look) -> Spent:
        """The same with more, unless `look` raises at the sight of what was spent before."""
        look(self)
        return self.plus(more)


Look = Callable[[Spent], None]


class Purse(Spent, frozen=True, kw_only=True):
    """What several spend from at the same time. `keep` has the sum: it looks and adds as one step."""

    keep: Callable[[Spent, Look], None]

    def plus(self, other: Spent) -> Spent:  # noqa: ARG002
        """Itself: what was taken from it is in it already."""
        return self

    def take(self, more: Spent, look: Look) -> Spent:
        """Itself, with more taken from it."""
        self.keep(more, look)
        return self
