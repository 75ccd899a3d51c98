"""One session: how full it is, and in its panes everything that is known of it."""

from __future__ import annotations

import asyncio
import json

import pytest
from textual.widgets import Input, TabbedContent

from context_compactor.sessions.session import Session
from context_compactor.tui.registry import PANES
from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.screens.viewer import ViewerScreen
from context_compactor.tui.widgets.prompt import PromptInput
from tests.engine.talks import bash, read, talk_in
from tests.sessions.talk import messages
from tests.tui.places import (
    SIZES,
    URL,
    WIDE,
    a_few_sessions,
    enter,
    filled,
    key_of,
    play,
    press,
    rows_of,
    screen_text,
    settle,
    until,
)

LOOKED_AT = [spec for spec in PANES if spec.id != "chat"]  # which has tests of its own
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m \u202eright to left\x00\r[bold]not bold[/bold] $text-error"


def test_the_header_has_gauge_level_and_forecast():
    a_few_sessions()

    async def story(pilot):
        text = screen_text(pilot)
        assert "run-42" in text
        assert "below soft" in text
        assert "█" in text.splitlines()[1]
        assert "│" in text.splitlines()[1]  # where the levels begin
        assert "room for ~" in text
        assert "soft at" in text
        assert "in ~" in text

    play(story, size=WIDE, session_id="run-42")


@pytest.mark.parametrize("size", SIZES)
def test_every_pane_shows_what_it_is_for(size, picture):
    a_few_sessions()

    async def story(pilot):
        for spec in LOOKED_AT:
            await to_pane(pilot, spec.id)
            if spec.id == "search":
                await enter(pilot, "value_25 compute_5")
            assert pilot.app.screen.query_one(TabbedContent).active == spec.id
            picture(pilot, spec.id)

    play(story, size=size, session_id="run-42")


def test_every_pane_of_a_session_in_which_nothing_was_said_says_so():
    words = ("Nothing was", "is empty", "No facts", "Only what has left", "No compaction counts")
    a_few_sessions()

    async def story(pilot):
        for spec in LOOKED_AT:
            await to_pane(pilot, spec.id)
            text = screen_text(pilot)
            assert "Reading…" not in text, spec.id
            assert any(each in text for each in words), spec.id
            await press(pilot, "enter", "down", "end", "pageup")
            assert pilot.app.is_running

    play(story, session_id="quiet")


async def to_pane(pilot, pane_id: str) -> None:
    """Choose a pane by its number, which a field that is written into would take for itself."""
    if isinstance(pilot.app.focused, Input):
        await press(pilot, "escape")
    await press(pilot, key_of(pane_id))


def test_turns_say_their_tier_in_words_with_tokens_kind_and_reason():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "home")
        shown = screen_text(pilot)
        first, second = (next(line for line in shown.splitlines() if turn in line) for turn in ("turn_001", "turn_002"))
        assert all(words in first for words in ("keep", "talk", "user: Request 0", "in the record"))
        assert all(words in second for words in ("reference", "code file", "recall"))
        assert "keep: in the record" in shown  # the reason of the turn with the cursor
        await press(pilot, "end")
        last = next(line for line in screen_text(pilot).splitlines() if "turn_090" in line)
        assert "keep" in last
        assert "in the context, word for word" in last

    play(story, size=WIDE, session_id="run-42")


@pytest.mark.parametrize("size", SIZES)
def test_a_turn_opens_with_its_call_and_the_whole_result(size, picture):
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "home", "down", "enter")
        assert isinstance(pilot.app.screen, ViewerScreen)
        text = screen_text(pilot)
        assert "call of Read" in text
        assert "line 0 of part 0" in text
        picture(pilot, "viewer")
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, SessionScreen)

    play(story, size=size, session_id="run-42")


def test_a_long_original_is_read_page_by_page_and_only_that_page():
    lines = [f"def part_{number}(value): return value + {number}" for number in range(2_000)]
    talk = talk_in("openai-chat").user("Read it.").step(read("src/long.py", "\n".join(lines)), text="Reading.")
    for number in range(30):
        talk.step(bash(f"echo {number}", f"{number} and more words\n" * 20))
    filled("long", talk.user("Go on.").messages, window=6_000)

    async def story(pilot):
        await press(pilot, key_of("search"))
        await enter(pilot, "part_1500")
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, ViewerScreen)
        text = screen_text(pilot)
        assert "page 1 of" in text
        assert "src/long.py" in text
        assert "def part_0(value)" in text
        await press(pilot, "n")
        assert "page 2 of" in screen_text(pilot)
        assert "def part_0(value)" not in screen_text(pilot)
        await press(pilot, "p", "p", "p")
        assert "page 1 of" in screen_text(pilot)

    play(story, size=WIDE, session_id="long")


