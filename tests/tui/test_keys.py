"""Ctrl-C in every state, ways out, and the palette."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from textual.command import CommandPalette
from textual.widgets import Input

from context_compactor.sessions.session import Session
from context_compactor.tui.registry import COMMANDS, PANES
from context_compactor.tui.screens.help import HelpScreen
from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.screens.viewer import ViewerScreen
from context_compactor.tui.widgets.bars import AnswerPanel
from context_compactor.tui.widgets.prompt import CompletionList, PromptInput
from tests.cli.conftest import conversation
from tests.llm.provider import Provider, Reply
from tests.tui.places import URL, a_few_sessions, filled, listed, play, press, settle, shown, until

pytestmark = pytest.mark.slow

AGAIN = "Ctrl-C again leaves."


def notices(pilot) -> list[str]:
    return [notice.message for notice in pilot.app._notifications]


def leaves(keys, *, session_id: str = "") -> None:
    """These keys lead out of the app, with the code of a good end."""
    a_few_sessions()

    async def run():
        app = shown(session_id=session_id)
        async with app.run_test() as pilot:
            await settle(pilot)
            for key in keys:
                await press(pilot, key)
        assert app.return_code == 0

    asyncio.run(run())


def test_idle_it_says_that_the_second_one_leaves(monkeypatch):
    leaves(["ctrl+c", "ctrl+c"])
    leaves(["ctrl+c", "ctrl+c"], session_id="run-42")


def test_the_second_one_counts_for_two_seconds_only(monkeypatch):
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "ctrl+c")
        assert AGAIN in notices(pilot)
        pilot.app._asked_to_leave -= 2.1
        await press(pilot, "ctrl+c")
        assert pilot.app.is_running
        assert isinstance(pilot.app.screen, SessionScreen)

    play(story, session_id="run-42")


def test_typing_it_empties_the_prompt_and_only_then_asks_to_leave():
    a_few_sessions()

    async def story(pilot):
        prompt = pilot.app.screen.query_one(PromptInput)
        prompt.focus()
        await press(pilot, *"hello", "ctrl+c")
        assert prompt.value == ""
        assert prompt.has_focus
        assert AGAIN not in notices(pilot)
        await press(pilot, "ctrl+c")
        assert AGAIN in notices(pilot)

    play(story, session_id="run-42")


def test_a_prompt_that_is_left_with_something_in_it_is_emptied_from_the_pane_too():
    a_few_sessions()

    async def story(pilot):
        prompt = pilot.app.screen.query_one(PromptInput)
        prompt.focus()
        await press(pilot, *"hello", "escape", "ctrl+c")
        assert prompt.value == ""
        assert AGAIN not in notices(pilot)

    play(story, session_id="run-42")


def test_with_offers_open_it_empties_the_prompt_and_closes_them():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "slash", "ctrl+c")
        assert pilot.app.screen.query_one(PromptInput).value == ""
        assert not pilot.app.screen.query_one(CompletionList).is_open
        assert isinstance(pilot.app.screen, SessionScreen)

    play(story, session_id="run-42")


def test_a_filter_and_a_question_are_emptied_like_a_prompt():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "slash", *"quiet", "ctrl+c")
        assert pilot.app.screen.query_one("#filter", Input).value == ""
        assert AGAIN not in notices(pilot)
        pilot.app.show_session("run-42")
        await settle(pilot)
        pilot.app.screen.show_pane("search")
        pilot.app.screen.query_one("#question", Input).focus()
        await press(pilot, *"value", "ctrl+c")
        assert pilot.app.screen.query_one("#question", Input).value == ""
        assert AGAIN not in notices(pilot)

    play(story)


@pytest.mark.parametrize(("keys", "kind"), [(["enter"], ViewerScreen), (["question_mark"], HelpScreen)])
def test_over_a_viewer_or_the_help_it_closes_nothing_and_the_second_one_leaves(keys, kind):
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "home", *keys)
        assert isinstance(pilot.app.screen, kind)
        await press(pilot, "ctrl+c")
        assert isinstance(pilot.app.screen, kind)
        assert AGAIN in notices(pilot)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: pilot.app._exit)

    play(story, session_id="run-42")


def test_over_the_palette_it_empties_what_is_written_and_then_the_second_one_leaves():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "ctrl+p", *"show")
        assert isinstance(pilot.app.screen, CommandPalette)
        await press(pilot, "ctrl+c")
        assert isinstance(pilot.app.screen, CommandPalette)
        assert AGAIN not in notices(pilot)
        await press(pilot, "ctrl+c")
        assert AGAIN in notices(pilot)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: pilot.app._exit)

    play(story, session_id="run-42")


def test_selected_text_is_copied_and_nothing_else_happens():
    a_few_sessions()

    async def story(pilot):
        prompt = pilot.app.screen.query_one(PromptInput)
        prompt.focus()
        await press(pilot, *"hello", "shift+left", "shift+left", "ctrl+c")
        assert pilot.app.clipboard == "lo"
        assert prompt.value == "hello"
        assert AGAIN not in notices(pilot)
        pilot.app.screen.show_message("to be copied")
        await settle(pilot)
        found = pilot.app.screen.query("#answer .said").last()
        found.text_select_all()
        await press(pilot, "ctrl+c")
        assert pilot.app.clipboard == "to be copied"
        assert prompt.value == "hello"

    play(story, session_id="run-42")


# While something is under way


@pytest.fixture
def slow() -> Iterator[Provider]:
    """A model that begins to answer and never ends."""
    provider = Provider()
    piece = json.dumps({"choices": [{"delta": {"content": "Once upon a time "}}]})
    provider.replies = [Reply(pieces=[f"data: {piece}\n\n".encode()], end="stall")]
    filled("run", conversation(), window=64_000, automatic=False, summarizer=f"{provider.url}/v1#slow")
    yield provider
    provider.close()


async def compacting(pilot, slow) -> None:
    prompt = pilot.app.screen.query_one(PromptInput)
    prompt.focus()
    prompt.paste("/compact --target 9k")
    await settle(pilot)
    prompt.offers.close()
    await pilot.press("enter")
    await until(pilot, lambda: slow.bodies)


@pytest.mark.parametrize("over", [None, "question_mark", "ctrl+p", "enter"])
def test_compacting_it_cancels_whatever_is_shown_over_it_and_keeps_what_is_written(over, slow):
    async def story(pilot):
        await compacting(pilot, slow)
        await pilot.press(*"next")
        below = pilot.app.screen
        if over:
            await pilot.press("escape", over)
            await until(pilot, lambda: pilot.app.screen is not below)
        above = pilot.app.screen
        await press(pilot, "ctrl+c")
        assert below.query_one(AnswerPanel).texts[-1] == "Cancelled: nothing was changed."
        assert below.query_one(PromptInput).value == "next"
        assert pilot.app.screen is above
        assert AGAIN not in notices(pilot)

    play(story, session_id="run")


@pytest.mark.parametrize("keys", [("ctrl+q",), ("ctrl+c", "ctrl+c", "ctrl+c")])
def test_leaving_while_a_compaction_is_under_way_ends_it_and_nothing_is_changed(keys, slow):
    async def run():
        app = shown(session_id="run")
        async with app.run_test() as pilot:
            await settle(pilot)
            await compacting(pilot, slow)
            await pilot.press(*keys)
            await until(pilot, lambda: app.is_leaving)
        assert app.return_code == 0

    asyncio.run(run())
    with Session.open("run", store=URL) as session:
        assert session.compactions() == []
        assert not session.verify()


# Help and palette


def test_help_tells_the_keys_of_each_pane_and_every_command():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "question_mark")
        words = pilot.app.screen._text.plain
        for spec in PANES:
            assert spec.title in words
        assert "Facts: f Next kind" in words
        for command in COMMANDS.values():
            assert f"/{command.name}" in words
        for key in ("Alt+Enter", "Ctrl+C", "PgUp", "Quit"):
            assert key in words

    play(story, session_id="run-42")


def test_the_palette_puts_a_command_into_the_prompt():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "ctrl+p", *"/handoff")
        await listed(pilot, "/handoff")
        await press(pilot, "enter")
        await press(pilot, "enter") if isinstance(pilot.app.screen, CommandPalette) else None
        await until(pilot, lambda: pilot.app.screen.query_one(PromptInput).value == "/handoff ")
        assert pilot.app.screen.query_one(PromptInput).has_focus
        await until(pilot, lambda: pilot.app.screen.query_one(CompletionList).is_open)

    play(story, session_id="run-42")
