"""`/compact` and `/plan`: make the context smaller, or see first what that would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_compactor.tui.commands.command import Command
from context_compactor.tui.commands.doing import cancellable, tell_compacted
from context_compactor.tui.commands.wish import ARGUMENTS, MORE, choices, read_wish
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.screens.session_plan import PlanPane

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen


async def compact(screen: SessionScreen, rest: str) -> None:
    """Compact now, and say what that has done."""
    wish = await read_wish(screen, "compact", rest)
    source = app_of(screen).source
    model = (await source.settings(screen.session_id)).get("model")
    async with cancellable(screen, f"Compacting with {model}" if model else "Compacting"):
        report = await source.compact(
            screen.session_id, level=wish.level, target_tokens=wish.target_tokens, focus=wish.focus
        )
    tell_compacted(screen, report)
    screen.action_reload()


async def plan(screen: SessionScreen, rest: str) -> None:
    """Show what a compaction would do."""
    wish = await read_wish(screen, "plan", rest)
    pane = screen.show_pane("plan")
    if isinstance(pane, PlanPane):
        pane.preview(wish.level, wish.target_tokens, wish.focus)
        pane.rows.focus()  # its keys are what one wants next


COMPACT = Command(
    "compact", "Make the context smaller now; a focus says what matters.", compact, ARGUMENTS, choices, MORE
)
PLAN = Command("plan", "See what that would do, and change it.", plan, ARGUMENTS, choices, MORE, only_looks=True)
