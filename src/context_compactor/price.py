"""What a model's tokens cost."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Rate = Annotated[float, Meta(ge=0)]


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars for a million tokens. A cache's rates are those of the input where they are not given.

    A request of more than `long_above` tokens costs `long_input` times as much to read and `long_output` times as
    much to answer, where a maker asks more for long requests.
    """

    input: Rate
    output: Rate
    cache_read: Rate | None = None
    cache_write: Rate | None = None
    long_above: Annotated[int, Meta(ge=1)] | None = None
    long_input: Rate = 1.0
    long_output: Rate = 1.0
