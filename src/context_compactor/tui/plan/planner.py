"""What is known of a plan: what is wished for, what would come of it, and what the session keeps already."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from context_compactor.classify.tier import Tier
from context_compactor.errors import BadSetting
from context_compactor.plan.plan import Plan, TurnPlan
from context_compactor.tui.plan.wish import Wish
from context_compactor.tui.source import Source

_ROOM = 10**11
"""A target that every context is within: then steers are only looked at, and nothing has to be reckoned."""


class Planner:
    """Plans again and again, one plan after the other, with whatever is wished for by then."""

    def __init__(self, source: Source, session_id: str, wish: Wish) -> None:
        self.wish = wish
        self.kept: dict[int, Tier] = {}
        """The steers of the session."""
        self.plan: Plan | None = None
        self.turns: list[TurnPlan] = []
        self.budget_tokens = 0
        self.is_automatic = True
        self.is_enabled = True
        self.seconds = 0.0
        """How long the last plan took."""
        self._source, self._id = source, session_id
        self._planned: tuple[Wish, Mapping[int, Tier]] | None = None

    @property
    def is_reckoning(self) -> bool:
        """Whether what is wished for is not in the plan yet."""
        return self._planned != (self.wish, self.kept)

    def at(self, turn: int) -> int | None:
        """The place of a turn in the list."""
        return next((at for at, each in enumerate(self.turns) if each.turn == turn), None)

    async def look(self) -> None:
        """See how the session stands, and what it keeps."""
        source, name = self._source, self._id
        standing, settings, self.kept = await asyncio.gather(
            source.session(name), source.settings(name), source.steering(name)
        )
        self.wish = self.wish.settled(self.kept)
        self.budget_tokens = standing.budget_tokens
        self.is_automatic, self.is_enabled = settings.get("automatic", True), settings.get("enabled", True)
        self._planned = None

    async def reckon(self) -> list[str]:
        """Plan what is wished for now; why some of it cannot be, which is no longer wished for then."""
        refused: dict[int, str] = {}
        wish, kept, began = self.wish, self.kept, time.monotonic()
        try:
            plan = await self._plan(wish, wish.steers(kept))
        except BadSetting:
            refused = await self._refused(wish)
            if not refused:
                raise
            meant = {turn for turn in refused if self.wish.changes.get(turn) is wish.changes[turn]}
            self.wish, wish = self.wish.without(meant), wish.without(refused)
            plan = await self._plan(wish, wish.steers(kept))
        self.plan, self.turns, self._planned = plan, plan.turns(), (wish, kept)
        self.seconds = time.monotonic() - began
        return list(refused.values())

    async def _plan(self, wish: Wish, steers: Mapping[int, Tier]) -> Plan:
        target = wish.target_tokens
        return await self._source.planned(
            self._id, level=wish.level, target_tokens=target, focus=wish.focus, steers=steers
        )

    async def _refused(self, wish: Wish) -> dict[int, str]:
        """Which of the changes cannot be, and why: each is looked at alone."""
        found: dict[int, str] = {}
        for turn, tier in wish.changes.items():
            if tier is not None:
                try:
                    await self._source.planned(self._id, target_tokens=_ROOM, steers={turn: tier})
                except BadSetting as error:
                    found[turn] = str(error)
        return found
