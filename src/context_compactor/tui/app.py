"""The app: which screen is shown, what Ctrl-C does, which screens follow changes, and what an error looks like."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar

from textual import events
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.geometry import Size
from textual.screen import Screen
from textual.widgets import Input, TextArea
from textual.worker import Worker

from context_compactor.errors import CompactorError
from context_compactor.sessions.core import wall_clock
from context_compactor.tui.chat.chats import Chats
from context_compactor.tui.formatting import cut_line
from context_compactor.tui.plan_editor import PlanDraft
from context_compactor.tui.registry import COMMANDS, PANES
from context_compactor.tui.runtime import KeyQueueApp
from context_compactor.tui.screens.base import LiveScreen
from context_compactor.tui.screens.dialogs import SmallScreen, is_too_small
from context_compactor.tui.screens.help import HelpScreen
from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.screens.sessions import SessionsScreen
from context_compactor.tui.sources.base import SessionSource, SourceChange
from context_compactor.tui.widgets.prompt import PromptHistory, PromptInput

_LEAVE_SECONDS = 2.0
_CANCELLABLE_GROUPS = ("command", "talk")
_MAX_MESSAGE = 1_000
_RETRY_SECONDS = 2.0


class CompactorApp(KeyQueueApp):
    """Sessions of a source on a terminal."""

    TITLE = "Context Compactor"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help"),
        Binding("ctrl+t", "other_theme", "Light or dark", show=False),
        Binding("ctrl+c", "interrupt", "Cancel, empty, leave", show=False, priority=True),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(
        self,
        source: SessionSource,
        session_id: str = "",
        *,
        chats: Chats | None = None,
        now: Callable[[], datetime] = wall_clock,
    ) -> None:
        super().__init__()
        self.source = source
        self.chats = chats or Chats()
        """With whom one talks, and what is being said."""
        self.now = now
        """The time, for distances from it."""
        self.offline = ""
        """Why the source cannot be reached; empty while it can."""
        self.plans: dict[str, PlanDraft] = {}
        """Per session the draft of its plan."""
        self._entered: dict[str, PromptHistory] = {}
        self._first = session_id
        self._asked_to_leave = -math.inf

    def get_driver_class(self) -> type[Driver]:
        """On terminals of this machine, one that takes pastes as they are."""
        usual = super().get_driver_class()
        if usual.__name__ == "LinuxDriver":
            with suppress(ImportError):  # a Textual whose parts are elsewhere: pastes are then as it takes them
                from context_compactor.tui.driver import TerminalDriver

                return TerminalDriver
        return usual

    def on_mount(self) -> None:
        """Show all sessions, or the one that was asked for over them, and follow changes."""
        self.push_screen(SessionsScreen())
        if self._first:
            self.show_session(self._first, "chat" if self.chats.model else "")
        self._check_size(self.size)
        self.run_worker(self._follow(), group="watch", exit_on_error=False)

    async def on_unmount(self) -> None:
        """End what is under way, and close the source."""
        await self.chats.end()
        await self.source.close()

    # Screens

    def on_resize(self, event: events.Resize) -> None:
        """There may be no room for anything any more."""
        if len(self.screen_stack) > 1:
            self._check_size(event.size)

    def _check_size(self, size: Size) -> None:
        if is_too_small(size) and not any(isinstance(screen, SmallScreen) for screen in self.screen_stack):
            self.push_screen(SmallScreen())

    def show_session(self, session_id: str, pane: str = "") -> None:
        self.push_screen(SessionScreen(session_id, pane))

    def show_sessions(self) -> None:
        while not isinstance(self.screen, SessionsScreen) and len(self.screen_stack) > 2:
            self.pop_screen()

    def screen_of(self, session_id: str) -> SessionScreen | None:
        """The screen of a session, if it is there, seen or under others."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, SessionScreen) and screen.session_id == session_id and screen.is_mounted:
                return screen
        return None

    def prompt_history(self, session_id: str) -> PromptHistory:
        """What was entered into the prompt of a session, and what is being written there."""
        return self._entered.setdefault(session_id, PromptHistory())

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    def action_other_theme(self) -> None:
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What the command palette offers besides: panes and commands of a session."""
        yield from super().get_system_commands(screen)
        if not isinstance(screen, SessionScreen):
            return
        for spec in PANES:
            yield SystemCommand(
                f"Show {spec.title}", f"The pane {spec.title}", lambda spec=spec: screen.show_pane(spec.id)
            )
        for command in COMMANDS.values():
            yield SystemCommand(
                f"/{command.name}", command.words, lambda command=command: screen.enter(command.offer().line)
            )

    # What is under way, and Ctrl-C

    def busy_with(self, screen: SessionScreen) -> str:
        """What is under way in a session, in words; empty when nothing is."""
        for worker in self._works(screen):
            return worker.description if worker.group == "command" else "the answer"
        return ""

    def action_interrupt(self) -> None:
        if self._copy():
            return
        here = next((each for each in reversed(self.screen_stack) if isinstance(each, SessionScreen)), None)
        works = [worker for worker in self._works(here) if not worker.is_cancelled]
        for worker in works:
            worker.cancel()
        if not works and not self._empty():
            self._leave_at_the_second()

    def _works(self, screen: SessionScreen | None) -> Iterator[Worker[Any]]:
        """What is under way in a session, or anywhere when none is shown."""
        for worker in self.workers:
            is_here = screen is None or worker.name == screen.session_id or screen in worker.node.ancestors_with_self
            if is_here and worker.group in _CANCELLABLE_GROUPS and not worker.is_finished:
                yield worker

    def _copy(self) -> bool:
        field = self.focused
        selected = field.selected_text if isinstance(field, (Input, TextArea)) else ""
        selected = selected or self.screen.get_selected_text() or ""
        if selected:
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()  # so that the next one goes on
            if isinstance(field, TextArea):
                field.move_cursor(field.cursor_location)
            elif isinstance(field, Input):
                field.cursor_position = field.cursor_position
            self.notify(f"{len(selected):,} characters copied.", timeout=_LEAVE_SECONDS, markup=False)
        return bool(selected)

    def _empty(self) -> bool:
        """Empty the field that is written into, or the prompt of the screen; says whether there was anything."""
        field = self.focused
        if isinstance(field, Input) and field.value:
            field.value = ""
            return True
        return isinstance(self.screen, SessionScreen) and self.screen.query_one(PromptInput).empty()

    def _leave_at_the_second(self) -> None:
        now = time.monotonic()
        if now - self._asked_to_leave < _LEAVE_SECONDS:
            self.exit()
        self._asked_to_leave = now
        self.notify("Ctrl-C again leaves.", timeout=_LEAVE_SECONDS, markup=False)

    # Changes and errors

    async def _follow(self) -> None:
        while True:
            try:
                async for change in self.source.watch():
                    self._show_change(change)
            except Exception as error:  # noqa: BLE001  whatever it was, what happens next is still to be seen
                self.report_unexpected(error)
            await asyncio.sleep(_RETRY_SECONDS)

    def _show_change(self, change: SourceChange) -> None:
        if change.offline != self.offline:
            self.offline = change.offline
            if not change.offline and not (self.chats.has_created_session and not self.source.is_remote):
                self.notify("It answers again.", title="Online", markup=False)
        if change.message:
            self.notify(cut_line(change.message, _MAX_MESSAGE), markup=False)
        for screen in self.screen_stack:
            if isinstance(screen, LiveScreen):  # later, since it may still be in the making
                screen.call_later(screen.show_offline, self.offline)
                screen.call_later(screen.changed, change)

    def show_error(self, error: CompactorError) -> None:
        """An error is a message: what went wrong, and what to try."""
        self.notify(cut_line(str(error), _MAX_MESSAGE), severity="error", markup=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        self.report_worker_error(event)
