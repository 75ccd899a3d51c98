"""The app: which screen is shown, who is told of changes, and what an error looks like."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from context_compactor.errors import CompactorError
from context_compactor.tui.registry import COMMANDS, PANES
from context_compactor.tui.screens.help import HelpScreen
from context_compactor.tui.screens.live import LiveScreen
from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.screens.sessions import SessionsScreen
from context_compactor.tui.source import Change, Source
from context_compactor.tui.texts import cut_line

_LONGEST = 1_000


def _wall_clock() -> datetime:
    return datetime.now(UTC)


class CompactorApp(App[None]):
    """Sessions of a source on a terminal."""

    TITLE = "Context Compactor"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help"),
        Binding("ctrl+t", "other_theme", "Light or dark", show=False),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(self, source: Source, session_id: str = "", *, now: Callable[[], datetime] = _wall_clock) -> None:
        super().__init__()
        self.source = source
        self.now = now
        """The time, for distances from it."""
        self.offline = ""
        """Why the source cannot be reached; empty while it can."""
        self._first = session_id

    def on_mount(self) -> None:
        """Show all sessions, or the one that was asked for over them, and follow changes."""
        self.push_screen(SessionsScreen())
        if self._first:
            self.show_session(self._first)
        self.run_worker(self._follow(), group="watch", exit_on_error=False)

    async def on_unmount(self) -> None:
        """Give back what is held."""
        await self.source.close()

    # Screens

    def show_session(self, session_id: str, pane: str = "") -> None:
        """One session."""
        self.push_screen(SessionScreen(session_id, pane))

    def show_sessions(self) -> None:
        """All sessions again."""
        while not isinstance(self.screen, SessionsScreen) and len(self.screen_stack) > 2:
            self.pop_screen()

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
                f"/{command.name}", command.words, lambda command=command: screen.enter(f"/{command.name} ")
            )

    # Changes and errors

    async def _follow(self) -> None:
        async for change in self.source.watch():
            self._tell(change)

    def _tell(self, change: Change) -> None:
        if change.offline != self.offline:
            self.offline = change.offline
            if not change.offline:
                self.notify("It answers again.", title="Online", markup=False)
        if change.told:
            self.notify(cut_line(change.told, _LONGEST), markup=False)
        for screen in self.screen_stack:
            if isinstance(screen, LiveScreen):
                screen.show_offline(self.offline)
                screen.changed(change)

    def tell_error(self, error: CompactorError) -> None:
        """An error is a message: what went wrong, and what to try."""
        self.notify(cut_line(str(error), _LONGEST), severity="error", markup=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """What nobody expected is a message as well."""
        self.tell_unexpected(event)

    def tell_unexpected(self, event: Worker.StateChanged) -> None:
        """Say that some work ended in an error that is none of ours. Whoever begins work calls this."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            error = event.worker.error
            words = f"{type(error).__name__}: {error}. Try: again; if it stays, please report it."
            self.notify(cut_line(words, _LONGEST), title="Unexpected", severity="error", markup=False)
