"""The terminal UI as a surface: what is said is typed into its chat, and a scripted model answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from textual.pilot import Pilot
from textual.widget import Widget

from context_compactor.sessions.session import Session
from context_compactor.tui.app import CompactorApp
from context_compactor.tui.chat.chats import Chats
from context_compactor.tui.chat.models import ModelChoice
from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.sources.local import LocalSource
from context_compactor.tui.widgets.bars import Gauge
from context_compactor.tui.widgets.prompt import PromptInput
from tests.acceptance.surfaces import NAME, WINDOW, Raw, Turn, raws
from tests.llm.provider import Provider
from tests.tui.chatting import name_of, reply
from tests.tui.places import NOW, SMALL, URL, enter, press, screen_text, settle, until

Story = Callable[[Pilot[None]], Awaitable[str]]


class InTerminal:
    """The app is opened once and stays open; each verb is what a user does there."""

    def __init__(self) -> None:
        self._provider = Provider()
        self._runner = asyncio.Runner()
        self._opened = AsyncExitStack()
        self._pilot: Pilot[None] | None = None

    def close(self) -> None:
        """The user leaves, and the model goes."""
        self._runner.run(self._opened.aclose())
        self._runner.close()
        self._provider.close()

    def _play(self, story: Story) -> str:
        """What a story in the app finds; between two stories nothing moves there."""
        return self._runner.run(self._played(story))

    async def _played(self, story: Story) -> str:
        if self._pilot is None:
            chats = Chats(ModelChoice(name_of(self._provider), WINDOW, "--model"))
            app = CompactorApp(LocalSource(URL, look_seconds=0.05), NAME, chats=chats, now=lambda: NOW)
            app.animation_level = "none"
            self._pilot = await self._opened.enter_async_context(app.run_test(size=SMALL, notifications=True))
            await settle(self._pilot)
        return await story(self._pilot)

    def say(self, *turns: Turn) -> None:
        """An agent goes on in the session, and the user types the last turn and hears the answer."""
        provider, (question, answer) = self._provider, turns[-1]
        provider.replies = [*provider.replies, reply(answer, counted=False)]
        with Session.open(NAME, window=WINDOW, store=URL) as session:
            session.append(raws(turns[:-1]))

        async def story(pilot: Pilot[None]) -> str:
            _choose(pilot, "chat")
            pilot.app.screen.query_one(PromptInput).focus()
            asked = len(provider.bodies)
            await enter(pilot, question)
            assert len(provider.bodies) == asked + 1, screen_text(pilot)
            return screen_text(pilot)

        self._play(story)

    def compact(self) -> str:
        """`/compact`."""
        return self._play(_compacted)

    def looked_on(self) -> tuple[str, str]:
        """The screen in which it is entered."""

        async def after(pilot: Pilot[None]) -> str:
            gauge = pilot.app.screen.query_one(Gauge)
            status = gauge.status
            await _compacted(pilot)
            await until(pilot, lambda: gauge.status is not status)
            await settle(pilot)
            return screen_text(pilot)

        return self._play(_seen), self._play(after)

    def shown_compactions(self) -> str:
        """Each compaction of the pane, with the report that is under the list."""

        async def story(pilot: Pilot[None]) -> str:
            _choose(pilot, "compactions").focus()
            newest = await _seen(pilot)
            await press(pilot, "up")
            return f"{newest}\n{screen_text(pilot)}"

        return self._play(story)

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


async def _seen(pilot: Pilot[None]) -> str:
    """What stands on the screen when nothing moves any more."""
    await settle(pilot)
    return screen_text(pilot)


async def _compacted(pilot: Pilot[None]) -> str:
    """Enter the command; what is then said over the prompt."""
    pilot.app.screen.query_one(PromptInput).focus()
    await enter(pilot, "/compact")
    return screen_text(pilot)


def _kept(verb: Callable[[Session], Any]) -> Any:
    with Session.open(NAME, store=URL) as session:
        return verb(session)
