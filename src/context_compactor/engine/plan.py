"""A plan as data: what becomes of every target and every turn, and why."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct

from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier
from context_compactor.facts.kinds import Kind


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
    relevance: float = 1.0
    """From 0 to 1, by the weights of the choice: what is worth most for a token in it. At 0.5 is the border below
    which nothing was chosen; 1 is what stays without being weighed."""


class TurnPlan(Struct, frozen=True):
    """What becomes of one turn: tier, tokens, and the decisions behind them; `set_tier` is what the user chose."""

    turn: int
    tier: Tier
    reason: str
    tokens_before: int
    tokens_after: int
    decisions: tuple[Decision, ...]
    set_tier: Tier | None = None

    @property
    def relevance(self) -> float:
        """That of its most relevant target."""
        return max(decision.relevance for decision in self.decisions)

    @property
    def steer(self) -> Tier | None:
        """Deprecated: `set_tier`."""
        warnings.warn("TurnPlan.steer is deprecated; use set_tier", DeprecationWarning, stacklevel=2)
        return self.set_tier


class TierTotal(Struct, frozen=True):
    """How many targets fall into a tier, and their tokens before and after."""

    tier: Tier
    targets: int
    tokens_before: int
    tokens_after: int


class Plan(Struct, frozen=True):
    """What a compaction would do: every decision, and the report that it would have. Nothing was changed."""

    decisions: tuple[Decision, ...]
    report: Report
    tiers: dict[int, Tier] = {}
    """The tiers that the user has set, by turn."""

    @property
    def steers(self) -> dict[int, Tier]:
        """Deprecated: `tiers`."""
        warnings.warn("Plan.steers is deprecated; use tiers", DeprecationWarning, stacklevel=2)
        return self.tiers

    def turns(self) -> list[TurnPlan]:
        """What becomes of each turn, in order."""
        ordered = sorted(self.decisions, key=lambda decision: decision.turn)
        return [self._turn(number, tuple(one)) for number, one in groupby(ordered, key=lambda each: each.turn)]

    def _turn(self, number: int, decisions: tuple[Decision, ...]) -> TurnPlan:
        largest = max(decisions, key=lambda decision: decision.tokens_before)
        return TurnPlan(
            number,
            tier_of(decisions),
            largest.reason,
            sum(decision.tokens_before for decision in decisions),
            sum(decision.tokens_after for decision in decisions),
            decisions,
            self.tiers.get(number),
        )

    def totals(self) -> tuple[TierTotal, ...]:
        """How many targets fall into each tier, from dear to cheap, and what that saves."""
        found = {tier: [decision for decision in self.decisions if decision.tier is tier] for tier in Tier}
        return tuple(
            TierTotal(tier, len(each), sum(one.tokens_before for one in each), sum(one.tokens_after for one in each))
            for tier, each in found.items()
        )


def tier_of(decisions: Sequence[Decision]) -> Tier:
    """The tier of several targets together: kept when all are, summarized when anything of them stays."""
    found = {decision.tier for decision in decisions}
    if len(found) == 1:
        return found.pop()
    return Tier.SUMMARIZE if Tier.KEEP in found else min(found, key=tuple(Tier).index)
