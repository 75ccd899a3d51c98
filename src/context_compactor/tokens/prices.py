"""What a call of a model costs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from context_compactor.settings import Price

_MILLION = 1_000_000
# A date or a release behind a name leaves its price as it is: "-2026-03-05", "-20251001", "-latest", "@20251001".
_DATED = r"(?:[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest))?"


class ModelUsage(Struct, frozen=True):
    """Tokens as the provider counted them. `input` are those that were neither read from a cache nor written to one."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0


class KnownPrice(Struct, frozen=True):
    """The price of the models whose whole name matches, and when it was last compared with published lists."""

    pattern: str
    price: Price
    seen: str


_LONG: dict[str, Any] = {"long_above": 272_000, "long_input": 2.0, "long_output": 1.5}


def _known(pattern: str, input_rate: float, read: float, write: float | None, output: float, **long: Any) -> KnownPrice:
    price = Price(input=input_rate, cache_read=read, cache_write=write, output=output, **long)
    return KnownPrice(pattern, price, "2026-11-15")


# Input, cached input, cache write (of Claude for five minutes) and output.
KNOWN_PRICES = (
    _known(r"claude-fable-5[-.]1", 10.0, 0.25, 12.5, 50.0),
    _known(r"claude-opus-5[-.]5", 4.0, 0.20, 5.0, 20.0),
    _known(r"claude-opus-(?:5|4[-.][5-8])", 5.0, 0.50, 6.25, 25.0),
    _known(r"claude-sonnet-5(?:[-.]5)?", 2.0, 0.20, 2.5, 10.0),
    _known(r"claude-sonnet-4(?:[-.][56])?", 3.0, 0.30, 3.75, 15.0),
    _known(r"claude-haiku-4[-.]5", 1.0, 0.10, 1.25, 5.0),
    _known(r"claude-haiku-5[-.]5", 0.10, 0.01, 0.125, 0.50, long_above=100_000, long_input=5.0, long_output=5.0),
    _known(r"gpt-5\.6-terra", 2.0, 0.20, 2.5, 12.0, **_LONG),
    _known(r"gpt-5\.6-luna", 0.20, 0.02, 0.25, 1.20, **_LONG),
    _known(r"gpt-5\.5", 5.0, 0.50, None, 30.0, **_LONG),
    _known(r"gpt-5\.4", 2.5, 0.25, None, 15.0, **_LONG),
    _known(r"gpt-5\.4-mini", 0.75, 0.075, None, 4.5),
    _known(r"gpt-5\.4-nano", 0.20, 0.02, None, 1.25),
    _known(r"gpt-5\.2", 1.75, 0.175, None, 14.0),
    _known(r"gpt-5", 1.25, 0.125, None, 10.0),
    _known(r"gpt-5-mini", 0.25, 0.025, None, 2.0),
    _known(r"gpt-4\.1", 2.0, 0.50, None, 8.0),
    _known(r"gpt-4\.1-mini", 0.40, 0.10, None, 1.60),
    _known(r"gpt-4\.1-nano", 0.10, 0.025, None, 0.40),
    _known(r"gpt-4o-mini", 0.15, 0.075, None, 0.60),
)


def price_of(model: str, prices: Mapping[str, Price] | None = None) -> Price | None:
    """The price of a model as the user names it, or None; the user's own prices come first, by whole name or by model.

    A server at an address of one's own has no known price, whatever it calls its model.
    """
    own = prices or {}
    bare = re.split(r"[/#]", model)[-1].lower()
    if found := own.get(model) or own.get(bare):
        return found
    if model.startswith(("http://", "https://")):
        return None
    return next((known.price for known in KNOWN_PRICES if re.fullmatch(known.pattern + _DATED, bare)), None)


def call_cost(usage: ModelUsage, model: str, prices: Mapping[str, Price] | None = None) -> float | None:
    """What one call has cost in US dollars, or None when the model's price is not known."""
    price = price_of(model, prices)
    if price is None:
        return None
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    taken = usage.input * price.input + usage.cache_read * read + usage.cache_write * write
    given = usage.output * price.output
    if price.long_above is not None and usage.input + usage.cache_read + usage.cache_write > price.long_above:
        taken, given = taken * price.long_input, given * price.long_output
    return (taken + given) / _MILLION
