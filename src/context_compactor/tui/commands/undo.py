"""`/undo` and `/redo`: take the last compaction back, or make it count again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_compactor.tui.commands.command import Command, nothing_behind
from context_compactor.tui.screens.live import app_of

if TYPE_CHECKING:
    from context_compactor.report import Report
    from context_compactor.tui.screens.session import SessionScreen


async def undo(screen: SessionScreen, rest: str) -> None:
    """Take the last compaction back."""
    nothing_behind("undo", rest)
    before = await _tokens(screen)
    report = await app_of(screen).source.undo(screen.session_id)
    await _tell(screen, report, before, "was taken back", "There is no compaction to take back.")


async def redo(screen: SessionScreen, rest: str) -> None:
    """Take the last undo back."""
    nothing_behind("redo", rest)
    before = await _tokens(screen)
    report = await app_of(screen).source.redo(screen.session_id)
    await _tell(screen, report, before, "counts again", "There is no undo to take back.")


async def _tell(screen: SessionScreen, report: Report | None, before: int, done: str, nothing: str) -> None:
    if report is None:
        screen.tell(nothing)
        return
    screen.tell(f"✓ {report.compaction_id} {done}\nTokens: {before:,} → {await _tokens(screen):,}", "done")
    screen.action_reload()


async def _tokens(screen: SessionScreen) -> int:
    return (await app_of(screen).source.session(screen.session_id)).line.tokens


UNDO = Command("undo", "Take the last compaction back.", undo)
REDO = Command("redo", "Take the last undo back.", redo)
