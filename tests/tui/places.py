"""Stores to look at, an app that runs over one of them, and what is then on the screen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import structs
from textual.app import App
from textual.command import CommandList
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from context_compactor.sessions.session import Session
from context_compactor.settings import Settings
from context_compactor.tui.app import CompactorApp
from context_compactor.tui.panes.chat import ChatPane
from context_compactor.tui.registry import PANES
from context_compactor.tui.sources.base import SessionSource
from context_compactor.tui.sources.local import LocalSource
from context_compactor.tui.widgets.prompt import PromptInput
from context_compactor.tui.widgets.row_list import RowList
from tests import waiting
from tests.sessions.talk import messages

URL = "sqlite:///sessions.db"
"""Relative, so that what is shown of it is the same everywhere."""
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
SMALL, WIDE = (80, 24), (140, 40)
SIZES = [SMALL, WIDE]
CALM = Settings(idle_seconds=0, promote_to_memory=False)
SHOWN: list[CompactorApp] = []
"""The apps of this test."""

Raw = dict[str, Any]
Story = Callable[[Pilot[None]], Awaitable[None]]


def filled(
    name: str, said: Sequence[Raw], window: int = 3_000, age: timedelta = timedelta(hours=1), **settings: Any
) -> None:
    """A session in the store of this folder, in which that was said one message after the other."""
    written = json.dumps(said), window, age, tuple(settings.items())
    if Path("sessions.db").exists():
        _fill(name, *written)
    else:  # a store that holds nothing else is made once and then copied
        copytree(_filled(name, *written).name, Path(), dirs_exist_ok=True)


def a_few_sessions() -> None:
    """One that was compacted several times, one that is almost full, one in which nothing happened yet."""
    copytree(_made().name, Path(), dirs_exist_ok=True)


@cache
def _made() -> TemporaryDirectory[str]:
    """The same in a folder of its own, made once."""
    folder = TemporaryDirectory()
    with chdir(folder.name):
        filled("run-42", messages(0, 120))
        filled("almost full", messages(0, 16), window=1_010, age=timedelta(minutes=3), automatic=False)
        filled("quiet", [], age=timedelta(days=2))
    return folder


@cache
def _filled(name: str, *told: Any) -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    with chdir(folder.name):
        _fill(name, *told)
    return folder


def _fill(name: str, said: str, window: int, age: timedelta, settings: Sequence[tuple[str, Any]]) -> None:
    calm = structs.replace(CALM, **dict(settings))
    with Session.open(name, window=window, store=URL, settings=calm, clock=lambda: NOW - age) as session:
        for message in json.loads(said):
            session.append(message)


def shown(source: SessionSource | None = None, session_id: str = "") -> CompactorApp:
    """An app over the store of this folder, at a fixed time and without anything that moves by itself."""
    app = CompactorApp(source or LocalSource(URL, look_seconds=0.05), session_id, now=lambda: NOW)
    app.animation_level = "none"
    SHOWN.append(app)
    return app


def play(
    story: Story, *, size: tuple[int, int] = SMALL, source: SessionSource | None = None, session_id: str = ""
) -> None:
    """Run the app on a screen of this size, and the story in it."""

    async def run() -> None:
        async with shown(source, session_id).run_test(size=size, notifications=True) as pilot:
            await settle(pilot)
            await story(pilot)
            await settle(pilot)

    asyncio.run(run())


async def settle(pilot: Pilot[None], *, with_work: bool = True) -> None:
    """Wait until everything that was begun is done and drawn; what goes on for ever is not waited for.

    Without `with_work` what workers do may go on, such as a compaction that the test holds up.
    """
    calm = 0

    def is_calm() -> bool:
        nonlocal calm
        calm = 0 if _unrest(pilot.app, with_work) else calm + 1
        return calm == 3

    # A pause of the pilot's sends a message to every widget, which costs much more.
    await waiting.until(is_calm, lambda: f"{_unrest(pilot.app, with_work)}\n{screen_text(pilot)}", pause=0.01)
    if pilot.app._exit:
        return
    for field in (*pilot.app.screen.query(Input), *pilot.app.screen.query(TextArea)):
        field.cursor_blink = False
    await pilot.pause(0)


def _unrest(app: App[None], with_work: bool) -> str:
    """What is under way in an app: work, drawing, keys, and messages that wait or are being handled."""
    if app._exit:
        return ""
    working = [worker for worker in app.workers if not worker.is_finished and worker.group != "watch"]
    if with_work and working:
        return f"working: {working}"
    screen = app.screen
    if screen._layout_required or screen._repaint_required or screen._dirty_widgets or screen._callbacks:
        return "drawing"
    if isinstance(app, CompactorApp) and (app._typed or app._awaited):
        return f"keys: {app._typed}, {app._awaited}"
    there = (app, *screen.walk_children(with_self=True))
    if with_work and any(pane._timer is not None and pane._timer._active.is_set() for pane in screen.query(ChatPane)):
        return "an answer is drawn"
    # An empty queue is not enough: the last message may still be in the hands of whoever takes long for it. Who has
    # nothing to do waits for the next one.
    busy = [each for each in there if each.message_queue_size or not each._message_queue.ready_event._waiters]
    return f"messages for {busy}" if busy else ""


async def until(pilot: Pilot[None], what: Callable[[], object]) -> None:
    """Wait until something is so."""
    await waiting.until(what, lambda: f"The screen:\n{screen_text(pilot)}", pause=0.02)


async def listed(pilot: Pilot[None], words: str) -> None:
    """Wait until the palette offers something with these words as its first."""

    def is_first() -> bool:
        commands = pilot.app.screen.query_one(CommandList)
        return commands.option_count > 0 and words in str(commands.get_option_at_index(0).prompt)

    await until(pilot, is_first)


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys, and wait for what comes of them."""
    await pilot.press(*keys)
    await settle(pilot)


def key_of(pane_id: str) -> str:
    """The key of a pane: its number."""
    return str([spec.id for spec in PANES].index(pane_id) + 1)


async def enter(pilot: Pilot[None], text: str) -> None:
    """Write a text as a terminal pastes it, then Enter."""
    field = pilot.app.screen.query_one(Input) if pilot.app.focused is None else pilot.app.focused
    if isinstance(field, PromptInput):
        field.paste(text)
    else:
        assert isinstance(field, Input)
        field.insert_text_at_cursor(text)
    await settle(pilot)
    if isinstance(field, PromptInput):
        field.offers.close()  # what is written in full is entered as it is
    await press(pilot, "enter")


def screen_text(pilot: Pilot[None]) -> str:
    """What stands on the screen, line by line."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


def rows_of(pilot: Pilot[None]) -> RowList:
    """The list that is seen."""
    return next(rows for rows in pilot.app.screen.query(RowList) if rows.is_on_screen)
