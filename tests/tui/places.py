"""Stores to look at, an app that runs over one of them, and what is then on the screen."""

from __future__ import annotations

import asyncio
import json
import time
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
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from context_compactor.session.session import Session
from context_compactor.settings import Settings
from context_compactor.tui.app import CompactorApp
from context_compactor.tui.local import LocalSource
from context_compactor.tui.registry import PANES
from context_compactor.tui.source import Source
from context_compactor.tui.widgets.prompt import Prompt
from context_compactor.tui.widgets.rows import RowList
from tests.session.talk import messages
from tests.waiting import PATIENCE

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
    told = json.dumps(said), window, age, tuple(settings.items())
    if Path("sessions.db").exists():
        _fill(name, *told)
    else:  # a store that holds nothing else is made once and then copied
        copytree(_filled(name, *told).name, Path(), dirs_exist_ok=True)


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


def shown(source: Source | None = None, session_id: str = "") -> CompactorApp:
    """An app over the store of this folder, at a fixed time and without anything that moves by itself."""
    app = CompactorApp(source or LocalSource(URL, look_seconds=0.05), session_id, now=lambda: NOW)
    app.animation_level = "none"
    SHOWN.append(app)
    return app


def play(story: Story, *, size: tuple[int, int] = SMALL, source: Source | None = None, session_id: str = "") -> None:
    """Run the app on a screen of this size, and the story in it."""

    async def run() -> None:
        async with shown(source, session_id).run_test(size=size, notifications=True) as pilot:
            await settle(pilot)
            await story(pilot)
            await settle(pilot)

    asyncio.run(run())


async def settle(pilot: Pilot[None]) -> None:
    """Wait until everything that was begun is done and drawn; what goes on for ever is not waited for."""
    calm = 0
    give_up = time.monotonic() + PATIENCE
    while calm < 3:
        assert time.monotonic() < give_up, f"it never came to rest: {list(pilot.app.workers)}"
        await asyncio.sleep(0.01)  # a pause of the pilot's sends a message to every widget, which costs much more
        calm = calm + 1 if _is_at_rest(pilot.app) else 0
    for field in (*pilot.app.screen.query(Input), *pilot.app.screen.query(TextArea)):
        field.cursor_blink = False
    await pilot.pause()


def _is_at_rest(app: App[None]) -> bool:
    if app._exit:
        return True
    if any(not worker.is_finished for worker in app.workers if worker.group != "watch"):
        return False
    screen = app.screen
    if screen._layout_required or screen._repaint_required or screen._dirty_widgets or screen._callbacks:
        return False
    return not any(
        each.message_queue_size or each._next_callbacks for each in (app, *screen.walk_children(with_self=True))
    )


async def until(pilot: Pilot[None], what: Callable[[], object]) -> None:
    """Wait until something is so."""
    give_up = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < give_up, f"it never came:\n{screen_text(pilot)}"
        await asyncio.sleep(0.02)


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
    if isinstance(field, Prompt):
        field.paste(text)
    else:
        assert isinstance(field, Input)
        field.insert_text_at_cursor(text)
    await settle(pilot)
    if isinstance(field, Prompt):
        field.offers.close()  # what is written in full is entered as it is
    await press(pilot, "enter")


def screen_text(pilot: Pilot[None]) -> str:
    """What stands on the screen, line by line."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


def rows_of(pilot: Pilot[None]) -> RowList:
    """The list that is seen."""
    return next(rows for rows in pilot.app.screen.query(RowList) if rows.is_on_screen)
