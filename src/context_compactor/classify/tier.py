"""The one scale: what a target is worth, and so what becomes of it."""

from __future__ import annotations

from enum import StrEnum

from context_compactor.errors import BadSetting


class Tier(StrEnum):
    """From dear to cheap. Whatever is not kept has its original archived first."""

    KEEP = "keep"
    SUMMARIZE = "summarize"
    REFERENCE = "reference"
    DROP = "drop"


def tier_named(name: str) -> Tier:
    """The tier of a name, or an error that names all of them."""
    try:
        return Tier(name)
    except ValueError:
        raise BadSetting(f"unknown tier {name!r:.40}; known tiers: {', '.join(Tier)}") from None
