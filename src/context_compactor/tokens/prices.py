"""What a call of a model costs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, structs

from context_compactor.settings import ModelEntry, is_address
from context_compactor.tokens.models import Price, known_model, own_entry

_MILLION = 1_000_000
_HOUR = 3_600


class ModelUsage(Struct, frozen=True):
    """Tokens as the provider counted them. `input` are those that were neither read from a cache nor written to one."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0


def price_of(model: str, entries: Mapping[str, ModelEntry] | None = None) -> Price | None:
    """The price of a model as the user names it, or None; the user's own entries come first.

    An entry with `input` is a price of its own, one without changes what is known. A server at an address of one's own
    has no known price, whatever it calls its model.
    """
    own, known = own_entry(model, entries), known_model(model)
    price = known.price if known and not is_address(model) else None
    if own is None:
        return price
    given = {name: value for name in Price.__struct_fields__ if (value := getattr(own, name, None)) is not None}
    if own.input is not None:
        return Price(**given)
    return None if price is None else structs.replace(price, **given)


def call_cost(
    usage: ModelUsage, model: str, entries: Mapping[str, ModelEntry] | None = None, cache_seconds: int | None = None
) -> float | None:
    """What one call has cost in US dollars, or None when the model's price is not known.

    What is written to a cache that keeps it for an hour costs more than for a few minutes, where a provider has both.
    """
    price = price_of(model, entries)
    if price is None or (price.output is None and usage.output):
        return None
    read = price.input if price.cache_read is None else price.cache_read
    taken = usage.input * price.input + usage.cache_read * read + usage.cache_write * _write_rate(price, cache_seconds)
    given = usage.output * (price.output or 0.0)
    if price.long_above is not None and usage.input + usage.cache_read + usage.cache_write > price.long_above:
        taken, given = taken * price.long_input, given * price.long_output
    return (taken + given) / _MILLION


def _write_rate(price: Price, cache_seconds: int | None) -> float:
    if cache_seconds is not None and cache_seconds >= _HOUR and price.cache_write_hour is not None:
        return price.cache_write_hour
    return price.input if price.cache_write is None else price.cache_write
