"""Talk with a scripted provider in the store of this folder, on a screen and without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

from textual.pilot import Pilot

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.legality import find_violations
from context_compactor.tui.app import CompactorApp
from context_compactor.tui.chat.chats import ChatExchange, Chats
from context_compactor.tui.chat.models import ModelChoice
from context_compactor.tui.panes.chat import ChatPane
from context_compactor.tui.sources.base import SessionSource
from context_compactor.tui.sources.local import LocalSource
from context_compactor.tui.widgets.prompt import PromptInput
from tests.llm.formats import OpenAIFormat
from tests.llm.provider import Provider, Reply
from tests.tui.places import NOW, SHOWN, SMALL, URL, Story, settle

Raw = dict[str, Any]
OPENAI = OpenAIFormat()


def reply(*pieces: str, end: str = "complete", counted: bool = True) -> Reply:
    """An answer in these pieces. The script always tells the same usage; unless `counted` it tells none."""
    stop, usage, done = OPENAI.end(end)
    return Reply(pieces=[*OPENAI.text(*pieces), stop, *([usage] if counted else []), done])


def answers(*texts: str) -> list[Reply]:
    """One answer after the other."""
    return [reply(text) for text in texts]


def name_of(provider: Provider) -> str:
    """The scripted provider as the user names it."""
    return f"{provider.url}/v1#scripted"


class Place:
    """A session in which one can talk; it is made with the first word."""

    def __init__(
        self, provider: Provider, session_id: str = "chat", *, window: int = 8_000, source: SessionSource | None = None
    ) -> None:
        self.source: SessionSource = source or LocalSource(URL, look_seconds=0.05)
        self.session_id = session_id
        self.chats = Chats(ModelChoice(name_of(provider), window, "--model"))
        self.chats.expect(session_id)

    async def say(self, text: str = "") -> ChatExchange:
        """One exchange; without words, the answer to those said last."""
        exchange = ChatExchange(text)
        await exchange.run(self.source, self.session_id, self.chats)
        return exchange

    async def history(self) -> list[Raw]:
        return (await self.source.history(self.session_id, 0, 1_000)).messages

    async def talked(self) -> list[tuple[str, str]]:
        return [(raw["role"], raw["content"]) for raw in await self.history()]


def run(story: Callable[[], Awaitable[None]], *places: Place) -> None:
    """Play a story without a screen, and close what it used."""

    async def play() -> None:
        try:
            await story()
        finally:
            for place in places:
                await place.source.close()

    asyncio.run(play())


def assert_valid(body: Raw, wire: str = "openai-chat") -> None:
    """What was sent is what its provider takes, and what any other would: plain talk that alternates."""
    said: Sequence[Raw] = body["messages"]
    dialect = find_dialect(wire, said)
    assert find_violations(dialect.parse(list(said)), dialect) == []
    roles = [message["role"] for message in said if message["role"] != "system"]
    assert roles[0] == roles[-1] == "user"
    assert all(one != other for one, other in pairwise(roles))
    assert [at for at, message in enumerate(said) if message["role"] == "system"] in ([], [0])
    assert all(set(message) == {"role", "content"} and message["content"] for message in said)


def show(
    story: Story,
    provider: Provider,
    session_id: str = "chat",
    *,
    window: int | None = 8_000,
    size: tuple[int, int] = SMALL,
    source: SessionSource | None = None,
    model: str = "",
    settles: bool = True,
) -> None:
    """Run the app with the chat of a session, which is made with the first word, and a story in it."""

    async def play() -> None:
        chats = Chats(ModelChoice(model or name_of(provider), window, "--model"))
        chats.expect(session_id)
        app = CompactorApp(source or LocalSource(URL, look_seconds=0.05), session_id, chats=chats, now=lambda: NOW)
        app.animation_level = "none"
        SHOWN.append(app)
        async with app.run_test(size=size, notifications=True) as pilot:
            await settle(pilot)
            await story(pilot)
            if settles:
                await settle(pilot)

    asyncio.run(play())


def pane(pilot: Pilot[None]) -> ChatPane:
    """The chat that is seen."""
    return pilot.app.screen.query_one(ChatPane)


def prompt(pilot: Pilot[None]) -> str:
    """What stands in the prompt."""
    return pilot.app.screen.query_one(PromptInput).value


async def send(pilot: Pilot[None], text: str) -> None:
    """Write something and send it, without waiting for what comes of it."""
    field = pilot.app.screen.query_one(PromptInput)
    field.focus()
    field.paste(text)
    await pilot.pause(0)
    await pilot.press("enter")
