"""The three levels of urgency, where each begins and how far it brings the context down."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """How urgent a compaction is."""

    SOFT = "soft"
    AGGRESSIVE = "aggressive"
    EMERGENCY = "emergency"


class LevelRule(Struct, frozen=True):
    """A level begins at `threshold` and ends at `target`; both are shares of the budget."""

    level: Level
    threshold: float
    target: float


DEFAULT_LEVELS: tuple[LevelRule, ...] = (
    LevelRule(Level.SOFT, 0.80, 0.40),
    LevelRule(Level.AGGRESSIVE, 0.85, 0.25),
    LevelRule(Level.EMERGENCY, 0.95, 0.15),
)
