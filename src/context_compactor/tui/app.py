"""The app: which screen is shown, who is told of changes, and what an error looks like."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import ClassVar

from textual import events
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.geometry import Size
from textual.screen import Screen
from textual.worker import Worker

from context_compactor.errors import CompactorError
from context_compactor.tui.chat.chats import Chats
from context_compactor.tui.interrupting import InterruptedApp
from context_compactor.tui.plan.wish import Wish
from context_compactor.tui.registry import COMMANDS, PANES
from context_compactor.tui.screens.help import HelpScreen
from context_compactor.tui.screens.live import LiveScreen
from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.screens.sessions import SessionsScreen
from context_compactor.tui.screens.small import SmallScreen, is_too_small
from context_compactor.tui.source import Source
from context_compactor.tui.texts import cut_line
from context_compactor.tui.values import Change
from context_compactor.tui.widgets.entered import Entered

_LONGEST = 1_000
_REST_SECONDS = 2.0


def _wall_clock() -> datetime:
    return datetime.now(UTC)


class CompactorApp(InterruptedApp):
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
        source: Source,
        session_id: str = "",
        *,
        chats: Chats | None = None,
        now: Callable[[], datetime] = _wall_clock,
    ) -> None:
        super().__init__()
        self.source = source
        self.chats = chats or Chats()
        """With whom one talks, and what is being said."""
        self.now = now
        """The time, for distances from it."""
        self.offline = ""
        """Why the source cannot be reached; empty while it can."""
        self.plans: dict[str, Wish] = {}
        """Per session what is wished for in its plan."""
        self._entered: dict[str, Entered] = {}
        self._first = session_id

    def get_driver_class(self) -> type[Driver]:
        """On terminals of this machine, one that takes pastes as they are."""
        usual = super().get_driver_class()
        if usual.__name__ != "LinuxDriver":
            return usual
        from context_compactor.tui.terminal import TerminalDriver

        return TerminalDriver

    def on_mount(self) -> None:
        """Show all sessions, or the one that was asked for over them, and follow changes."""
        self.push_screen(SessionsScreen())
        if self._first:
            self.show_session(self._first, "chat" if self.chats.model else "")
        self._look_at(self.size)
        self.run_worker(self._follow(), group="watch", exit_on_error=False)

    async def on_unmount(self) -> None:
        """Give back what is held."""
        await self.chats.end()
        await self.source.close()

    # Screens

    def on_resize(self, event: events.Resize) -> None:
        """There may be no room for anything any more."""
        if len(self.screen_stack) > 1:
            self._look_at(event.size)

    def _look_at(self, size: Size) -> None:
        if is_too_small(size) and not any(isinstance(screen, SmallScreen) for screen in self.screen_stack):
            self.push_screen(SmallScreen())

    def show_session(self, session_id: str, pane: str = "") -> None:
        """One session."""
        self.push_screen(SessionScreen(session_id, pane))

    def show_sessions(self) -> None:
        """All sessions again."""
        while not isinstance(self.screen, SessionsScreen) and len(self.screen_stack) > 2:
            self.pop_screen()

    def screen_of(self, session_id: str) -> SessionScreen | None:
        """The screen of a session, if it is there, seen or under others."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, SessionScreen) and screen.session_id == session_id and screen.is_mounted:
                return screen
        return None

    def entered_in(self, session_id: str) -> Entered:
        """What was entered into the prompt of a session, and what is being written there."""
        return self._entered.setdefault(session_id, Entered())

    def action_help(self) -> None:
        """Words and keys."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    def action_other_theme(self) -> None:
        """From dark to light, and back."""
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

    # Changes and errors

    async def _follow(self) -> None:
        while True:
            try:
                async for change in self.source.watch():
                    self._tell(change)
            except Exception as error:  # noqa: BLE001  whatever it was, what happens next is still to be seen
                self.meet(error)
            await asyncio.sleep(_REST_SECONDS)

    def _tell(self, change: Change) -> None:
        if change.offline != self.offline:
            self.offline = change.offline
            if not change.offline and not (self.chats.has_made and not self.source.is_remote):
                self.notify("It answers again.", title="Online", markup=False)
        if change.told:
            self.notify(cut_line(change.told, _LONGEST), markup=False)
        for screen in self.screen_stack:
            if isinstance(screen, LiveScreen):  # later, since it may still be in the making
                screen.call_later(screen.show_offline, self.offline)
                screen.call_later(screen.changed, change)

    def tell_error(self, error: CompactorError) -> None:
        """An error is a message: what went wrong, and what to try."""
        self.notify(cut_line(str(error), _LONGEST), severity="error", markup=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """What nobody expected is a message as well."""
        self.tell_unexpected(event)
