"""The end of a plan: what was chosen is kept in the session, and the session is compacted as it was planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from context_compactor.classify.tier import Tier
from context_compactor.figures import plural
from context_compactor.tui.commands.doing import cancellable, tell_compacted
from context_compactor.tui.plan.wish import Wish
from context_compactor.tui.screens.live import app_of

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen
    from context_compactor.tui.source import Source


async def keep(source: Source, session_id: str, kept: Mapping[int, Tier], wish: Wish) -> None:
    """Keep the steers of a wish, all of them or none."""
    try:
        for turn, tier in wish.changes.items():
            if tier is None:
                await source.unsteer(session_id, turn)
            else:
                await source.steer(session_id, turn, tier)
    except BaseException:
        await put_back(source, session_id, kept, wish)
        raise


async def put_back(source: Source, session_id: str, kept: Mapping[int, Tier], wish: Wish) -> None:
    """Have the steers again that were kept before."""
    for turn in wish.changes:
        if turn in kept:
            await source.steer(session_id, turn, kept[turn])
        else:
            await source.unsteer(session_id, turn)


async def tell_kept(screen: SessionScreen, kept: Mapping[int, Tier], wish: Wish) -> None:
    """Keep the steers without compacting, and say so."""
    await keep(app_of(screen).source, screen.session_id, kept, wish)
    screen.tell(f"{plural(len(wish.changes), 'steer')} kept: every compaction of this session follows.", "done")


async def accept(screen: SessionScreen, kept: Mapping[int, Tier], wish: Wish) -> None:
    """Keep the steers and compact. When that is cancelled or fails, the steers are as they were before, too."""
    source, session_id = app_of(screen).source, screen.session_id
    async with cancellable(screen, "Compacting as planned"):
        await keep(source, session_id, kept, wish)
        try:
            report = await source.compact(
                session_id, level=wish.level, target_tokens=wish.target_tokens, focus=wish.focus
            )
        except BaseException:
            await put_back(source, session_id, kept, wish)
            raise
    steers = f"\n{plural(len(wish.changes), 'steer')} kept." if wish.changes else ""
    tell_compacted(screen, report, steers)
