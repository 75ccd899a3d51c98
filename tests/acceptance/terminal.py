"""The terminal UI as a surface: what is said is typed into its chat, and a scripted model answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from textual.pilot import Pilot
from textual.widget import Widget

from context_compactor.session.session import Session
from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.widgets.gauge import Gauge
from context_compactor.tui.widgets.prompt import Prompt
from tests.acceptance.surfaces import NAME, WINDOW, Raw, Turn, raws
from tests.llm.provider import Provider
from tests.tui.places import URL, WIDE, enter, press, screen_text, settle, until
from tests.tui.talking import reply, show

TYPED = 3


class InTerminal:
    """Each verb opens the app, does what a user does there, and leaves it."""

    def __init__(self) -> None:
        self._provider = Provider()

    def close(self) -> None:
        """The model goes."""
        self._provider.close()

    def _show(self, story: Callable[[Pilot[None]], Awaitable[None]]) -> None:
        show(story, self._provider, NAME, window=WINDOW, size=WIDE)

    def say(self, *turns: Turn) -> None:
        """An agent goes on in the session, and the user types the last few turns and hears the answers."""
        provider, typed = self._provider, turns[-TYPED:]
        provider.replies = [*provider.replies, *(reply(answer, counted=False) for _, answer in typed)]
        with Session.open(NAME, window=WINDOW, store=URL) as session:
            session.append(raws(turns[:-TYPED]))

        async def story(pilot: Pilot[None]) -> None:
            _choose(pilot, "chat")
            pilot.app.screen.query_one(Prompt).focus()
            for question, _ in typed:
                asked = len(provider.bodies)
                await enter(pilot, question)
                assert len(provider.bodies) == asked + 1, screen_text(pilot)

        self._show(story)

    def compact(self) -> str:
        """`/compact`."""
        told: list[str] = []

        async def story(pilot: Pilot[None]) -> None:
            told.append(await _compacted(pilot))

        self._show(story)
        return told[0]

    def looked_on(self) -> tuple[str, str]:
        """The screen in which it is entered."""
        shown: list[str] = []

        async def story(pilot: Pilot[None]) -> None:
            gauge = pilot.app.screen.query_one(Gauge)
            shown.append(screen_text(pilot))
            standing = gauge.standing
            await _compacted(pilot)
            await until(pilot, lambda: gauge.standing is not standing)
            await settle(pilot)
            shown.append(screen_text(pilot))

        self._show(story)
        before, after = shown
        return before, after

    def shown_compactions(self) -> str:
        """Each compaction of the pane, with the report that is under the list."""
        shown: list[str] = []

        async def story(pilot: Pilot[None]) -> None:
            _choose(pilot, "compactions").focus()
            await settle(pilot)
            shown.append(screen_text(pilot))
            await press(pilot, "up")
            shown.append(screen_text(pilot))

        self._show(story)
        return "\n".join(shown)

    def context(self) -> list[Raw]:
        """What the model is shown now."""
        return _kept(Session.context)

    def history(self) -> list[Raw]:
        """Everything that was said."""
        return _kept(Session.history)

    def compactions(self) -> list[Raw]:
        """The reports that are kept with the session."""
        return [msgspec.to_builtins(report) for report in _kept(Session.compactions)]


def _choose(pilot: Pilot[None], pane: str) -> Widget:
    """Show a pane; what has the focus in it."""
    screen = pilot.app.screen
    assert isinstance(screen, SessionScreen)
    first = screen.show_pane(pane).first_widget()
    assert first is not None
    return first


async def _compacted(pilot: Pilot[None]) -> str:
    """Enter the command; what is then said over the prompt."""
    await press(pilot, "slash")
    await enter(pilot, "compact")
    return screen_text(pilot)


def _kept(verb: Callable[[Session], Any]) -> Any:
    with Session.open(NAME, store=URL) as session:
        return verb(session)
