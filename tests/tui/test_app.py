"""The app around the screens: help, palette, themes, sizes, errors, and the command that starts it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import cycle

import pytest
from textual.command import CommandPalette
from textual.widgets import Input, TabbedContent

from context_compactor.cli.tui import tui
from context_compactor.errors import BadSetting, CompactorError
from context_compactor.tui.commands.command import Command
from context_compactor.tui.registry import COMMANDS, PANES, TALK
from context_compactor.tui.screens.help import HelpScreen
from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.sources.local import LocalSource
from context_compactor.tui.widgets.bars import AnswerPanel
from context_compactor.tui.widgets.prompt import PromptInput
from tests.tui.places import SIZES, URL, a_few_sessions, enter, key_of, listed, play, press, screen_text, settle, shown


@pytest.mark.parametrize("size", SIZES)
def test_a_question_mark_explains_levels_tiers_and_every_key(size, picture):
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "question_mark")
        assert isinstance(pilot.app.screen, HelpScreen)
        words = pilot.app.screen._text.plain
        for found in ("aggressive", "summarize", "Filter", "Sort", "Compactions", "Quit"):
            assert found in words
        picture(pilot, "help")
        await press(pilot, "question_mark")
        assert not isinstance(pilot.app.screen, HelpScreen)

    play(story, size=size)


def test_the_palette_leads_to_panes_and_commands(monkeypatch):
    ran = []

    async def run(screen, rest):
        ran.append((screen.session_id, rest))

    monkeypatch.setitem(COMMANDS, "wave", Command("wave", "Wave at somebody.", run, "NAME"))
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "ctrl+p")
        assert isinstance(pilot.app.screen, CommandPalette)
        await pilot.press(*"show facts")
        await listed(pilot, "Facts")
        await press(pilot, "enter")
        await press(pilot, "enter") if isinstance(pilot.app.screen, CommandPalette) else None
        assert pilot.app.screen.query_one(TabbedContent).active == "facts"
        pilot.app.screen.enter("/wave ")
        await settle(pilot)
        await enter(pilot, "Ada")
        assert ran == [("run-42", "Ada")]
        await press(pilot, "escape", "question_mark")
        assert "/wave NAME" in pilot.app.screen._text.plain

    play(story, session_id="run-42")


def test_what_is_entered_without_a_slash_goes_to_whoever_talks(monkeypatch):
    heard = []

    async def talk(screen, text):
        heard.append(text)

    a_few_sessions()

    async def story(pilot):
        pilot.app.screen.query_one(PromptInput).focus()
        await settle(pilot)
        monkeypatch.setattr("context_compactor.tui.screens.session.TALK", [*TALK, talk])
        await enter(pilot, "Hello!")
        await enter(pilot, "//usr/bin/env is missing")
        assert heard == ["Hello!", "/usr/bin/env is missing"]

    play(story, session_id="run-42")


@pytest.mark.parametrize("size", SIZES)
def test_a_light_theme_is_one_key_away(size, picture):
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "ctrl+t")
        assert not pilot.app.current_theme.dark
        picture(pilot, "light")
        await press(pilot, "ctrl+t")
        assert pilot.app.current_theme.dark

    play(story, size=size, session_id="run-42")


def test_every_theme_can_be_drawn():
    a_few_sessions()

    async def story(pilot):
        for name in pilot.app.available_themes:
            pilot.app.theme = name
            await pilot.pause(0)
            assert "almost full" in screen_text(pilot), name
        pilot.app.show_session("run-42")
        await settle(pilot)
        await press(pilot, key_of("plot"))
        assert "tokens over messages" in screen_text(pilot)

    play(story)


@pytest.mark.slow
def test_any_size_is_drawn_and_the_cursor_stays_in_sight():
    a_few_sessions()

    async def story(pilot):
        for spec, tiny in zip(PANES, cycle([(20, 6), (1, 1)]), strict=False):
            await press(pilot, *(("escape",) if isinstance(pilot.app.focused, Input) else ()), key_of(spec.id))
            for size in (tiny, (200, 50)):
                await pilot.resize_terminal(*size)
        await press(pilot, "1", "end")
        await pilot.resize_terminal(60, 15)
        await settle(pilot)
        assert "turn_090" in screen_text(pilot)

    play(story, session_id="run-42")


def test_a_known_error_and_an_unexpected_one_are_messages_and_the_app_goes_on(monkeypatch):
    async def refused(screen, rest):
        raise CompactorError("the [bold]store[/] is \x1b[31mlocked. Try: again.")

    async def unexpected(screen, rest):
        raise ZeroDivisionError("nobody thought of that")

    monkeypatch.setitem(COMMANDS, "refused", Command("refused", "", refused))
    monkeypatch.setitem(COMMANDS, "unexpected", Command("unexpected", "", unexpected))
    a_few_sessions()

    async def story(pilot):
        pilot.app.screen.query_one(PromptInput).focus()
        await settle(pilot)
        await enter(pilot, "/refused")
        assert pilot.app.screen.query_one(AnswerPanel).texts == ["the [bold]store[/] is  [31mlocked. Try: again."]
        assert "[bold]store[/]" in screen_text(pilot)
        await enter(pilot, "/unexpected")
        found = [notice.message for notice in pilot.app._notifications]
        assert any("ZeroDivisionError: nobody thought of that" in message for message in found)
        pilot.app.unexpected.clear()
        assert isinstance(pilot.app.screen, SessionScreen)

    play(story, session_id="run-42")


@pytest.mark.parametrize(
    "keys", [("q",), ("ctrl+q",), ("enter", "ctrl+q"), ("enter", "enter", "ctrl+q"), ("slash", "ctrl+q")]
)
def test_it_can_be_left_from_everywhere_and_gives_back_what_it_holds(keys):
    a_few_sessions()

    async def run():
        app = shown()
        async with app.run_test() as pilot:
            await settle(pilot)
            for key in keys:
                await press(pilot, key)
        assert app.return_code == 0

    asyncio.run(run())


def test_a_token_without_a_server_and_two_places_at_once_are_refused(folder):
    (folder / "empty").write_text("\n")
    for given, words in (
        ({"token": "cct_x"}, "need --server"),
        ({"store": URL, "server": "http://127.0.0.1:1"}, "exclude each other"),
        ({"server": "http://127.0.0.1:1", "token": "a", "token_file": folder / "b"}, "exclude each other"),
        ({"server": "http://127.0.0.1:1", "token_file": folder / "nowhere"}, "cannot be read"),
        ({"server": "http://127.0.0.1:1", "token_file": folder / "empty"}, "is empty"),
        ({"server": "nonsense"}, "is not a"),
    ):
        with pytest.raises(BadSetting, match=words):
            tui(**given)


def test_where_there_is_no_terminal_it_says_which_commands_to_use():
    with pytest.raises(BadSetting, match="compactor sessions"):
        tui()


def test_without_textual_it_says_which_extra_is_missing():
    program = "import sys; sys.modules['textual'] = None; from context_compactor.cli.tui import tui; tui()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (
        "MissingExtra: the terminal UI needs an extra: pip install '.[tui]' (in a clone of the repository)"
        in done.stderr
    )


def test_a_source_says_where_it_is_without_a_password():
    assert LocalSource("postgresql://ada:secret@db/agents").name == "postgresql://ada:***@db/agents"
