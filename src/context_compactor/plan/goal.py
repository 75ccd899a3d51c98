"""What a compaction aims at: a target in tokens, and how much of it the newest turns may take."""

from __future__ import annotations

from msgspec import Struct

from context_compactor.levels import Level, LevelRule
from context_compactor.plan.zones import Shares

# The newest turns are pinned at soft and aggressive, as far as they leave room for anything else: they may take more
# than `tail_share` there. Turns before the last N get less of it.
_RECENT = {Level.SOFT: 3.3, Level.AGGRESSIVE: 2.6, Level.EMERGENCY: 1.6, None: 1.0}
_OLDER = 0.6


class Goal(Struct, frozen=True):
    """At most `target` tokens and `bytes` bytes; `level` is None when only a target was given.

    Instructions that leave no room are cut only for a target that somebody asked for.
    """

    target: int
    bytes: int
    level: Level | None
    shares: Shares
    may_cut_instructions: bool = False


def level_target(level: Level, levels: tuple[LevelRule, ...], budget_tokens: int) -> int:
    """The tokens a level brings a context down to."""
    rule = next(rule for rule in levels if rule.level is level)
    return int(rule.target * budget_tokens)


def shares_for(level: Level | None, recent: int, tail: float) -> Shares:
    """How the target is shared out at a level."""
    return Shares(tail=_OLDER * tail, recent=recent, recent_tail=min(_RECENT[level] * tail, 1.0))
