"""All sessions on one screen: found, ordered, opened, and kept up to date."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from textual.widgets import Input

from context_compactor.sessions.session import Session
from context_compactor.store.connect import connect
from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.screens.sessions import SessionsScreen
from context_compactor.tui.sources.local import LocalSource
from tests.sessions.talk import messages
from tests.tui.places import (
    CALM,
    SIZES,
    URL,
    WIDE,
    a_few_sessions,
    filled,
    play,
    press,
    rows_of,
    screen_text,
    settle,
    until,
)


def names(pilot) -> list[str]:
    """The sessions in the order in which they are shown."""
    return [line.id for line in pilot.app.screen._shown]


@pytest.mark.parametrize("size", SIZES)
def test_every_session_stands_in_a_row_with_gauge_level_tokens_turns_and_compaction(size, picture):
    a_few_sessions()

    async def story(pilot):
        text = screen_text(pilot)
        row = next(line for line in text.splitlines() if "run-42" in line)
        assert "█" in row
        assert "below soft" in row
        assert " 90 " in row  # 120 messages, of which calls and their results are one turn
        assert "1 h ago" in row
        assert "aggressive" in next(line for line in text.splitlines() if "almost full" in line)
        assert "never" in next(line for line in text.splitlines() if "quiet" in line)
        picture(pilot, "sessions")

    play(story, size=size)


def test_typing_into_the_filter_leaves_those_that_fit_and_escape_shows_all_again():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "slash", *"FULL")
        assert names(pilot) == ["almost full"]
        assert "1 of 3 sessions" in screen_text(pilot)
        await press(pilot, "enter")
        assert rows_of(pilot).has_focus
        await press(pilot, "escape")
        assert len(names(pilot)) == 3

    play(story)


def test_a_filter_that_fits_nothing_leaves_an_empty_list_in_which_nothing_can_be_opened():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "slash", *"[/bold]nobody", "enter", "enter")
        assert names(pilot) == []
        assert isinstance(pilot.app.screen, SessionsScreen)

    play(story)


def test_s_orders_by_the_next_column_and_a_click_on_a_heading_by_that_one():
    a_few_sessions()

    async def story(pilot):
        assert names(pilot) == ["almost full", "run-42", "quiet"]
        await press(pilot, "s")
        assert names(pilot) == ["almost full", "quiet", "run-42"]
        await press(pilot, "S")
        assert names(pilot) == ["run-42", "quiet", "almost full"]
        heading = rows_of(pilot)
        at = screen_text(pilot).splitlines()[heading.region.y].index("Fill")
        await pilot.click(heading, offset=(at, 0))
        await settle(pilot)
        assert names(pilot) == ["almost full", "run-42", "quiet"]
        await pilot.click(heading, offset=(at, 0))
        await settle(pilot)
        assert names(pilot) == ["quiet", "run-42", "almost full"]

    play(story)


def test_enter_and_a_second_click_open_a_session_and_escape_comes_back():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "down", "enter")
        assert isinstance(pilot.app.screen, SessionScreen)
        assert pilot.app.screen.session_id == "run-42"
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, SessionsScreen)
        await pilot.click(rows_of(pilot), offset=(5, 3))
        await pilot.click(rows_of(pilot), offset=(5, 3))
        await settle(pilot)
        assert pilot.app.screen.session_id == "quiet"

    play(story)


def test_what_is_appended_elsewhere_appears_by_itself_and_the_cursor_stays_on_its_session():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "down")
        await asyncio.to_thread(filled, "newcomer", messages(0, 8), 3_000, timedelta())
        await until(pilot, lambda: "newcomer" in screen_text(pilot))
        assert pilot.app.screen._shown[rows_of(pilot).cursor].id == "run-42"

    play(story)


def test_twenty_thousand_sessions_are_a_list_of_which_only_what_is_seen_is_drawn():
    with Session.open("seed", window=3_000, store=URL, settings=CALM) as session:
        profile = session._core.store.session("seed").profile
        with session._core.store.writing("seed"):
            for number in range(20_000):
                session._core.store.open_session(f"s-{number:05}", profile, "2026-03-01T00:00:00.000+00:00")

    async def story(pilot):
        assert "20,001 sessions" in screen_text(pilot)
        await press(pilot, "end")
        assert rows_of(pilot).made < 500
        await press(pilot, "slash", *"s-1999", "enter")
        assert len(names(pilot)) == 10

    play(story, source=LocalSource(URL))


@pytest.mark.parametrize("size", SIZES)
def test_a_store_that_is_not_there_is_a_page_that_says_what_to_try_and_goes_away_when_there_is_one(size, picture):
    async def story(pilot):
        text = screen_text(pilot)
        assert "there is no store at sessions.db" in text
        assert "compactor tui --server URL" in text
        picture(pilot, "no-store")
        await asyncio.to_thread(a_few_sessions)
        await until(pilot, lambda: "run-42" in screen_text(pilot))

    play(story, size=size)


@pytest.mark.parametrize("size", SIZES)
def test_an_empty_store_says_how_to_begin(size, picture):
    connect(URL).close()

    async def story(pilot):
        assert "no session in sqlite:///sessions.db yet" in screen_text(pilot)
        picture(pilot, "empty-store")

    play(story, size=size)


def test_a_damaged_store_is_a_page_with_the_reason_and_never_a_traceback(folder):
    (folder / "sessions.db").write_bytes(b"this is no database, however long it may be" * 100)

    async def story(pilot):
        text = screen_text(pilot)
        assert "sessions.db" in text
        assert "What to try" in text
        assert "Traceback" not in text
        await press(pilot, "r", "s", "enter", "slash", *"x", "enter")
        assert pilot.app.is_running

    play(story)


def test_names_that_drive_terminals_or_look_like_markup_are_shown_as_text():
    filled("[bold red]not bold[/] \u202e\u200b", messages(0, 2))

    async def story(pilot):
        text = screen_text(pilot)
        assert "[bold red]not bold[/]" in text
        assert "\u202e" not in text
        await press(pilot, "enter")
        assert "[bold red]not bold[/]" in screen_text(pilot)

    play(story, size=WIDE)


def test_levels_are_words_and_signs_without_any_colour(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    a_few_sessions()

    async def story(pilot):
        assert pilot.app.no_color
        text = screen_text(pilot)
        assert "◑ aggressive" in text
        assert "▌almost full" in text  # the cursor is a sign as well
        assert pilot.app.screen.query_one("#filter", Input).placeholder in text

    play(story)
