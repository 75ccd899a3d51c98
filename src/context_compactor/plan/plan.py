"""A plan is data: what becomes of every target, and why. `apply` turns it into a context."""

from __future__ import annotations

from msgspec import Struct

from context_compactor.classify.kinds import Kind
from context_compactor.classify.tier import Tier


class Decision(Struct, frozen=True):
    """What becomes of one target, in words a user understands."""

    target: str
    turn: int
    kind: Kind
    tier: Tier
    strategy: str
    reason: str
    tokens_before: int
    tokens_after: int
    ref: str = ""
