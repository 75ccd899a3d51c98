"""Which steers count for a context: those whose turn stands in it and is still the one that was meant."""

from __future__ import annotations

from context_compactor.classify.steer import refusal
from context_compactor.classify.tier import Tier
from context_compactor.session.core import Core, TakenApart
from context_compactor.session.lens import Seen
from context_compactor.session.values import State


def followed(core: Core, seen: Seen, state: State) -> dict[int, Tier]:
    """The steers that a compaction of this context follows."""
    if not state.steers:
        return {}
    taken = core.take_apart(seen)
    starts = turn_starts(taken)
    return {
        number: steer.tier
        for number, steer in sorted(state.steers.items())
        if not refusal(taken.scene.turns, number, steer.tier)
        and (not steer.position or starts.get(number, 0) in (0, steer.position))
    }


def turn_starts(taken: TakenApart) -> dict[int, int]:
    """For each turn the position in the log of its first message; 0 when a compaction has written that."""
    own = [shown.position for shown, _ in taken.seen.own()]
    return {number: own[first] for number, (first, _) in taken.spans().items()}
