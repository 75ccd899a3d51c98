"""A pane of one session: filled when it is first looked at, filled again when the session has changed."""

from __future__ import annotations

from textual.containers import Vertical
from textual.css.query import NoMatches
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

from context_compactor.errors import CompactorError
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.source import Source
from context_compactor.tui.texts import safe


class Pane(Vertical):
    """Give it a `load` that asks the source and shows what it answers. Only one runs at a time."""

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self.session_id = session_id
        self._is_fresh = False
        self._is_loading = False
        self._again = False

    @property
    def source(self) -> Source:
        """Where everything comes from."""
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

    def look(self) -> None:
        """The pane is looked at: fill it unless it is fresh."""
        if not self._is_fresh:
            self.reload()

    def turn_stale(self, *, is_seen: bool) -> None:
        """The session has changed."""
        self._is_fresh = False
        if is_seen:
            self.reload()

    def reload(self) -> None:
        """Fill the pane; while it is being filled, once more behind that."""
        self._is_fresh = True
        if self._is_loading:
            self._again = True
            return
        self._is_loading = True
        self.run_worker(self._load(), group="load", exit_on_error=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """What nobody expected is a message."""
        app_of(self).tell_unexpected(event)

    async def _load(self) -> None:
        try:
            while True:
                self._again = False
                try:
                    await self.load()
                except CompactorError as error:
                    self.say(f"{error}")
                if not self._again:
                    return
        finally:
            self._is_loading = False

    def say(self, text: str) -> None:
        """Words in the place of what is not there, where the pane has a `note`; none takes them away."""
        try:
            note = self.query_one(".note", Static)
        except NoMatches:
            return
        note.update(safe(text))
        note.display = bool(text)


def note() -> Static:
    """Where a pane says what is not there."""
    return Static("Reading…", classes="note", markup=False)
