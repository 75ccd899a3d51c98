"""Keys that come together go where one after the other would have gone, however busy the app is."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

from textual import events
from textual.binding import Binding
from textual.keys import _character_to_key
from textual.screen import Screen
from textual.widgets import Input

from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.screens.viewer import ViewerScreen
from tests.tui.places import a_few_sessions, play, settle, until
from tests.waiting import PATIENCE


def type_at_once(pilot, *keys: str) -> None:
    """All in one piece, as a slow line brings them."""
    for key in keys:
        single = len(key) == 1
        event = events.Key(_character_to_key(key) if single else key, key if single else None)
        event.set_sender(pilot.app)
        pilot.app._driver.send_message(event)


def filter_of(pilot) -> str:
    return next((field.value for field in pilot.app.screen.query(Input)), "")


def test_what_is_typed_behind_the_key_of_the_filter_is_the_filter():
    a_few_sessions()

    async def story(pilot):
        type_at_once(pilot, *"/run-")
        await until(pilot, lambda: filter_of(pilot) == "run-")

    play(story)


def test_that_holds_while_the_app_is_busy_with_something_else():
    a_few_sessions()

    async def story(pilot):
        pilot.app.screen.call_later(lambda: time.sleep(0.4))
        type_at_once(pilot, *"/run-")
        pilot.app.call_later(lambda: time.sleep(0.4))
        await until(pilot, lambda: filter_of(pilot) == "run-")

    play(story)


def test_a_session_is_opened_and_read_with_keys_that_came_together():
    a_few_sessions()

    async def story(pilot):
        type_at_once(pilot, *"/run-", "enter", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, SessionScreen))
        assert pilot.app.screen.session_id == "run-42"
        await settle(pilot)
        type_at_once(pilot, "home", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ViewerScreen))
        type_at_once(pilot, "escape", "escape", "escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, (SessionScreen, ViewerScreen)))

    play(story)


def test_a_paste_behind_a_key_goes_where_the_key_led():
    a_few_sessions()

    async def story(pilot):
        type_at_once(pilot, "/")
        paste = events.Paste("quiet")
        paste.set_sender(pilot.app)
        pilot.app._driver.send_message(paste)
        await until(pilot, lambda: filter_of(pilot) == "quiet")

    play(story)


def test_what_is_written_into_a_field_waits_for_nothing():
    a_few_sessions()
    waited = []

    async def story(pilot):
        type_at_once(pilot, "/")
        await settle(pilot)
        pilot.app._await = waited.append
        type_at_once(pilot, *"x" * 500)
        await until(pilot, lambda: len(filter_of(pilot)) == 500)

    play(story)
    assert not waited


def test_ctrl_c_behind_what_is_written_empties_it_and_does_not_leave():
    a_few_sessions()

    async def story(pilot):
        type_at_once(pilot, "/")
        for _ in range(5):
            type_at_once(pilot, *"run-")
            await until(pilot, lambda: filter_of(pilot) == "run-")
            type_at_once(pilot, *"42", "ctrl+c")
            await until(pilot, lambda: filter_of(pilot) == "")
            await settle(pilot)
            assert not pilot.app._notifications

    play(story)


def test_a_key_that_is_lost_with_its_screen_does_not_hold_up_the_next():
    class Passing(Screen):
        def on_key(self, event):
            event.stop()
            self.app.pop_screen()

    a_few_sessions()

    async def story(pilot):
        await pilot.app.push_screen(Passing())
        type_at_once(pilot, "x", *"/run-")
        await until(pilot, lambda: filter_of(pilot) == "run-")

    play(story)


def test_a_key_behind_which_something_takes_for_ever_does_not_hold_up_the_next():
    class Stuck(Screen):
        BINDINGS: ClassVar = [Binding("y", "go_on", priority=True)]

        async def on_key(self, event):
            if event.key == "x":
                await free.wait()

        def action_go_on(self):
            free.set()

    a_few_sessions()
    free = asyncio.Event()

    async def story(pilot):
        await pilot.app.push_screen(Stuck())
        type_at_once(pilot, "x", "y")
        await asyncio.wait_for(free.wait(), PATIENCE)

    play(story)
