"""Put everything into the record: one message, for providers and agents that take no more."""

from __future__ import annotations

from dataclasses import dataclass

from context_compactor.plan.zones import Room, Zone
from context_compactor.strategies.start_fresh import StartFresh


@dataclass(frozen=True)
class RecordOnly:
    """Folds every turn but what nobody has answered yet; the newest turns stand in the record as text."""

    name: str = "record only"

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """Only the unanswered words stay."""
        return StartFresh().zones(room)
