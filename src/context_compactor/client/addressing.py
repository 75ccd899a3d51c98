"""How a request is addressed: paths and queries as a server reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from context_compactor.classify.tier import Tier, tier_named
from context_compactor.classify.turn_numbers import write_turns


def path_of(session_id: str) -> str:
    """Where a session is."""
    return f"/v1/sessions/{quoted(session_id)}"


def by_tier(steers: Mapping[int, str] | None) -> dict[str, str]:
    """Tiers by turn as a query has them, such as `keep=12,15`; `keep=` alone says that nothing is decided."""
    turns: dict[Tier, list[int]] = {} if steers is None else {Tier.KEEP: []}
    for turn, tier in (steers or {}).items():
        turns.setdefault(tier_named(tier), []).append(turn)
    return {tier.value: write_turns(numbers) for tier, numbers in turns.items()}


def quoted(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="", errors="replace")


def query_of(query: Mapping[str, Any]) -> dict[str, str]:
    """A query without what was not given."""
    return {name: _text(value) for name, value in query.items() if value is not None}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
