"""Fold the oldest turns into the record: ledgers, and the lines that are worth most."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from context_compactor.plan.zones import Room, Zone, assign_zones


@dataclass(frozen=True)
class FoldOldest:
    """Keeps the newest turns within their share and folds the rest; `tail_factor` makes that share smaller."""

    tail_factor: float = 1.0
    name: str = "fold the oldest turns"

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """Cut between two turns, where the newest ones have used up their share."""
        shares, factor = room.shares, self.tail_factor
        scaled = structs.replace(shares, tail=shares.tail * factor, recent_tail=shares.recent_tail * factor)
        return assign_zones(structs.replace(room, shares=scaled))
