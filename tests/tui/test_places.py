"""What the tests of the terminal UI rely on."""

from __future__ import annotations

import asyncio
from itertools import count

from textual.app import App, ComposeResult
from textual.message import Message
from textual.widget import Widget

from tests.tui.places import settle
from tests.waiting import until


class Asked(Message):
    """Something to do."""


class Slow(Widget):
    """Takes as long for a message as it is let, and then begins some work."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on, self.finish = asyncio.Event(), asyncio.Event()
        self.done: list[str] = []

    async def on_asked(self) -> None:
        self.done.append("begun")
        await self.go_on.wait()
        self.run_worker(self._work())

    async def _work(self) -> None:
        self.done.append("working")
        await self.finish.wait()
        self.done.append("worked")


class _App(App[None]):
    def compose(self) -> ComposeResult:
        yield Slow()


def test_what_follows_from_a_message_that_is_still_being_handled_is_waited_for():
    async def run() -> None:
        async with _App().run_test() as pilot:
            slow = pilot.app.query_one(Slow)
            slow.post_message(Asked())
            await until(lambda: slow.done == ["begun"])  # the message is in no queue any more
            settling = asyncio.create_task(settle(pilot))
            looks = count()
            await until(lambda: next(looks) > 20, pause=0.01)  # many times as often as it looks by itself
            slow.go_on.set()
            await until(lambda: slow.done == ["begun", "working"])
            await until(lambda: next(looks) > 40, pause=0.01)
            assert not settling.done()
            slow.finish.set()
            await settling
            assert slow.done == ["begun", "working", "worked"]

    asyncio.run(run())
