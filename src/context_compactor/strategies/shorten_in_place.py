"""Leave every turn where it is and shorten results only."""

from __future__ import annotations

from dataclasses import dataclass

from context_compactor.plan.zones import Room, Zone, assign_zones


@dataclass(frozen=True)
class ShortenInPlace:
    """Folds nothing. For when what cannot be shortened takes no more than `most` of the room."""

    most: float = 0.4
    least_share: float = 0.35
    name: str = "shorten in place"

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """Every turn that would be folded is shortened instead."""
        zones = assign_zones(room)
        zones.update((number, Zone.PLACED) for number, zone in list(zones.items()) if zone is Zone.FOLDED)
        least = sum(size.whole if zones[turn.number] is Zone.VERBATIM else size.least for turn, size in room.sized())
        share = room.tokens / max(sum(size.whole for _, size in room.sized()), 1)
        return zones if share >= self.least_share and least <= self.most * room.tokens else None
