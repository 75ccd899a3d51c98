"""Start afresh: a record of everything, when nothing else fits or when the context is to be one message."""

from __future__ import annotations

from dataclasses import dataclass

from context_compactor.classify.pins import interjection, last_words
from context_compactor.messages.turn import Turn
from context_compactor.plan.zones import Room, Zone


@dataclass(frozen=True)
class StartFresh:
    """Folds everything but what nobody has answered yet: a new window from ledgers and references."""

    name: str = "start fresh"

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """Only the unanswered words stay."""
        pinned = last_words(room.turns)
        spoken = {turn.number for turn, size in room.sized() if size.least <= room.tokens / 2} & interjection(
            room.turns
        )
        return {turn.number: self._zone(turn, pinned, spoken) for turn in room.turns}

    def _zone(self, turn: Turn, pinned: set[int], spoken: set[int]) -> Zone:
        if turn.is_instruction:
            return Zone.FIXED
        if turn.number in spoken:
            return Zone.PLACED
        return Zone.VERBATIM if turn.number in pinned else Zone.FOLDED