def test_compactions_have_their_reports_the_newest_first_and_undone_ones_say_so():
    a_few_sessions()
    with Session.open("run-42", store=URL) as session:
        undone = session.undo()
        made = session.compactions()

    async def story(pilot):
        await press(pilot, key_of("compactions"))
        text = screen_text(pilot)
        row = next(line for line in text.splitlines() if undone.compaction_id in line)
        assert "undone" in row
        assert rows_of(pilot).total == len(made)
        assert f"Tokens: {undone.tokens_before:,} → {undone.tokens_after:,}" in text
        await press(pilot, "down")
        assert f"{made[-2].tokens_before:,} → {made[-2].tokens_after:,} (saved" in screen_text(pilot)

    play(story, size=WIDE, session_id="run-42")


def test_facts_are_shown_by_kind():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, key_of("facts"))
        pane = pilot.app.screen.pane
        assert "[all " in screen_text(pilot)
        pane.show_kind("decision")
        await settle(pilot)
        assert {fact.kind for fact in pane._shown} == {"decision"}
        await press(pilot, "f")
        assert pane.kind == "file_state"
        await press(pilot, "F", "F", "F", "F")
        assert pane.kind is None
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, ViewerScreen)

    play(story, session_id="run-42")


def test_a_search_that_finds_nothing_says_what_to_try():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, key_of("search"))
        await enter(pilot, "xyzzy")
        assert "Nothing in the archive answers that" in screen_text(pilot)

    play(story, session_id="run-42")


def test_what_others_append_appears_by_itself_with_the_gauge():
    a_few_sessions()

    def talk_on():
        with Session.open("run-42", store=URL) as session:
            session.append({"role": "user", "content": "A word from elsewhere."})

    async def story(pilot):
        await asyncio.to_thread(talk_on)
        await until(pilot, lambda: "A word from elsewhere." in screen_text(pilot))
        await until(pilot, lambda: "121 messages" in screen_text(pilot))

    play(story, session_id="run-42")


def test_a_cursor_that_was_moved_stays_where_it_is_while_turns_come_in():
    a_few_sessions()

    def talk_on():
        with Session.open("run-42", store=URL) as session:
            session.append({"role": "user", "content": "A word from elsewhere."})

    async def story(pilot):
        await press(pilot, "home", "down", "down")
        await asyncio.to_thread(talk_on)
        await until(pilot, lambda: rows_of(pilot).total == 91)
        await settle(pilot)
        assert rows_of(pilot).cursor == 2
        assert "turn_003" in screen_text(pilot)

    play(story, session_id="run-42")


def test_escape_codes_and_markup_in_messages_reach_no_terminal():
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": f"Bash{ESCAPES}", "arguments": json.dumps({"command": ESCAPES})},
    }
    hostile = [
        {"role": "user", "content": f"Never touch this. {ESCAPES}"},
        {"role": "assistant", "content": ESCAPES, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f"{ESCAPES}\nExit code 1: cannot be opened {ESCAPES}"},
        {"role": "assistant", "content": f"We decided to keep {ESCAPES}."},
    ]
    filled("hostile", hostile * 1 + messages(0, 80))

    async def story(pilot):
        seen = ""
        for spec in LOOKED_AT:
            await press(pilot, key_of(spec.id))
            if spec.id == "search":
                await enter(pilot, "touch right to left")
            await press(pilot, "home")
            seen += screen_text(pilot)
            if spec.id not in ("plot", "compactions"):
                await press(pilot, "enter")
                seen += screen_text(pilot)
                await press(pilot, "escape")
        assert "[bold]not bold[/bold]" in seen
        assert not [char for char in seen if not char.isprintable() and char != "\n"]

    play(story, size=WIDE, session_id="hostile")


def test_a_session_that_is_not_there_is_told_and_the_way_back_is_open():
    a_few_sessions()

    async def story(pilot):
        assert any("nobody" in notice.message for notice in pilot.app._notifications)
        for spec in PANES:
            await press(pilot, *(("escape",) if isinstance(pilot.app.focused, Input) else ()), key_of(spec.id))
        await press(pilot, "1", "escape")
        assert "run-42" in screen_text(pilot)

    play(story, session_id="nobody")


def test_a_paste_of_a_megabyte_into_the_search_and_the_prompt_is_taken():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, key_of("search"))
        await enter(pilot, "word " * 200_000)
        assert pilot.app.is_running
        pilot.app.screen.query_one("#question", Input).value = ""
        pilot.app.screen.query_one(PromptInput).focus()
        await settle(pilot)
        await enter(pilot, "x" * 1_000_000)
        assert pilot.app.is_running

    play(story, session_id="run-42")
