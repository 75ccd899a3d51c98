"""The chat of a session on the screen, with a provider that says what a script says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from msgspec import structs

from context_compactor.sessions.session import Session
from context_compactor.settings import Level
from context_compactor.tui.screens.dialogs import NewSessionScreen
from context_compactor.tui.screens.sessions import SessionsScreen
from context_compactor.tui.screens.viewer import ViewerScreen
from context_compactor.tui.widgets.conversation import LinkLine
from tests.llm.provider import Provider, Reply, failure
from tests.sessions.talk import messages
from tests.tui.chatting import OPENAI, answers, name_of, pane, prompt, reply, send, show
from tests.tui.places import (
    CALM,
    SIZES,
    URL,
    WIDE,
    a_few_sessions,
    enter,
    filled,
    play,
    press,
    screen_text,
    settle,
    until,
)

ANSWER = """## Yes

It is **so**, as `compute_5` says:

- one
- two

```python
def compute_5(line):
    return line * 5
```"""
HELD = Reply(pieces=OPENAI.text("One, ", "two"), end="stall")


@pytest.fixture
def provider(monkeypatch) -> Iterator[Provider]:
    for name, value in (("RETRY_DELAY_SECONDS", "0"), ("IDLE_SECONDS", "0"), ("PROMOTE_TO_MEMORY", "off")):
        monkeypatch.setenv(f"COMPACTOR_{name}", value)
    serving = Provider()
    monkeypatch.setenv("OPENAI_API_KEY", "a key of ours")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{serving.url}/v1")
    yield serving
    serving.close()


def history(session_id: str = "chat") -> list[tuple[str, str]]:
    with Session.open(session_id, store=URL, settings=CALM) as session:
        return [(raw["role"], raw["content"]) for raw in session.history()]


# Talking


def test_what_is_entered_is_answered_and_both_are_in_the_store(provider):
    provider.replies = answers(ANSWER)

    async def story(pilot) -> None:
        assert "This session is made with your first words" in screen_text(pilot)
        await enter(pilot, "Is it so?")
        shown = screen_text(pilot)
        assert "▌ Is it so?" in shown
        assert "It is so, as `compute_5` says:" in shown
        assert "• two" in shown
        assert "2 messages" in shown
        assert prompt(pilot) == ""

    show(story, provider, size=WIDE)
    assert history() == [("user", "Is it so?"), ("assistant", ANSWER)]


def test_an_answer_is_seen_while_it_comes_and_ctrl_c_ends_it_and_keeps_what_was_said(provider):
    provider.replies = [HELD, reply("Three.")]

    async def story(pilot) -> None:
        await send(pilot, "Count")
        await until(pilot, lambda: "One, two" in screen_text(pilot))
        assert "answering… · Ctrl-C ends it" in screen_text(pilot)
        await pilot.press("ctrl+c")
        await settle(pilot)
        assert "[cut off here: the user has ended the answer]" in screen_text(pilot)
        assert "Ended. What was said is kept." in screen_text(pilot)
        await enter(pilot, "Go on")
        assert "Three." in screen_text(pilot)
        assert "Ended." not in screen_text(pilot)

    show(story, provider)
    assert [role for role, _ in history()] == ["user", "assistant", "user", "assistant"]


def test_reasoning_is_seen_while_it_comes_and_is_gone_with_the_answer(provider):
    provider.replies = [Reply(pieces=OPENAI.thinking("Let me think about doors."), end="stall"), reply("A door.")]

    async def story(pilot) -> None:
        await send(pilot, "What is it?")
        await until(pilot, lambda: "Let me think about doors." in screen_text(pilot))
        assert "thinking…" in screen_text(pilot)
        await pilot.press("ctrl+c")
        await settle(pilot)
        assert "think about doors" not in screen_text(pilot)
        await enter(pilot, "/retry")
        assert "A door." in screen_text(pilot)

    show(story, provider)
    assert history() == [("user", "What is it?"), ("assistant", "A door.")]


def test_a_second_message_while_an_answer_comes_is_refused_and_stays_in_the_prompt(provider):
    provider.replies = [HELD, reply("Three.")]

    async def story(pilot) -> None:
        await send(pilot, "Count")
        await until(pilot, lambda: "One, two" in screen_text(pilot))
        await send(pilot, "Faster")
        await until(pilot, lambda: "under way" in screen_text(pilot))
        assert prompt(pilot) == "Faster"
        await pilot.press("ctrl+c")
        await settle(pilot)
        await press(pilot, "enter")
        assert "Three." in screen_text(pilot)

    show(story, provider)
    assert [text for role, text in history() if role == "user"] == ["Count", "Faster"]


def test_the_answer_goes_on_when_the_screen_is_left_and_is_told_when_it_is_there(provider):
    provider.replies = [HELD]

    async def story(pilot) -> None:
        await send(pilot, "Count")
        await until(pilot, lambda: "One, two" in screen_text(pilot))
        await pilot.press("escape")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, SessionsScreen))
        pilot.app.show_session("chat", "chat")
        await until(pilot, lambda: "One, two" in screen_text(pilot))
        await pilot.press("escape")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, SessionsScreen))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "What was said is kept" in screen_text(pilot))

    show(story, provider)
    assert history()[1][1].startswith("One, two")


def test_to_leave_the_app_in_the_middle_of_an_answer_keeps_what_was_said(provider):
    provider.replies = [HELD]

    async def story(pilot) -> None:
        await send(pilot, "Count")
        await until(pilot, lambda: "One, two" in screen_text(pilot))
        pilot.app.exit()

    show(story, provider, settles=False)
    assert [role for role, _ in history()] == ["user", "assistant"]
    assert history()[1][1].startswith("One, two")


# What goes wrong


def test_words_that_were_not_kept_are_in_the_prompt_again(provider, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")

    async def story(pilot) -> None:
        await enter(pilot, "Is it so?")
        assert "OPENAI_API_KEY" in screen_text(pilot)
        assert "your words are in the prompt again" in screen_text(pilot)
        assert prompt(pilot) == "Is it so?"
        await enter(pilot, "")  # and may be sent again
        assert prompt(pilot) == "Is it so?"

    show(story, provider, model="openai/gpt-4.1-mini", window=None)


def test_a_long_paste_that_was_not_kept_is_in_the_prompt_again_as_its_label(provider):
    provider.replies = answers("Yes.")

    async def story(pilot) -> None:
        await enter(pilot, "word " * 20_000)
        assert "These are 20,001 tokens, and a request of this session holds" in screen_text(pilot)
        assert prompt(pilot).startswith("[pasted 100,000 characters")

    show(story, provider)


def test_words_that_were_kept_and_not_answered_can_be_asked_again(provider):
    provider.replies = [failure(401, OPENAI.error("invalid_api_key", "no such key")), reply("Yes.")]

    async def story(pilot) -> None:
        await enter(pilot, "Is it so?")
        assert "no such key" in screen_text(pilot)
        assert "/retry asks again" in screen_text(pilot)
        assert prompt(pilot) == ""
        await enter(pilot, "/retry")
        assert "Yes." in screen_text(pilot)
        assert "no such key" not in screen_text(pilot)

    show(story, provider)
    assert history() == [("user", "Is it so?"), ("assistant", "Yes.")]


def test_that_a_model_was_asked_again_is_said(provider):
    provider.replies = [failure(503, b"busy"), reply("Yes.")]

    async def story(pilot) -> None:
        await enter(pilot, "Is it so?")
        assert "asked again after 0 s" in screen_text(pilot)
        assert "Yes." in screen_text(pilot)

    show(story, provider)


def test_terminal_codes_in_an_answer_are_harmless_and_html_is_seen(provider):
    provider.replies = answers(
        "\x1b[31mred\x1b[0m and \x07 bell [bold]plain[/bold]\n\n<div>block</div>\n\n[1]: http://x"
    )

    async def story(pilot) -> None:
        await enter(pilot, "Evil \x1b[2J?")
        shown = screen_text(pilot)
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "[bold]plain[/bold]" in shown
        assert "<div>block</div>" in shown
        assert "[1]: http://x" in shown

    show(story, provider)


# Compactions


def test_compactions_are_seen_in_their_places_with_how_to_take_them_back(provider):
    provider.replies = answers("Yes.")
    filled("run-42", messages(0, 24))

    async def story(pilot) -> None:
        shown = screen_text(pilot)
        assert re.search(r"✓ Compacted 22 messages · Tokens: 2,551 → [\d,]+ \(saved [\d,]+\)", shown)
        assert "/undo takes it back" in shown
        assert shown.index("← 90 lines") < shown.index("✓ Compacted") < shown.index("Part 5 does 15.")
        await enter(pilot, "/undo")
        assert "↺ Taken back: compacted 22 messages" in screen_text(pilot)
        await enter(pilot, "/redo")
        assert "✓ Compacted 22 messages · Tokens" in screen_text(pilot)
        await pilot.click(".compaction")
        await settle(pilot)
        assert pilot.app.screen.pane is pilot.app.screen.pane_of("compactions")

    show(story, provider, "run-42", window=3_000)


def test_the_context_is_compacted_under_ones_eyes_and_one_goes_on(provider):
    words = "the keeper counts the ships that pass the rock; " * 6
    provider.replies = [reply(f"Answer {number}: {words}", counted=False) for number in range(14)]

    async def story(pilot) -> None:
        seen = 0
        for number in range(14):
            await enter(pilot, f"Question {number}: {words}")
            assert f"Answer {number}:" in screen_text(pilot)
            seen += "✓ Compacted" in screen_text(pilot)
        assert seen >= 1
        status = await pilot.app.source.session("chat")
        assert status.totals.compactions >= 1
        assert status.line.tokens <= status.budget_tokens

    show(story, provider, window=2_000, size=WIDE)
    assert [text.split(":")[0] for _, text in history()] == [
        f"{who} {number}" for number in range(14) for who in ("Question", "Answer")
    ]


def test_while_a_compaction_takes_its_time_it_is_seen_and_nothing_is_seen_twice(provider):
    provider.replies = [reply("One.", counted=False)]
    filled("run-42", messages(0, 24), window=100_000)

    async def story(pilot) -> None:
        app = pilot.app
        append, go_on = app.source.append, asyncio.Event()

        async def slow(session_id, message, usage=None):
            done = await append(session_id, message, usage)
            await go_on.wait()
            return done

        app.source.append = slow
        app.source.session = full(app.source.session)
        await send(pilot, "Is it so?")
        await until(pilot, lambda: "compacting…" in screen_text(pilot))
        await until(pilot, lambda: pane(pilot).conversation.end == 25)
        await settle(pilot, with_work=False)
        await until(pilot, lambda: screen_text(pilot).count("Is it so?") == 1)
        go_on.set()
        await settle(pilot)
        assert screen_text(pilot).count("One.") == 1

    def full(look):
        async def session(session_id):
            status = await look(session_id)
            return structs.replace(status, line=structs.replace(status.line, level=Level.SOFT))

        return session

    show(story, provider, "run-42", window=100_000)


# Long and living ones


def test_a_long_session_shows_its_end_and_earlier_messages_when_they_are_wanted(provider):
    filled("run-42", messages(0, 200), window=1_000_000)

    async def story(pilot) -> None:
        talk = pane(pilot).conversation
        assert (talk.first, talk.end) == (160, 200)
        assert "Part 49 does 147." in screen_text(pilot)
        await press(pilot, "escape", "home")
        assert "▴ 160 earlier messages" in screen_text(pilot)
        before = screen_text(pilot)
        top = next(line for line in before.splitlines() if "Request 40" in line)
        talk.query_one(".earlier", LinkLine).focus()
        await press(pilot, "enter")
        assert talk.first == 120
        assert top in screen_text(pilot)  # what was read is still in sight
        await press(pilot, "home")
        assert "▴ 120 earlier messages" in screen_text(pilot)

    show(story, provider, "run-42", size=WIDE)


def test_messages_that_somebody_else_appends_appear_and_one_who_reads_earlier_ones_stays_there(provider):
    filled("run-42", messages(0, 40), window=1_000_000)

    async def story(pilot) -> None:
        await asyncio.to_thread(filled, "run-42", messages(40, 44), 1_000_000)
        await until(pilot, lambda: "Part 10 does 30." in screen_text(pilot))
        await press(pilot, "escape", "home")
        await asyncio.to_thread(filled, "run-42", messages(44, 48), 1_000_000)
        await until(pilot, lambda: pane(pilot).conversation.end == 48)
        await settle(pilot)
        assert "Request 1:" in screen_text(pilot)
        assert "Part 11" not in screen_text(pilot)
        await press(pilot, "end")
        assert "Part 11 does 33." in screen_text(pilot)

    show(story, provider, "run-42")


def test_when_very_much_is_new_only_the_end_of_it_is_shown(provider):
    filled("run-42", messages(0, 4), window=1_000_000)

    async def story(pilot) -> None:
        await asyncio.to_thread(filled, "run-42", messages(4, 400), 1_000_000)
        talk = pane(pilot).conversation
        await until(pilot, lambda: talk.end == 400 and talk.first >= 100)

    show(story, provider, "run-42")


def test_a_very_long_message_is_cut_and_can_be_opened(provider):
    long = "\n".join(f"line {number} of a very long answer" for number in range(1_000))
    provider.replies = answers(long)

    async def story(pilot) -> None:
        await enter(pilot, "Tell me all")
        await until(pilot, lambda: "more characters: Enter or a click opens all of it" in screen_text(pilot))
        await press(pilot, "escape")
        await until(pilot, lambda: pilot.app.focused is pane(pilot).conversation)
        await press(pilot, "tab")
        await until(pilot, lambda: isinstance(pilot.app.focused, LinkLine))
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ViewerScreen))
        await until(pilot, lambda: "line 0 of a very long answer" in screen_text(pilot))

    show(story, provider)
    assert history()[1] == ("assistant", long)


def test_a_step_of_an_agent_is_a_line_that_can_be_opened(provider):
    filled("run-42", messages(0, 4), window=1_000_000)

    async def story(pilot) -> None:
        assert "→ Read src/part_0.py" in screen_text(pilot)
        assert "← 8 lines: line 0 of part 0" in screen_text(pilot)
        await pilot.click(pilot.app.screen.query(".step").last())
        await settle(pilot)
        assert isinstance(pilot.app.screen, ViewerScreen)
        assert "line 7 of part 0" in screen_text(pilot)

    show(story, provider, "run-42")


def test_what_was_said_can_be_selected_and_copied(provider):
    provider.replies = answers("The **door** is `green`.")

    async def story(pilot) -> None:
        await enter(pilot, "What colour?")
        chunk = pilot.app.screen.query("#said .chunk").last()
        await pilot.mouse_down(chunk, offset=(0, 0))
        await pilot.hover(chunk, offset=(8, 0))
        await pilot.mouse_up(chunk, offset=(8, 0))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: pilot.app.clipboard == "The door ")

    show(story, provider)


# Which model


def test_model_tells_who_answers_and_has_another_one_answer(provider):
    provider.replies = answers("Yes.")

    async def story(pilot) -> None:
        await enter(pilot, "/model")
        assert f"{name_of(provider)} (--model)" in screen_text(pilot)
        await enter(pilot, f"/model {provider.url}/v1#other")
        assert f"{provider.url}/v1#other: window 8,000 tokens" in screen_text(pilot)
        assert f"with {provider.url}/v1#other (chosen here)" in screen_text(pilot)
        await enter(pilot, "/model nobody")
        assert "is not a model name" in screen_text(pilot)
        await enter(pilot, "Is it so?")

    show(story, provider, size=WIDE)
    assert [body["model"] for body in provider.bodies] == ["other"]


def test_without_a_model_the_chat_says_how_to_name_one_and_keeps_what_was_written(provider):
    a_few_sessions()

    async def story(pilot) -> None:
        await press(pilot, "3")
        assert "no model to talk to yet: /model NAME" in screen_text(pilot)
        await press(pilot, "i")
        await enter(pilot, "Hello")
        assert "compactor tui --model NAME" in screen_text(pilot)
        assert prompt(pilot) == "Hello"

    play(story, session_id="run-42", size=WIDE)


# New sessions


def test_n_begins_a_session_with_a_name_of_its_own_and_its_chat(provider):
    provider.replies = answers("Good morning.")

    async def story(pilot) -> None:
        await press(pilot, "n")
        assert isinstance(pilot.app.screen, NewSessionScreen)
        assert "chat-2026-03-04" in screen_text(pilot)
        await enter(pilot, "")
        assert "A model is missing" in screen_text(pilot)
        await enter(pilot, "smollm2")
        assert "is not a model name" in screen_text(pilot)
        pilot.app.focused.value = name_of(provider)
        await press(pilot, "tab")
        await enter(pilot, "many")
        assert "window: 'many' is not a whole number" in screen_text(pilot)
        pilot.app.focused.value = ""
        await enter(pilot, "16k")
        assert "This session is made with your first words" in screen_text(pilot)
        await enter(pilot, "Hello")
        assert "Good morning." in screen_text(pilot)
        assert (await pilot.app.source.session("chat-2026-03-04")).line.window == 16_000

    play(story)


def test_in_a_session_that_is_not_made_yet_commands_say_so_and_harm_nothing(provider):
    provider.replies = answers("Good morning.")

    async def story(pilot) -> None:
        await press(pilot, "escape")
        for number in range(1, 8):
            await press(pilot, str(number))
        await press(pilot, "3", "i")
        await pilot.press(*"/model ")
        await press(pilot, "ctrl+c")
        await enter(pilot, "/compact")
        assert "there is no store" in screen_text(pilot)
        await enter(pilot, "/retry")
        await enter(pilot, "Hello")
        assert "Good morning." in screen_text(pilot)

    show(story, provider)
    assert history() == [("user", "Hello"), ("assistant", "Good morning.")]


def test_the_name_of_a_new_session_is_one_that_no_other_has(provider):
    filled("chat-2026-03-04", messages(0, 4))

    async def story(pilot) -> None:
        await press(pilot, "n")
        assert "chat-2026-03-04-2" in screen_text(pilot)
        pilot.app.screen.query_one("#new-name").value = "chat-2026-03-04"
        await enter(pilot, name_of(provider))
        assert "There is a session 'chat-2026-03-04' already" in screen_text(pilot)
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, SessionsScreen)

    play(story)


def test_where_there_is_no_session_it_is_said_how_to_begin_to_chat():
    async def story(pilot) -> None:
        assert "chat with a model" in screen_text(pilot)
        await press(pilot, "n")
        assert isinstance(pilot.app.screen, NewSessionScreen)

    play(story)


# Pictures


@pytest.mark.parametrize("size", SIZES)
def test_a_chat_with_a_compaction_looks_as_it_should(provider, picture, size):
    filled("run-42", messages(0, 24))
    provider.replies = [reply(ANSWER, counted=False)]

    async def story(pilot) -> None:
        picture(pilot, "chat-compaction")
        await enter(pilot, "Is it so?")
        picture(pilot, "chat")

    show(story, provider, "run-42", window=3_000, size=size, model="openai/gpt-4.1-mini")


@pytest.mark.parametrize("size", SIZES)
def test_an_answer_that_is_coming_looks_as_it_should(provider, picture, size):
    filled("run-42", messages(0, 8))
    provider.replies = [Reply(pieces=OPENAI.text(ANSWER), end="stall")]

    async def story(pilot) -> None:
        await send(pilot, "Is it so?")
        await until(pilot, lambda: "return line * 5" in screen_text(pilot) and "9 messages" in screen_text(pilot))
        await until(pilot, lambda: pane(pilot).conversation.end == 9)
        await settle(pilot, with_work=False)
        picture(pilot, "chat-answering")
        await pilot.press("ctrl+c")

    show(story, provider, "run-42", window=3_000, size=size, model="openai/gpt-4.1-mini")


@pytest.mark.parametrize("size", SIZES)
def test_a_new_session_looks_as_it_should(picture, size):
    async def story(pilot) -> None:
        await press(pilot, "n")
        picture(pilot, "new-session")

    play(story, size=size)
