"""What somebody wishes of the next compaction: how far it goes, and their own tiers for turns, not kept yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct, structs

from context_compactor.classify.tier import Tier
from context_compactor.levels import Level

_SCALE = tuple(Tier)
_LEVELS = (None, *Level)


class Wish(Struct, frozen=True):
    """A level, a target or both; `changes` are the turns whose steer is another than the one that is kept.

    None in the place of a tier leaves a turn to the engine again.
    """

    level: str | None = None
    target_tokens: int | None = None
    focus: str | None = None
    changes: dict[int, Tier | None] = {}

    def steers(self, kept: Mapping[int, Tier]) -> dict[int, Tier]:
        """All steers, as if the changes were kept."""
        merged = {**kept, **self.changes}
        return {turn: tier for turn, tier in sorted(merged.items()) if tier is not None}

    def with_steer(self, kept: Mapping[int, Tier], turn: int, tier: Tier | None) -> Wish:
        """The wish with this tier for a turn; what is kept already is no change."""
        others = {number: each for number, each in self.changes.items() if number != turn}
        return structs.replace(self, changes=others if kept.get(turn) == tier else {**others, turn: tier})

    def freed(self, kept: Mapping[int, Tier]) -> Wish:
        """The wish with every turn left to the engine."""
        return structs.replace(self, changes=dict.fromkeys(kept))

    def settled(self, kept: Mapping[int, Tier]) -> Wish:
        """The wish when these steers are kept: what is so already is no change."""
        changes = {turn: tier for turn, tier in self.changes.items() if kept.get(turn) != tier}
        return structs.replace(self, changes=changes)

    def without(self, turns: Collection[int]) -> Wish:
        """The wish without what was chosen about these turns."""
        changes = {turn: tier for turn, tier in self.changes.items() if turn not in turns}
        return structs.replace(self, changes=changes)

    def next_level(self) -> Wish:
        """The wish with the next level; behind the last comes none, which is what `/compact` does."""
        known = next((at for at, level in enumerate(_LEVELS) if level == self.level), 0)
        return structs.replace(self, level=_LEVELS[(known + 1) % len(_LEVELS)])


def raised(tier: Tier, by: int) -> Tier | None:
    """The tier so many steps dearer, or cheaper when that is below 0; None when there is none."""
    at = _SCALE.index(tier) - by
    return _SCALE[at] if 0 <= at < len(_SCALE) else None
