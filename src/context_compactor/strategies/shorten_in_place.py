"""Leave every turn where it is and shorten results only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from context_compactor.messages.turn import Turn
from context_compactor.plan.zones import Shares, TurnSize, Zone, assign_zones


@dataclass(frozen=True)
class ShortenInPlace:
    """Folds nothing. For when what cannot be shortened takes no more than `most` of the room."""

    most: float = 0.6
    name: str = "shorten in place"

    def zones(self, turns: Sequence[Turn], sizes: Sequence[TurnSize], room: int, shares: Shares) -> dict[int, Zone] | None:
        """Every folded turn becomes a shortened one."""
        zones = assign_zones(turns, sizes, room, shares)
        placed = dict(zones)
        placed.update((number, Zone.PLACED) for number, zone in zones.items() if zone is Zone.FOLDED)
        least = sum(
            size.whole if placed[turn.number] is Zone.VERBATIM else size.least
            for turn, size in zip(turns, sizes, strict=True)
            if not turn.is_instruction
        )
        return placed if least <= self.most * room else None
