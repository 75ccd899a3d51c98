"""What a compaction aims at: a target in tokens, and how much of it the newest turns may take."""

from __future__ import annotations

from msgspec import Struct

from context_compactor.levels import Level, LevelRule
from context_compactor.plan.zones import Shares

# The newest turns are pinned at soft and aggressive, as far as they leave room for anything else.
_RECENT_TAIL = {Level.SOFT: 0.5, Level.AGGRESSIVE: 0.4, Level.EMERGENCY: 0.25, None: 0.25}


class Goal(Struct, frozen=True):
    """At most `target` tokens and `bytes` bytes; `level` is None when only a target was given."""

    target: int
    bytes: int
    level: Level | None
    shares: Shares


def level_target(level: Level, levels: tuple[LevelRule, ...], budget_tokens: int) -> int:
    """The tokens a level brings a context down to."""
    rule = next(rule for rule in levels if rule.level is level)
    return int(rule.target * budget_tokens)


def shares_for(level: Level | None, recent: int, tail: float) -> Shares:
    """How the target is shared out at a level."""
    return Shares(tail=min(tail, 0.15), recent=recent, recent_tail=max(_RECENT_TAIL[level], tail))
