"""What is shown while a command is under way, and what is said when it is cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from textual.worker import get_current_worker

from context_compactor.errors import CompactorError
from context_compactor.report import Report
from context_compactor.tui.reading import TextReading
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.screens.session_viewer import ViewerScreen
from context_compactor.tui.values import Piece
from context_compactor.tui.widgets.answer import Tone

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen

_TICK_SECONDS = 0.5


@contextmanager
def progress(screen: SessionScreen, words: str) -> Iterator[None]:
    """Say what goes on, and for how long."""
    worker, since = get_current_worker(), time.monotonic()

    def tick() -> None:
        what = "Cancelling" if worker.is_cancelled else words
        seconds = int(time.monotonic() - since)
        hint = "" if worker.is_cancelled else " · Ctrl-C cancels"
        screen.tell_progress(f"{what}… {seconds:,} s{hint}")

    timer = screen.app.set_interval(_TICK_SECONDS, tick)
    tick()
    try:
        yield
    finally:
        timer.stop()
        screen.tell_progress("")


@asynccontextmanager
async def cancellable(screen: SessionScreen, words: str) -> AsyncIterator[None]:
    """Something that may compact the session: say what goes on, and when it is cancelled, what that has left."""
    before = await _made(screen)
    try:
        with progress(screen, words):
            yield
    except asyncio.CancelledError:
        if not app_of(screen).is_leaving:
            await _tell_left(screen, before)
        raise


async def _tell_left(screen: SessionScreen, before: int) -> None:
    try:
        made = await _made(screen)
        if made == before:
            screen.tell("Cancelled: nothing was changed.", "warning")
            return
        done = (await app_of(screen).source.compactions(screen.session_id))[-1].report
        screen.tell(f"Too late to cancel. /undo takes it back.\n{done.answer()}", "warning")
        screen.action_reload()
    except CompactorError as error:
        screen.tell(f"Cancelled. What that has left cannot be looked at now: {error}", "warning")


async def _made(screen: SessionScreen) -> int:
    return (await app_of(screen).source.session(screen.session_id)).totals.compactions


def show(screen: SessionScreen, title: str, pieces: Sequence[Piece]) -> None:
    """Show what came out in the viewer, unless the session was left meanwhile."""
    app = app_of(screen)
    if app.screen_of(screen.session_id) is not None:
        app.push_screen(ViewerScreen(TextReading(title, pieces)))


def tell_compacted(screen: SessionScreen, report: Report, more: str = "") -> None:
    """Say what a compaction has done, and what else there is to say."""
    partly = f"\nIt could not go further: {report.reason}" if report.status == "partial" and report.changed else ""
    tone: Tone = "done" if report.changed else "failed" if report.status == "failed" else ""
    screen.tell(report.answer() + partly + more, tone)
