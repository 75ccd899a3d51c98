"""What the user has decided about turns: keep this one, leave less of that one. What must stay cannot be lowered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from context_compactor.classify.pins import interjection, last_words
from context_compactor.classify.tier import Tier
from context_compactor.messages.turn import Turn

KEPT = "kept by you"
SHORTENED = "shortened by you"
LOWERED = "lowered by you"
PINNED = "pinned by you"
REASONS = {Tier.KEEP: KEPT, Tier.SUMMARIZE: SHORTENED, Tier.REFERENCE: LOWERED, Tier.DROP: LOWERED}

Steers = Mapping[int, Tier]
"""The user's own tiers, by turn."""


def refusal(turns: Sequence[Turn], number: int, tier: Tier) -> str:
    """Why a turn of a context cannot be steered so; empty when it can."""
    turn = next((turn for turn in turns if turn.number == number), None)
    if turn is None:
        last = max((turn.number for turn in turns), default=0)
        return (
            "it was folded already" if 0 < number < last else f"there is no such turn; the last one is {max(last, 0)}"
        )
    if tier is Tier.KEEP:
        return ""
    if turn.is_instruction:
        return "it holds instructions, which are never touched"
    if number in last_words(turns):
        return "it is not answered yet, so it stays as it is"
    if number in interjection(turns) and tier is not Tier.SUMMARIZE:
        return "it holds words that are not answered yet: its results can be summarized, no more"
    return ""


def sound_steers(turns: Sequence[Turn], steers: Steers) -> dict[int, Tier]:
    """The steers that can be followed in a context."""
    return {number: tier for number, tier in steers.items() if not refusal(turns, number, tier)}
