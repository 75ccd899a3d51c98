"""What all screens have in common: they follow changes, say when the source cannot be reached, and tell errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import Worker

from context_compactor.errors import CompactorError
from context_compactor.tui.texts import cut_line
from context_compactor.tui.values import Change

if TYPE_CHECKING:
    from context_compactor.tui.app import CompactorApp

_LONGEST = 600


def app_of(node: DOMNode) -> CompactorApp:
    """The app, as what it is."""
    return cast("CompactorApp", node.app)


class LiveScreen(Screen[None]):
    """A screen that is told of changes."""

    def __init__(self) -> None:
        super().__init__()
        self._under_way: set[str] = set()
        self._once_more: set[str] = set()

    def changed(self, change: Change) -> None:
        """Something is no longer as it was."""
        raise NotImplementedError

    def show_offline(self, why: str) -> None:
        """Say over everything that what is shown may be old, or no longer say so."""
        try:
            banner = self.query_one("#offline", Static)
        except NoMatches:
            return
        banner.update(f"offline, and what is shown may be old: {cut_line(why, _LONGEST)}" if why else "")
        banner.display = bool(why)

    def on_mount(self) -> None:
        """Begin with what is known."""
        self.show_offline(app_of(self).offline)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """What nobody expected is a message."""
        app_of(self).tell_unexpected(event)

    def attempt(self, work: Callable[[], Awaitable[None]], group: str = "work") -> Worker[None]:
        """Do something beside the screen; what goes wrong is told and ends nothing."""

        async def told() -> None:
            try:
                await work()
            except CompactorError as error:
                app_of(self).tell_error(error)

        return self.run_worker(told(), group=group, exit_on_error=False)

    def keep_up(self, work: Callable[[], Awaitable[None]], group: str) -> None:
        """The same with what is done again at every change: while it is being done, it is done once more behind that.

        However long it takes and however often it is asked for, it never piles up.
        """
        if group in self._under_way:
            self._once_more.add(group)
            return
        self._under_way.add(group)

        async def until_it_is_now() -> None:
            try:
                self._once_more.add(group)
                while group in self._once_more:
                    self._once_more.discard(group)
                    await work()
            finally:
                self._under_way.discard(group)

        self.attempt(until_it_is_now, group)


def offline_banner() -> Static:
    """The line that says so."""
    banner = Static(id="offline", markup=False)
    banner.display = False
    return banner
