"""Running what was entered: a command or a chat message, its progress, and what a cancel has left."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from textual.worker import WorkType, get_current_worker

from context_compactor.engine.report import Report
from context_compactor.errors import CompactorError
from context_compactor.tui.commands.command import Command, nearest, quoted
from context_compactor.tui.screens.base import app_of
from context_compactor.tui.screens.viewer import TextDocument, ViewerScreen
from context_compactor.tui.sources.base import TextPiece
from context_compactor.tui.widgets.bars import Tone

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen


MessageSender = Callable[["SessionScreen", str], Awaitable[None]]


def run_entered(
    screen: SessionScreen, text: str, commands: Mapping[str, Command], talk: Sequence[MessageSender]
) -> bool:
    """Begin what was asked for; not so when something else is under way, and then nothing is begun."""
    if text == "?":
        app_of(screen).action_help()
        return True
    if not text.startswith("/") or text.startswith("//"):
        return _send(screen, text.removeprefix("/") if text.startswith("//") else text, talk)
    name, rest = re.split(r"\s+|$", text[1:], maxsplit=1)
    command = commands.get(name)
    if command is None:
        screen.show_message(_unknown_command(name, commands), "warning")
        return True
    if not command.is_read_only and not _is_free(screen):
        return False
    start_command(screen, command, rest.strip())
    return True


def start_command(screen: SessionScreen, command: Command, rest: str) -> None:
    """Run a command beside the screen, also when that is left meanwhile. What goes wrong is shown."""

    async def run() -> None:
        try:
            await command.run(screen, rest)
        except CompactorError as error:
            screen.show_message(f"{error}", "failed")

    group = "look" if command.is_read_only else "command"
    work: WorkType[None] = run
    name, description = screen.session_id, f"/{command.name}"
    app_of(screen).run_worker(work, name=name, group=group, description=description, exit_on_error=False)


def _send(screen: SessionScreen, text: str, talk: Sequence[MessageSender]) -> bool:
    if not _is_free(screen):
        return False
    screen.attempt(lambda: talk[-1](screen, text), "talk")
    return True


def _is_free(screen: SessionScreen) -> bool:
    busy = app_of(screen).busy_with(screen)
    if busy:
        screen.show_message(f"Not now: {busy} is under way. Try: again when it is done; Ctrl-C cancels it.", "warning")
    return not busy


def _unknown_command(name: str, commands: Mapping[str, Command]) -> str:
    near = nearest(name, commands)
    hint = f"; did you mean /{near[0]}?" if near else "; /help lists all of them."
    said = " To say it instead, begin with two slashes." if "/" in name else ""
    return f"{quoted('/' + name)} is not a command{hint}{said}"


_TICK_SECONDS = 0.5


@contextmanager
def show_progress(screen: SessionScreen, words: str) -> Iterator[None]:
    """Say what goes on, and for how long."""
    worker, since = get_current_worker(), time.monotonic()

    def tick() -> None:
        what = "Cancelling" if worker.is_cancelled else words
        seconds = int(time.monotonic() - since)
        hint = "" if worker.is_cancelled else " · Ctrl-C cancels"
        screen.show_progress_line(f"{what}… {seconds:,} s{hint}")

    timer = screen.app.set_interval(_TICK_SECONDS, tick)
    tick()
    try:
        yield
    finally:
        timer.stop()
        screen.show_progress_line("")


@asynccontextmanager
async def cancellable(screen: SessionScreen, words: str) -> AsyncIterator[None]:
    """Something that may compact the session: say what goes on, and when it is cancelled, what that has left."""
    before = await _compaction_count(screen)
    try:
        with show_progress(screen, words):
            yield
    except asyncio.CancelledError:
        if not app_of(screen).is_leaving:
            await _report_cancelled(screen, before)
        raise


async def _report_cancelled(screen: SessionScreen, before: int) -> None:
    try:
        made = await _compaction_count(screen)
        if made == before:
            screen.show_message("Cancelled: nothing was changed.", "warning")
            return
        done = (await app_of(screen).source.compactions(screen.session_id))[-1].report
        screen.show_message(f"Too late to cancel. /undo takes it back.\n{done.answer()}", "warning")
        screen.action_reload()
    except CompactorError as error:
        screen.show_message(f"Cancelled. What that has left cannot be looked at now: {error}", "warning")


async def _compaction_count(screen: SessionScreen) -> int:
    return (await app_of(screen).source.session(screen.session_id)).totals.compactions


def show_pieces(screen: SessionScreen, title: str, pieces: Sequence[TextPiece]) -> None:
    """Show what came out in the viewer, unless the session was left meanwhile."""
    app = app_of(screen)
    if app.screen_of(screen.session_id) is not None:
        app.push_screen(ViewerScreen(TextDocument(title, pieces)))


def report_compaction(screen: SessionScreen, report: Report, more: str = "") -> None:
    """Say what a compaction has done, and what else there is to say."""
    partly = f"\nIt could not go further: {report.reason}" if report.status == "partial" and report.changed else ""
    tone: Tone = "done" if report.changed else "failed" if report.status == "failed" else ""
    screen.show_message(report.answer() + partly + more, tone)
