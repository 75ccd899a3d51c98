"""What screens and panes have in common: they follow changes, load once at a time, and show errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from textual.containers import Vertical
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

from context_compactor.errors import CompactorError
from context_compactor.tui.formatting import cut_line, safe_text
from context_compactor.tui.sources.base import SessionSource, SourceChange

if TYPE_CHECKING:
    from context_compactor.tui.app import CompactorApp


_MAX_MESSAGE = 600


def app_of(node: DOMNode) -> CompactorApp:
    """The app, as what it is."""
    return cast("CompactorApp", node.app)


class LatestRun:
    """Some work that is done again at every change: what is asked for while it is done is done once more behind it.

    However long it takes and however often it is asked for, it never piles up.
    """

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._is_running = self._is_asked = False

    def request(self) -> bool:
        """Ask for it; whether `run` has to be started for that."""
        self._is_asked = True
        must_start, self._is_running = not self._is_running, True
        return must_start

    async def run(self) -> None:
        """Do it until nobody has asked for it once more."""
        try:
            while self._is_asked:
                self._is_asked = False
                await self._work()
        finally:
            self._is_running = self._is_asked = False


class LiveScreen(Screen[None]):
    """A screen that follows changes."""

    def changed(self, change: SourceChange) -> None:
        """Something is no longer as it was."""
        raise NotImplementedError

    def show_offline(self, why: str) -> None:
        """Say over everything that what is shown may be old, or no longer say so."""
        try:
            banner = self.query_one("#offline", Static)
        except NoMatches:
            return
        banner.update(f"offline, and what is shown may be old: {cut_line(why, _MAX_MESSAGE)}" if why else "")
        banner.display = bool(why)

    def on_mount(self) -> None:
        self.show_offline(app_of(self).offline)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        app_of(self).report_worker_error(event)

    def attempt(self, work: Callable[[], Awaitable[None]], group: str = "work") -> Worker[None]:
        """Do something beside the screen; what goes wrong is shown and ends nothing."""

        async def guarded() -> None:
            try:
                await work()
            except CompactorError as error:
                app_of(self).show_error(error)

        return self.run_worker(guarded(), group=group, exit_on_error=False)


def offline_banner() -> Static:
    """The line that says so."""
    banner = Static(id="offline", markup=False)
    banner.display = False
    return banner


class Pane(Vertical):
    """Give it a `load` that asks the source and shows what it answers. Only one runs at a time."""

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self.session_id = session_id
        self._is_fresh = False
        self._loading = LatestRun(self._load)

    @property
    def source(self) -> SessionSource:
        return app_of(self).source

    async def load(self) -> None:
        """Ask and show. A `CompactorError` is shown in its place."""
        raise NotImplementedError

    def first_widget(self) -> Widget | None:
        """What has the focus when the pane is chosen: the first that can have it."""
        return next((each for each in self.query("*") if each.focusable), None)

    def look_back(self, by: int) -> bool:  # noqa: ARG002
        """A page up or down while the prompt is written into; not so where that means nothing."""
        return False

    def activate(self) -> None:
        """The pane is looked at: fill it unless it is fresh."""
        if not self._is_fresh:
            self.reload()

    def mark_stale(self, *, is_seen: bool) -> None:
        """The session has changed."""
        self._is_fresh = False
        if is_seen:
            self.reload()

    def reload(self) -> None:
        """Fill the pane; while it is being filled, once more behind that."""
        self._is_fresh = True
        if self._loading.request():
            self.run_worker(self._loading.run(), group="load", exit_on_error=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        app_of(self).report_worker_error(event)

    async def _load(self) -> None:
        try:
            await self.load()
        except CompactorError as error:
            self.say(f"{error}")

    def say(self, text: str) -> None:
        """Words in the place of what is not there, where the pane has a `note`; none takes them away."""
        try:
            note = self.query_one(".note", Static)
        except NoMatches:
            return
        note.update(safe_text(text))
        note.display = bool(text)


def placeholder() -> Static:
    """Where a pane says what is not there."""
    return Static("Reading…", classes="note", markup=False)
