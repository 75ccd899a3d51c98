"""The prompt: several lines, what was entered before, pastes of any size, and offers to go on."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.widgets import TabbedContent

from context_compactor.tui.driver import InputDecoder
from context_compactor.tui.registry import COMMANDS
from context_compactor.tui.screens.help import HelpScreen
from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.widgets.bars import AnswerPanel
from context_compactor.tui.widgets.prompt import (
    CompletionList,
    PastedTexts,
    PromptHistory,
    PromptInput,
    is_short_and_printable,
    plain_lines,
)
from tests.tui.places import SIZES, a_few_sessions, play, press, screen_text, settle

MEGABYTE = 1 << 20


def prompt_of(pilot) -> PromptInput:
    return pilot.app.screen.query_one(PromptInput)


def told(pilot) -> list[str]:
    return pilot.app.screen.query_one(AnswerPanel).texts


def listening(monkeypatch) -> list[str]:
    """What is said in a prompt from now on."""
    heard: list[str] = []

    async def talk(screen, text):
        heard.append(text)

    monkeypatch.setattr("context_compactor.tui.screens.session.TALK", [talk])
    return heard


async def paste(pilot, text: str) -> None:
    """As a terminal pastes it."""
    pilot.app.post_message(events.Paste(text))
    await settle(pilot)


async def at_prompt(pilot) -> PromptInput:
    prompt = prompt_of(pilot)
    prompt.focus()
    await settle(pilot)
    return prompt


# Lines


def test_enter_sends_and_other_enters_begin_a_new_line(monkeypatch):
    heard = listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        prompt = await at_prompt(pilot)
        for key in ("alt+enter", "ctrl+j", "shift+enter"):
            heard.clear()
            await press(pilot, *"one", key, *"two")
            assert prompt.value == "one\ntwo", key
            assert prompt.size.height == 2, key
            await press(pilot, "enter")
            assert heard == ["one\ntwo"], key
            assert prompt.value == "", key
            assert prompt.size.height == 1, key

    play(story, session_id="run-42")


def test_the_prompt_grows_by_a_few_lines_and_then_scrolls(monkeypatch):
    heard = listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        prompt = await at_prompt(pilot)
        for number in range(11):
            await press(pilot, *f"{number}", "ctrl+j")
        assert prompt.size.height == 6
        await press(pilot, *"end", "enter")
        assert heard == ["\n".join([*map(str, range(11)), "end"])]

    play(story, session_id="run-42")


def test_what_is_empty_is_not_sent(monkeypatch):
    heard = listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        await at_prompt(pilot)
        await press(pilot, "enter", "space", "enter", "ctrl+j", "enter")
        assert not heard

    play(story, session_id="run-42")


def test_a_question_mark_is_one_in_the_prompt_and_help_elsewhere_or_alone(monkeypatch):
    heard = listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        prompt = await at_prompt(pilot)
        await press(pilot, *"why", "question_mark", "enter")
        assert heard == ["why?"]
        await press(pilot, "question_mark", "enter")
        assert isinstance(pilot.app.screen, HelpScreen)
        await press(pilot, "escape")
        assert prompt.value == ""
        await press(pilot, "escape", "question_mark")
        assert isinstance(pilot.app.screen, HelpScreen)

    play(story, session_id="run-42")


def test_digits_and_letters_that_are_keys_elsewhere_are_written_in_the_prompt(monkeypatch):
    heard = listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        await at_prompt(pilot)
        await press(pilot, *"r2q[", "enter")
        assert heard == ["r2q["]
        assert pilot.app.screen.query_one(TabbedContent).active == "turns"

    play(story, session_id="run-42")


# What was entered before


def test_up_and_down_bring_back_what_was_entered_from_the_first_and_the_last_line(monkeypatch):
    listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        prompt = await at_prompt(pilot)
        await press(pilot, *"first", "enter", *"second", "ctrl+j", *"line", "enter", *"draft")
        await press(pilot, "up")
        assert prompt.value == "second\nline"
        await press(pilot, "up")
        assert prompt.value == "second\nline"
        assert prompt.cursor_location[0] == 0
        await press(pilot, "up")
        assert prompt.value == "first"
        await press(pilot, "up")
        assert prompt.value == "first"
        await press(pilot, "down")
        assert prompt.value == "second\nline"
        await press(pilot, "down")
        assert prompt.value == "draft"
        await press(pilot, "down")
        assert prompt.value == "draft"

    play(story, session_id="run-42")


def test_what_was_entered_and_what_is_being_written_outlive_the_screen(monkeypatch):
    listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        await at_prompt(pilot)
        await press(pilot, *"hello", "enter", *"half a", "escape")
        assert isinstance(pilot.app.screen, SessionScreen)
        await press(pilot, "escape")
        assert not isinstance(pilot.app.screen, SessionScreen)
        pilot.app.show_session("run-42")
        await settle(pilot)
        prompt = await at_prompt(pilot)
        assert prompt.value == "half a"
        await press(pilot, "up")
        assert prompt.value == "hello"
        pilot.app.show_sessions()
        pilot.app.show_session("quiet")
        await settle(pilot)
        assert prompt_of(pilot).value == ""

    play(story, session_id="run-42")


@given(st.lists(st.tuples(st.sampled_from([-1, 1]), st.text(max_size=3)), max_size=20), st.lists(st.text(max_size=3)))
def test_history_never_loses_a_line_nor_the_draft(steps, lines):
    entered = PromptHistory()
    for line in lines:
        entered.add(line)
    kept, shown = list(entered.lines), "draft"
    for by, _ in steps:
        found = entered.step(by, shown)
        shown = shown if found is None else found
        assert shown in [*kept, "draft"]
    while (found := entered.step(1, shown)) is not None:
        shown = found
    assert shown == "draft"
    assert entered.lines == kept


# Pastes


def test_a_megabyte_is_pasted_at_once_shown_as_its_size_and_sent_whole(monkeypatch):
    heard = listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        prompt = await at_prompt(pilot)
        for kind, text in {
            "one line": "x" * MEGABYTE,
            "words": "word " * (MEGABYTE // 5),
            "lines": "line\n" * (MEGABYTE // 5),
            "emoji": "👨‍👩‍👧é" * 150_000,
            "control characters": "\x1b[31mred\x1b[0m \x07\x00 \x9b" * 60_000,
        }.items():
            heard.clear()
            await press(pilot, *"see ")
            await paste(pilot, text)
            assert f"[pasted {len(text):,} characters" in prompt.value, kind
            assert len(prompt.value) < 100, kind
            await press(pilot, *" ok", "enter")
            assert heard == [f"see {text} ok"], kind
            await press(pilot, "up")
            assert "[pasted" in prompt.value, kind
            await press(pilot, "enter")
            assert heard == [f"see {text} ok"] * 2, kind

    play(story, session_id="run-42")


def test_a_short_paste_is_text_and_its_line_ends_are_those_of_text(monkeypatch):
    heard = listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        prompt = await at_prompt(pilot)
        await paste(pilot, "a\r\nb\rc\n👍🏽 d\te")
        assert prompt.value == "a\nb\nc\n👍🏽 d\te"
        await press(pilot, "enter")
        assert heard == ["a\nb\nc\n👍🏽 d\te"]

    play(story, session_id="run-42")


def test_control_characters_are_held_aside_and_reach_no_terminal(monkeypatch):
    heard = listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        prompt = await at_prompt(pilot)
        await paste(pilot, "\x1b]0;owned\x07 [bold]")
        assert prompt.value == "[pasted 17 characters]"
        await press(pilot, "enter")
        assert heard == ["\x1b]0;owned\x07 [bold]"]

    play(story, session_id="run-42")


def test_a_label_is_one_piece_for_the_cursor_and_for_deleting(monkeypatch):
    heard = listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        prompt = await at_prompt(pilot)
        await press(pilot, "a")
        await paste(pilot, "x" * 5_000)
        label = prompt.value[1:]
        await press(pilot, "left")
        assert prompt.cursor_location == (0, 1)
        await press(pilot, "b", "right")
        assert prompt.cursor_location == (0, 2 + len(label))
        await press(pilot, "ctrl+left")
        assert prompt.cursor_location[1] <= 2
        await press(pilot, "end", "backspace")
        assert prompt.value == "ab"
        await press(pilot, "ctrl+z")
        assert prompt.value == f"ab{label}"
        await press(pilot, "home", "right", "right", "delete")
        assert prompt.value == "ab"
        await press(pilot, "enter")
        assert heard == ["ab"]

    play(story, session_id="run-42")


@pytest.mark.slow
def test_whatever_keys_are_pressed_a_label_is_whole_or_gone(monkeypatch):
    listening(monkeypatch)
    a_few_sessions()
    keys = "left right backspace delete ctrl+w ctrl+k ctrl+u ctrl+z ctrl+y shift+left shift+right ctrl+left ctrl+right "
    keys += "home end up down alt+delete ctrl+shift+k ctrl+x ctrl+v a space ctrl+j shift+home shift+up f6 f7"

    async def story(pilot):
        prompt = await at_prompt(pilot)
        for seed in range(2):
            random = Random(seed)
            prompt.empty()
            for _ in range(80):
                if random.random() < 0.1:
                    prompt.paste(random.choice("xyz") * random.choice([3_000, 5_000]))
                await pilot.press(random.choice(keys.split()))
                left = prompt._entered.pastes.full(prompt.value)
                assert not any(part in left for part in ("[", "]", "pasted", "characters"))

    play(story, session_id="run-42")


def test_two_pastes_of_the_same_size_are_told_apart(monkeypatch):
    heard = listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        prompt = await at_prompt(pilot)
        for letter in "xyx":
            await paste(pilot, letter * 3_000)
        assert prompt.value == "[pasted 3,000 characters][pasted 3,000 characters #2][pasted 3,000 characters]"
        await press(pilot, "enter")
        assert heard == ["x" * 3_000 + "y" * 3_000 + "x" * 3_000]

    play(story, session_id="run-42")


def test_a_paste_while_the_prompt_has_no_focus_goes_there(monkeypatch):
    listening(monkeypatch)
    a_few_sessions()

    async def story(pilot):
        assert not prompt_of(pilot).has_focus
        await paste(pilot, "found")
        assert prompt_of(pilot).has_focus
        assert prompt_of(pilot).value == "found"

    play(story, session_id="run-42")


def test_a_megabyte_behind_a_command_is_its_argument():
    a_few_sessions()

    async def story(pilot):
        await at_prompt(pilot)
        await press(pilot, *"/facts ")
        await paste(pilot, "y" * MEGABYTE)
        await press(pilot, "enter")
        assert "is not a kind of fact" in told(pilot)[-1]
        assert len(told(pilot)[-1]) < 500

    play(story, session_id="run-42")


@given(st.lists(st.text(max_size=40), max_size=6))
def test_whatever_is_held_comes_back_as_it_was(texts):
    held = PastedTexts()
    labels = [held.label(text) for text in texts]
    assert held.full("|".join(labels)) == "|".join(texts)
    held.keep_only(labels[:1])
    assert held.full("".join(labels[:1])) == "".join(texts[:1])


@given(st.text())
def test_what_is_shown_as_it_is_cannot_drive_a_terminal(text):
    text = plain_lines(text)
    if is_short_and_printable(text):
        assert not set(text) & ({chr(code) for code in (*range(32), *range(127, 160))} - {"\n", "\t"})


# The terminal


def pieces(*chunks: bytes) -> list[bytes | str]:
    """What comes out, with keys that follow one another together."""
    intake, found = InputDecoder(), []
    for chunk in chunks:
        found += intake.feed(chunk)
    found += intake.rest()
    return found


@given(st.binary(max_size=300), st.integers(1, 40))
def test_a_paste_is_one_piece_whatever_is_in_it_and_however_it_arrives(pasted, size):
    pasted = pasted.replace(b"\x1b[201~", b"").replace(b"\x1b", b"\x1b[31m")
    sent = b"a\x1b[200~" + pasted + b"\x1b[201~b"
    chunks = [b"", *(sent[at : at + size] for at in range(0, len(sent), size))]
    for before, chunk in pairwise(range(len(chunks))):
        if chunks[before].endswith(b"\x1b") or chunks[chunk] == b"\x03":  # those are keys when they come alone
            chunks[before], chunks[chunk] = b"", chunks[before] + chunks[chunk]
    found = pieces(*chunks)
    assert [piece for piece in found if isinstance(piece, str)] == [pasted.decode("utf-8", "replace").replace("\0", "")]
    assert b"".join(piece for piece in found if isinstance(piece, bytes)) == b"ab"


def test_the_key_escape_does_not_wait_and_enter_with_alt_is_told_from_enter():
    intake = InputDecoder()
    assert list(intake.feed(b"\x1b")) == [b"\x1b"]
    assert list(intake.feed(b"\x1b[")) == []
    assert list(intake.rest()) == [b"\x1b["]
    assert pieces(b"\x1b\r") == [b"\x1b[13;3u"]
    assert pieces(b"\x1b[27;2;13~") == [b"\x1b[13;2u"]


def test_a_paste_whose_end_never_comes_is_given_and_ctrl_c_ends_it():
    intake = InputDecoder()
    assert list(intake.feed(b"\x1b[200~half")) == []
    assert intake.is_pasting
    assert list(intake.rest()) == ["half"]
    assert list(intake.feed(b" more")) == []
    assert list(intake.feed(b"\x03")) == [" more", b"\x03"]
    assert not intake.is_pasting


# Offers


@pytest.mark.parametrize("size", SIZES)
def test_a_slash_offers_the_commands_with_their_words(size, picture):
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "slash")
        assert pilot.app.screen.query_one(CompletionList).is_open
        assert "/compact" in screen_text(pilot)
        assert "Make the context smaller" in screen_text(pilot)
        await press(pilot, "down", "down")
        picture(pilot, "offers")

    play(story, size=size, session_id="run-42")


def test_offers_follow_what_is_written_and_tab_takes_the_chosen_one():
    a_few_sessions()

    async def story(pilot):
        prompt, offers = prompt_of(pilot), pilot.app.screen.query_one(CompletionList)
        await press(pilot, "slash", *"re")
        assert [offers.at(at).shown for at in range(2)] == ["/redo", "/recall ID"]
        await press(pilot, *"s", "tab")
        assert prompt.value == "/restore "
        await press(pilot, "ctrl+u", *"/und")
        assert offers.is_open
        await press(pilot, "right")
        assert prompt.value == "/undo"
        await press(pilot, *"xyz")
        assert not offers.is_open

    play(story, session_id="run-42")


def test_keys_that_come_faster_than_offers_are_followed_lose_nothing():
    a_few_sessions()

    async def story(pilot):
        prompt = await at_prompt(pilot)

        async def at_once(text, key):
            prompt.empty()
            for each in text:
                prompt.replace(each, *prompt.selection, maintain_selection_offset=False)
            await prompt.on_key(events.Key(key, None))
            await settle(pilot)
            return prompt.value

        assert await at_once("/und", "tab") == "/undo"
        assert await at_once("/facts deci", "tab") == "/facts decision"
        assert await at_once("/recall turn_00", "tab") == "/recall turn_009"
        assert await at_once("/und", "enter") == "/undo"
        await at_once("/compact --target 1% keep", "enter")
        assert told(pilot)[-1].startswith("✓ Compacted")

    play(story, session_id="run-42")


def test_enter_takes_what_is_offered_and_a_second_one_runs_it():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "slash", *"und", "enter")
        assert prompt_of(pilot).value == "/undo"
        assert not told(pilot)
        await press(pilot, "enter")
        assert "was taken back" in told(pilot)[-1]

    play(story, session_id="run-42")


def test_arrows_choose_around_the_ends_escape_closes_and_a_click_takes():
    a_few_sessions()

    async def story(pilot):
        prompt, offers = prompt_of(pilot), pilot.app.screen.query_one(CompletionList)
        await press(pilot, "slash", "up")
        assert offers.chosen.line == f"/{list(COMMANDS)[-1]}"
        await press(pilot, "down", "down")
        assert offers.chosen.line == list(COMMANDS.values())[1].offer().line
        await press(pilot, "escape")
        assert not offers.is_open
        assert prompt.value == "/"
        assert prompt.has_focus
        await press(pilot, "r")
        await pilot.click("#offers", offset=(3, 1))
        await settle(pilot)
        assert prompt.value == "/recall "
        assert prompt.has_focus

    play(story, session_id="run-42")


def test_arguments_that_are_known_are_offered():
    a_few_sessions()

    async def story(pilot):
        prompt, offers = prompt_of(pilot), pilot.app.screen.query_one(CompletionList)

        async def offered(text):
            prompt.focus()
            prompt.empty()
            prompt.value = text
            await settle(pilot)
            found = []
            while (offer := offers.at(len(found))) is not None:
                found.append(offer.shown)
            return found

        assert await offered("/facts fail") == ["failure"]
        assert await offered("/handoff ") == ["research", "write", "validate", "parallel"]
        assert await offered("/handoff write it ") == []
        assert await offered("/compact --l") == ["--level"]
        assert await offered("/compact --level e") == ["emergency", "aggressive"]
        assert await offered("/compact keep the names") == []
        assert "turn_004" in await offered("/recall turn_0")
        assert "turn_004" in await offered("/restore turn_0")
        assert await offered("/recall turn_004 ") == []
        assert "redact_secrets" in await offered("/settings red")
        assert await offered("/help und") == ["undo"]
        assert await offered("/nonsense ") == []
        assert await offered("talk about /facts") == []

    play(story, session_id="run-42")


def test_what_was_entered_before_is_brought_back_without_offers_in_the_way():
    a_few_sessions()

    async def story(pilot):
        await press(pilot, "slash", *"context", "enter", "slash", *"undo", "enter")
        prompt, offers = prompt_of(pilot), pilot.app.screen.query_one(CompletionList)
        await press(pilot, "up")
        assert prompt.value == "/undo"
        assert not offers.is_open
        await press(pilot, "up")
        assert prompt.value == "/context"

    play(story, session_id="run-42")


# What is told over it


def test_what_was_told_goes_away_with_escape_and_can_be_looked_back_at():
    a_few_sessions()

    async def story(pilot):
        screen = pilot.app.screen
        await at_prompt(pilot)
        screen.show_message("[bold]first[/] \x1b[31m of all")
        for number in range(30):
            screen.show_message(f"line {number}")
        await settle(pilot)
        assert "line 29" in screen_text(pilot)
        assert screen.query_one(AnswerPanel).size.height <= 8
        await press(pilot, "escape")
        assert "line 29" not in screen_text(pilot)
        await press(pilot, *["pageup"] * 6)
        assert "[bold]first[/]  [31m of all" in screen_text(pilot)
        await press(pilot, *["pagedown"] * 6)
        assert "line 29" in screen_text(pilot)
        await press(pilot, "2")
        screen.show_progress_line("at work")
        await settle(pilot)
        assert "at work" in screen_text(pilot)
        await press(pilot, "escape")
        assert "at work" in screen_text(pilot)
        screen.show_progress_line("")
        await settle(pilot)
        assert "at work" not in screen_text(pilot)

    play(story, session_id="run-42")


def test_what_is_told_while_another_screen_is_seen_is_a_message_there():
    a_few_sessions()

    async def story(pilot):
        screen = pilot.app.screen
        await press(pilot, "question_mark")
        screen.show_message("done [bold]meanwhile[/]", "done")
        await settle(pilot)
        assert [notice.message for notice in pilot.app._notifications] == ["done [bold]meanwhile[/]"]
        await press(pilot, "escape")
        assert "done [bold]meanwhile[/]" in screen_text(pilot)
        pilot.app.show_sessions()
        await settle(pilot)
        screen.show_message("later")
        screen.show_progress_line("nobody sees it")
        await settle(pilot)
        assert "later" in [notice.message for notice in pilot.app._notifications]

    play(story, session_id="run-42")
