"""What nobody expected: told, written down, and over; and where it cannot be over, a clean end."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest
from rich.traceback import Traceback
from textual.app import App
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from context_compactor.errors import CompactorError
from context_compactor.tui.app import CompactorApp
from context_compactor.tui.driver import TerminalOutput
from context_compactor.tui.runtime import LOG_FILE, ResilientApp, run_app
from context_compactor.tui.sources.local import LocalSource
from context_compactor.tui.widgets.row_list import Cell, Column, RowList
from tests.tui.places import screen_text, settle, until

pytestmark = pytest.mark.slow


class Bomb(Static):
    """Goes off in as many ways as there are."""

    can_focus = True
    heat = reactive(0)

    def on_key(self, event):
        if event.key == "k":
            raise ZeroDivisionError("behind a key")

    def on_click(self):
        raise ZeroDivisionError("behind a click")

    def watch_heat(self, heat):
        if heat:
            raise ZeroDivisionError("behind a value")


class Drawn(Widget):
    """Cannot be drawn once it is told so."""

    is_broken = reactive(False, layout=True)

    def render(self):
        if self.is_broken:
            raise ZeroDivisionError("in a drawing")
        return "drawn well"


class Survivor(ResilientApp):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("a", "explode"), Binding("b", "app.count")]
    CSS = "Drawn { height: auto; } RowList { height: 3; }"

    def __init__(self):
        super().__init__()
        self.counted = 0

    def compose(self):
        yield Bomb("here I am", id="bomb")
        yield Input(id="field")
        yield Drawn()
        yield RowList([Column("one")], self._rows)

    def _rows(self, first, count):
        if self.counted > 99:
            raise ZeroDivisionError("in a row")
        return [[Cell("a row")] for _ in range(count)]

    def on_mount(self):
        self.query_one(RowList).forget(2)

    def action_explode(self):
        raise ZeroDivisionError("behind an action")

    def action_count(self):
        self.counted += 1

    def on_input_changed(self, event):
        raise ZeroDivisionError("behind a field")

    async def fail(self):
        raise ZeroDivisionError("in some work")

    def on_worker_state_changed(self, event):
        self.report_worker_error(event)

    def later(self):
        raise ZeroDivisionError("behind a timer")


def lines() -> list[dict]:
    log = Path(".compactor", LOG_FILE)
    return [json.loads(line) for line in log.read_text().splitlines()]


def play(story, app=None) -> Survivor:
    app = app or Survivor()

    async def run():
        async with app.run_test(size=(80, 24), notifications=True) as pilot:
            await story(pilot)

    asyncio.run(run())
    return app


async def by_key(pilot):
    pilot.app.query_one("#bomb").focus()
    await pilot.press("k")


async def by_click(pilot):
    await pilot.click("#bomb")


async def by_action(pilot):
    pilot.app.query_one("#bomb").focus()
    await pilot.press("a")


async def by_field(pilot):
    pilot.app.query_one("#field").focus()
    await pilot.press("x")


async def by_value(pilot):
    bomb = pilot.app.query_one(Bomb)
    bomb.call_later(setattr, bomb, "heat", 1)


async def by_timer(pilot):
    pilot.app.query_one(Bomb).set_timer(0.01, pilot.app.later)


async def by_turn(pilot):
    pilot.app.query_one(Bomb).call_after_refresh(pilot.app.later)


async def by_next(pilot):
    pilot.app.query_one(Bomb).call_next(pilot.app.later)


async def by_work(pilot):
    pilot.app.run_worker(pilot.app.fail(), exit_on_error=False)


async def by_work_that_would_end_it(pilot):
    pilot.app.run_worker(pilot.app.fail(), exit_on_error=True)


async def by_thread(pilot):
    pilot.app.run_worker(pilot.app.later, thread=True)


async def by_drawing(pilot):
    pilot.app.query_one(Drawn).is_broken = True


async def by_row(pilot):
    pilot.app.counted = 100
    pilot.app.query_one(RowList).forget(2)


WAYS = [
    by_key,
    by_click,
    by_action,
    by_field,
    by_value,
    by_timer,
    by_turn,
    by_next,
    by_work,
    by_work_that_would_end_it,
    by_thread,
    by_drawing,
    by_row,
]


@pytest.mark.parametrize("way", WAYS)
def test_whatever_goes_wrong_is_a_message_and_a_line_in_the_log_and_everything_still_works(way):
    async def story(pilot):
        app = pilot.app
        for _ in range(2):  # once more, since what has failed must still be there
            app.unexpected.clear()
            await way(pilot)
            await until(pilot, lambda: app.unexpected)
            app.query_one(Bomb).heat = 0
            app.query_one(Drawn).is_broken = False
            app.counted = 0
            await settle(pilot)
        assert "Unexpected" in screen_text(pilot)
        assert "ZeroDivisionError" in screen_text(pilot)
        app.query_one("#bomb").focus()
        await pilot.press("b")
        await until(pilot, lambda: app.counted == 1)
        assert all(node.is_running for node in app.query("*"))

    app = play(story)
    assert app.return_code in (0, None)
    assert app.ending == ""
    assert "ZeroDivisionError" in lines()[0]["error"]
    assert 'raise ZeroDivisionError("' in lines()[0]["trace"]


def test_what_cannot_be_drawn_says_so_in_its_place_and_the_rest_is_drawn():
    async def story(pilot):
        await by_drawing(pilot)
        await until(pilot, lambda: "This cannot be shown" in screen_text(pilot))
        assert "here I am" in screen_text(pilot)
        assert "a row" in screen_text(pilot)
        pilot.app.query_one(Drawn).is_broken = False
        await until(pilot, lambda: "drawn well" in screen_text(pilot))

    play(story)


class OverOtherTextual(Survivor):
    """The same over a Textual that calls nothing of what is overridden."""

    _dispatch_message = App._dispatch_message
    _register_child = App._register_child
    _handle_exception = App._handle_exception


def test_over_a_textual_without_the_places_where_errors_are_caught_all_works_until_one_ends_the_app():
    async def story(pilot):
        pilot.app.query_one("#bomb").focus()
        await pilot.press("b")
        await until(pilot, lambda: pilot.app.counted == 1)
        assert "a row" in screen_text(pilot)
        await by_action(pilot)

    with pytest.raises(ZeroDivisionError, match="behind an action"):
        play(story, OverOtherTextual())


def test_over_a_textual_with_another_reader_of_keys_the_usual_driver_is_used(monkeypatch):
    usual = App().get_driver_class()
    monkeypatch.delitem(sys.modules, "context_compactor.tui.driver", raising=False)
    monkeypatch.setitem(sys.modules, "textual._xterm_parser", None)
    assert CompactorApp(LocalSource("sqlite:///sessions.db")).get_driver_class() is usual


def test_the_log_is_its_owners_alone_and_bounded_and_what_comes_again_at_once_is_told_once():
    async def story(pilot):
        for _ in range(30):
            await by_key(pilot)
        await settle(pilot)
        assert len(pilot.app._notifications) == 1

    play(story)
    log = Path(".compactor", LOG_FILE)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    assert len(lines()) == 1
    log.write_text("x" * 1_100_000)

    async def once(pilot):
        await by_key(pilot)

    play(once)
    assert log.stat().st_size < 30_000


def test_without_a_place_for_the_log_the_message_names_none():
    Path(".compactor").write_text("a file where the folder should be")

    async def story(pilot):
        await by_key(pilot)
        await until(pilot, lambda: pilot.app._notifications)
        found = next(iter(pilot.app._notifications)).message
        assert "behind a key" in found
        assert "please report it." in found

    play(story)


class NeverMade(Screen):
    def compose(self):
        raise ZeroDivisionError("while it was made")
        yield


class NeverMounted(Screen):
    def on_mount(self):
        raise ZeroDivisionError("while it was mounted")


@pytest.mark.parametrize("screen", [NeverMade, NeverMounted])
def test_a_screen_that_cannot_be_made_ends_the_app_with_one_line(screen):
    async def story(pilot):
        pilot.app.push_screen(screen())
        await until(pilot, lambda: pilot.app.ending)

    app = play(story)
    assert app.return_code == 1
    assert app.ending.startswith("the terminal UI had to end: ZeroDivisionError: while it was m")
    assert "\n" not in app.ending
    assert "tui.jsonl" in app.ending


@pytest.mark.parametrize(("error", "code"), [(EOFError("hung up"), 129), (OSError(5, "I/O"), 129), (KeyError("x"), 1)])
def test_a_terminal_that_hangs_up_is_no_error_but_one_that_cannot_be_read_otherwise_is(error, code):
    async def story(pilot):
        try:
            raise error
        except type(error):
            pilot.app.panic(Traceback())
        await asyncio.sleep(0)

    app = Survivor()
    with suppress(RuntimeError):
        play(story, app)
    assert app.return_code == code
    assert ("reading from the terminal: KeyError" in app.ending) == (code == 1)
    assert Path(".compactor", LOG_FILE).exists() == (code == 1)


def test_what_is_drawn_on_a_terminal_that_is_gone_goes_nowhere_and_holds_nothing_up():
    far, near = os.openpty()
    with os.fdopen(near, "w") as file:
        output = TerminalOutput(file)
        output.write("seen")
        output.flush()
        assert os.read(far, 100) == b"seen"
        os.close(far)
        with pytest.raises(OSError, match="Input/output"):
            os.write(near, b"the terminal says so itself")
        for _ in range(100):
            output.write("never seen" * 1_000)
            output.flush()


def test_what_fails_while_somebody_leaves_is_written_down_and_changes_no_exit():
    async def story(pilot):
        pilot.app.exit(return_code=0)
        pilot.app.report_unexpected(ZeroDivisionError("taken apart"))

    app = Survivor()
    play(story, app)
    assert (app.return_code, app.ending) == (0, "")
    assert "taken apart" in Path(".compactor", LOG_FILE).read_text()


def test_errors_that_come_again_and_again_by_themselves_end_the_app_but_not_those_behind_keys():
    async def by_keys(pilot):
        for _ in range(100):
            await by_key(pilot)
        pilot.app.query_one(Bomb).set_interval(0.001, pilot.app.later)
        await until(pilot, lambda: pilot.app.ending)

    app = play(by_keys)
    assert app.return_code == 1
    assert "behind a timer" in app.ending


def test_an_app_that_cannot_begin_or_cannot_end_says_so():
    class Stillborn(ResilientApp):
        def on_mount(self):
            raise ZeroDivisionError("at the beginning")

    class Restless(ResilientApp):
        def on_unmount(self):
            raise ZeroDivisionError("at the end")

    async def nothing(pilot):
        await asyncio.sleep(0)

    begun, ended = Stillborn(), play(nothing, Restless())
    asyncio.run(begun.run_async(headless=True))
    assert "at the beginning" in begun.ending
    assert "at the end" in ended.ending
    assert (begun.return_code, ended.return_code) == (1, 1)


def test_a_program_that_runs_such_an_app_leaves_with_one_line_and_no_trace(tmp_path):
    source = """
from context_compactor.tui import runtime
from context_compactor.cli import main
class Stillborn(runtime.ResilientApp):
    async def run_async(self):
        self.end_with_error(ZeroDivisionError("at the\\x1b[31m beginning"))
main.make_app = lambda name: (lambda args: runtime.run_app(Stillborn()))
main.main([])
"""
    done = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the terminal UI had to end: ZeroDivisionError: at the [31m beginning. Try: ")
    assert len(done.stderr.splitlines()) == 1


def test_work_that_nobody_waits_for_is_written_down_too():
    class Forgetful(ResilientApp):
        async def run_async(self):
            asyncio.get_running_loop().call_soon(lambda: 1 / 0)
            await asyncio.sleep(0)

    run_app(Forgetful())
    assert "division by zero" in lines()[0]["error"]


def test_an_app_that_had_to_end_is_an_error_of_ours():
    class Lost(ResilientApp):
        async def run_async(self):
            self.end_with_error(ZeroDivisionError("lost"))

    with pytest.raises(CompactorError, match="had to end: ZeroDivisionError: lost"):
        run_app(Lost())
