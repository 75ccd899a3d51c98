"""Talk in a session without any screen, with a provider that says what a script says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from context_compactor.errors import CompactorError, StoreError
from context_compactor.sessions.session import Session
from context_compactor.tui.chat.chats import ChatExchange, Chats
from context_compactor.tui.chat.models import ModelChoice
from tests.llm.formats import FORMATS
from tests.llm.provider import Provider, Reply, failure
from tests.sessions.talk import illegal, messages
from tests.tui.chatting import OPENAI, Place, answers, assert_valid, name_of, reply, run
from tests.tui.places import CALM, URL, filled
from tests.waiting import PATIENCE, until

LONG = "maximum context length is 4,096 tokens, and you asked for more"


@pytest.fixture
def provider(monkeypatch) -> Iterator[Provider]:
    for name, value in (("RETRY_DELAY_SECONDS", "0"), ("IDLE_SECONDS", "0"), ("PROMOTE_TO_MEMORY", "off")):
        monkeypatch.setenv(f"COMPACTOR_{name}", value)
    serving = Provider()
    yield serving
    serving.close()


@pytest.fixture
def place(provider) -> Place:
    return Place(provider)


def overflow() -> Reply:
    return failure(400, OPENAI.error("context_length_exceeded", LONG))


# A exchange


def test_a_turn_keeps_the_words_of_both_and_the_session_is_made_for_the_model(provider, place):
    provider.replies = answers("Good morning.")

    async def story() -> None:
        exchange = await place.say("Hello")
        assert (exchange.notes, exchange.is_kept, exchange.is_answered, exchange.is_over) == ([], True, True, True)
        assert await place.talked() == [("user", "Hello"), ("assistant", "Good morning.")]
        line = (await place.source.session("chat")).line
        assert (line.window, line.model, line.dialect) == (8_000, name_of(provider), "openai-chat")

    run(story, place)
    assert provider.bodies[0]["messages"] == [{"role": "user", "content": "Hello"}]


def test_each_turn_sends_everything_that_was_said(provider, place):
    provider.replies = answers("One.", "Two.")

    async def story() -> None:
        await place.say("First")
        await place.say("Second")

    run(story, place)
    assert [(each["role"], each["content"]) for each in provider.bodies[1]["messages"]] == [
        ("user", "First"),
        ("assistant", "One."),
        ("user", "Second"),
    ]
    assert_valid(provider.bodies[1])


def test_the_answer_is_heard_while_it_comes_with_its_reasoning_apart_and_only_the_text_is_kept(provider, place):
    said = [*OPENAI.thinking("Hm."), *OPENAI.text("<think>And hm.</think>", "Yes", ", but")]
    provider.replies = [Reply(pieces=said, end="stall")]

    async def story() -> None:
        exchange = ChatExchange("Well?")
        task = asyncio.create_task(exchange.run(place.source, "chat", place.chats))
        await until(lambda: exchange.partial.said() == ("Yes, but", "Hm.And hm."))
        task.cancel()
        await asyncio.wait([task])
        assert (await place.talked())[1] == ("assistant", "Yes, but\n\n[cut off here: the user has ended the answer]")

    run(story, place)


def test_the_usage_that_the_provider_tells_is_what_the_session_counts_with(provider, place):
    provider.replies = answers("Yes.")

    async def story() -> None:
        await place.say("Well?")
        assert (await place.source.session("chat")).line.tokens == 107

    run(story, place)


def test_the_usage_of_another_model_than_the_sessions_own_is_not_counted_with(provider, place):
    provider.replies = answers("Yes.")
    Session.open("chat", window=8_000, store=URL, model="gpt-4.1", settings=CALM).close()

    async def story() -> None:
        await place.say("Well?")
        assert (await place.source.session("chat")).line.tokens < 50

    run(story, place)


def test_an_answer_has_as_much_room_as_the_window_leaves_unless_a_setting_says_how_much(provider, place):
    provider.replies = answers("Yes.")
    own = Place(provider, "own", source=place.source)
    Session.open("own", window=8_000, store=URL, settings=CALM.__class__(reserve_output_tokens=77)).close()

    async def story() -> None:
        await place.say("Well?")
        await own.say("Well?")

    run(story, place)
    assert [body["max_tokens"] for body in provider.bodies] == [2_000, 77]


# Endings


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply("Good mor", end="length"), "cut off"),
        (Reply(pieces=OPENAI.refusal()), "refused"),
        (Reply(pieces=[*OPENAI.text("Let me see."), *OPENAI.tool_call()]), "tool"),
    ],
)
def test_an_answer_that_is_not_complete_is_kept_and_said_to_be_so(provider, place, answer, words):
    provider.replies = [answer, reply("And on.")]

    async def story() -> None:
        exchange = await place.say("Well?")
        assert [words in note.words for note in exchange.notes] == [True]
        assert [role for role, _ in await place.talked()] == ["user", "assistant"]
        await place.say("Go on")

    run(story, place)
    assert_valid(provider.bodies[1])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply(), "answered nothing"),
        (reply(" \n"), "answered nothing"),
        (Reply(pieces=[*OPENAI.thinking("Hm"), *OPENAI.end("length")]), "no room left"),
        (Reply(pieces=OPENAI.tool_call()), "tool"),
        (Reply(pieces=OPENAI.end("content_filter")), "refused"),
    ],
)
def test_where_nothing_is_said_the_words_stand_alone_and_can_be_asked_again(provider, place, answer, words):
    provider.replies = [answer, reply("Now."), reply("Then.")]

    async def story() -> None:
        exchange = await place.say("Well?")
        (note,) = exchange.notes
        assert words in note.words
        assert "/retry" in note.words
        assert await place.talked() == [("user", "Well?")]
        again = await place.say()
        assert again.notes == []
        assert await place.talked() == [("user", "Well?"), ("assistant", "Now.")]
        await place.say("And?")

    run(story, place)
    for body in provider.bodies:
        assert_valid(body)
    assert provider.bodies[0]["messages"] == provider.bodies[1]["messages"]


def test_there_is_nothing_to_ask_again_when_the_last_word_is_not_the_users(provider, place):
    provider.replies = answers("Yes.")

    async def story() -> None:
        await place.say("Well?")
        exchange = await place.say()
        assert "the last word is not yours" in exchange.notes[0].words
        assert len(await place.history()) == 2

    run(story, place)
    assert len(provider.bodies) == 1


def test_words_that_nobody_has_answered_go_out_with_those_that_follow(provider, place):
    provider.replies = [failure(401, OPENAI.error("invalid_api_key", "no such key")), reply("Yes.")]

    async def story() -> None:
        exchange = await place.say("First")
        assert "no such key" in exchange.notes[0].words
        assert "kept" in exchange.notes[0].words
        await place.say("Second")
        assert [role for role, _ in await place.talked()] == ["user", "user", "assistant"]

    run(story, place)
    assert provider.bodies[1]["messages"] == [{"role": "user", "content": "First\n\nSecond"}]


def test_what_passes_is_asked_again_and_that_is_said(provider, place):
    provider.replies = [failure(503, b"busy"), failure(429, b"slow down"), reply("Yes.")]

    async def story() -> None:
        exchange = await place.say("Well?")
        assert ["asked again after" in note.words for note in exchange.notes] == [True, True]
        assert "busy" in exchange.notes[0].words
        assert await place.talked() == [("user", "Well?"), ("assistant", "Yes.")]

    run(story, place)


def test_an_answer_that_breaks_off_is_asked_for_again_and_only_the_whole_one_is_kept(provider, place):
    provider.replies = [Reply(pieces=OPENAI.text("Yes, b"), end="drop"), reply("No.")]

    async def story() -> None:
        exchange = await place.say("Well?")
        assert len(exchange.notes) == 1
        assert await place.talked() == [("user", "Well?"), ("assistant", "No.")]

    run(story, place)


def test_when_the_connection_stays_lost_the_most_that_was_said_is_kept_and_the_note_in_it_says_so(provider, place):
    lost = [Reply(pieces=OPENAI.text("Yes, but only"), end="drop"), Reply(pieces=OPENAI.text("Y"), end="drop")]
    provider.replies = [*lost, failure(503, b"gone"), reply("On.")]

    async def story() -> None:
        exchange = await place.say("Well?")
        assert exchange.notes[-1].words.startswith(f"{name_of(provider)}: HTTP 503")
        assert (await place.talked())[1:] == [("assistant", "Yes, but only\n\n[cut off here: the connection was lost]")]
        await place.say("Go on")

    run(story, place)
    assert_valid(provider.bodies[-1])


def test_a_provider_that_is_not_there_is_an_error_and_the_words_are_kept(place, provider):
    provider.close()
    provider.close = lambda: None

    async def story() -> None:
        exchange = await place.say("Well?")
        assert exchange.notes[-1].tone == "failed"
        assert "/retry" in exchange.notes[-1].words
        assert await place.talked() == [("user", "Well?")]

    run(story, place)


def test_an_answer_that_cannot_be_kept_is_said_not_to_be_and_is_still_there_to_be_seen(provider, place):
    provider.replies = answers("Yes.", "Yes, yes.")

    async def story() -> None:
        append = place.source.append

        async def failing(session_id, message, usage=None):
            if message["role"] == "assistant":
                raise StoreError("the disk is full")
            return await append(session_id, message, usage)

        place.source.append = failing
        exchange = await place.say("Well?")
        assert (exchange.is_lost, exchange.is_kept, exchange.is_answered) == (True, True, False)
        assert exchange.notes[-1].words.startswith("the disk is full\nThe answer is not kept.")
        assert exchange.partial.said()[0] == "Yes."
        place.source.append = append
        await place.say()
        assert await place.talked() == [("user", "Well?"), ("assistant", "Yes, yes.")]

    run(story, place)


# Ending it


@pytest.mark.parametrize("times", [1, 3])
def test_an_answer_that_the_user_ends_is_kept_as_far_as_it_came(provider, place, times):
    provider.replies = [Reply(pieces=OPENAI.text("One, two"), end="stall"), reply("Three.")]

    async def story() -> None:
        exchange = ChatExchange("Count")
        task = asyncio.create_task(exchange.run(place.source, "chat", place.chats))
        await until(lambda: exchange.partial.said()[0] == "One, two")
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([task])
        assert task.cancelled()
        assert (exchange.is_over, exchange.notes[-1].words) == (True, "Ended. What was said is kept.")
        assert (await place.talked())[1] == ("assistant", "One, two\n\n[cut off here: the user has ended the answer]")
        await place.say("Go on")

    run(story, place)
    assert provider.gone.wait(PATIENCE)
    assert_valid(provider.bodies[1])


def test_where_nothing_was_said_yet_the_words_stand_alone(provider, place):
    provider.replies = [Reply(end="stall"), reply("Yes.")]

    async def story() -> None:
        exchange = ChatExchange("Well?")
        task = asyncio.create_task(exchange.run(place.source, "chat", place.chats))
        await until(lambda: provider.bodies)
        task.cancel()
        await asyncio.wait([task])
        assert exchange.notes[-1].words == "Ended. Your words are kept: /retry asks again."
        assert await place.talked() == [("user", "Well?")]
        await place.say()
        assert await place.talked() == [("user", "Well?"), ("assistant", "Yes.")]

    run(story, place)


def test_a_wait_before_another_try_can_be_ended(provider, place, monkeypatch):
    monkeypatch.setenv("COMPACTOR_RETRY_DELAY_SECONDS", "3000")
    provider.replies = [failure(503, b"busy")]

    async def story() -> None:
        exchange = ChatExchange("Well?")
        task = asyncio.create_task(exchange.run(place.source, "chat", place.chats))
        await until(lambda: exchange.notes)
        task.cancel()
        await asyncio.wait([task])
        assert await place.talked() == [("user", "Well?")]

    run(story, place)


def test_words_whose_keeping_was_ended_are_either_kept_or_said_not_to_be(provider, place):
    provider.replies = answers("Yes.")

    async def story() -> None:
        await place.say("Hello")
        for steps in range(1, 40):
            exchange = ChatExchange(f"Number {steps}")
            task = asyncio.create_task(exchange.run(place.source, "chat", place.chats))
            for _ in range(steps):
                await asyncio.sleep(0.001 * (steps % 3))
            task.cancel()
            await asyncio.wait([task])
            assert exchange.is_over
            assert exchange.is_kept is (("user", exchange.text) in await place.talked()), steps

    run(story, place)
    for body in provider.bodies:
        assert_valid(body)


# Which model


def test_without_a_model_nothing_is_kept_and_it_is_said_how_to_name_one(provider):
    place = Place(provider)
    place.chats = Chats()
    place.chats.expect("chat")

    async def story() -> None:
        exchange = await place.say("Hello")
        words = exchange.notes[0].words
        assert not exchange.is_kept
        assert all(part in words for part in ("/model NAME", "--model", "http://127.0.0.1", "in the prompt again"))

    run(story, place)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("openai/gpt-4.1", "OPENAI_API_KEY"),
        ("anthropic/claude-haiku-4-5", "ANTHROPIC_API_KEY"),
        ("claude-haiku-4-5", "ANTHROPIC_API_KEY"),
        ("smollm2", "is not a model name"),
        ("http://127.0.0.1:1/v1", "followed by #"),
    ],
)
def test_a_model_that_cannot_be_opened_is_said_to_need_what_it_needs_and_nothing_is_kept(
    provider, monkeypatch, name, words
):
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(key, raising=False)
    place = Place(provider)
    place.chats = Chats(ModelChoice(name))
    place.chats.expect("chat")

    async def story() -> None:
        exchange = await place.say("Hello")
        assert words in exchange.notes[0].words
        assert not exchange.is_kept

    run(story, place)


def test_a_session_that_is_not_there_and_was_not_asked_for_is_an_error(provider, place):
    filled("other", messages(0, 2))
    place.session_id = "typo"

    async def story() -> None:
        exchange = await place.say("Hello")
        assert "typo" in exchange.notes[0].words
        assert not exchange.is_kept

    run(story, place)


def test_the_sessions_own_model_is_talked_to_then_that_of_the_settings(provider, place, monkeypatch):
    Session.open("own", window=8_000, store=URL, model=name_of(provider)).close()
    Session.open("plain", window=8_000, store=URL, model="smollm2").close()
    monkeypatch.setenv("COMPACTOR_SUMMARIZER", "openai/gpt-4.1")

    async def story() -> None:
        chats = Chats()
        own = await chats.chosen(place.source, "own")
        assert (own.name, own.by) == (name_of(provider), "the session's own")
        usual = await chats.chosen(place.source, "plain")
        assert (usual.name, usual.by) == ("openai/gpt-4.1", "that of the settings")

    run(story, place)


def test_another_model_is_told_in_a_line_and_talked_to_from_then_on_and_a_bad_name_changes_nothing(provider, place):
    provider.replies = answers("Yes.")

    async def story() -> None:
        await place.say("One")
        found = await place.chats.use(place.source, "chat", f"{provider.url}/v1#other")
        assert found.startswith(f"{provider.url}/v1#other: window 8,000 tokens")
        with pytest.raises(CompactorError, match="is not a model name"):
            await place.chats.use(place.source, "chat", "nobody")
        await place.say("Two")

    run(story, place)
    assert [body["model"] for body in provider.bodies] == ["scripted", "other"]


# Too long


def test_words_that_no_request_can_hold_are_refused_before_they_are_kept(provider, place):
    provider.replies = answers("Yes.")

    async def story() -> None:
        await place.say("Hello")
        exchange = await place.say("word " * 9_000)
        assert "in parts" in exchange.notes[0].words
        assert len(await place.history()) == 2

    run(story, place)


def test_a_request_that_is_too_long_for_the_model_is_compacted_and_sent_again_once(provider):
    filled("run", messages(0, 40), window=100_000)
    place = Place(provider, "run")
    provider.replies = [overflow(), reply("Yes.")]

    async def story() -> None:
        before = (await place.source.session("run")).line.tokens
        exchange = await place.say("Well?")
        assert exchange.notes == []
        assert (await place.talked())[-1] == ("assistant", "Yes.")
        (made,) = await place.source.compactions("run")
        assert made.report.tokens_after < before / 2
        assert made.report.tokens_after < 4_096

    run(story, place)
    assert len(provider.bodies) == 2
    assert len(str(provider.bodies[1])) < len(str(provider.bodies[0])) / 2
    assert_valid(provider.bodies[1])


def test_a_request_that_stays_too_long_is_an_error_and_the_conversation_goes_on(provider):
    filled("run", messages(0, 40), window=100_000)
    place = Place(provider, "run")
    provider.replies = [overflow(), overflow(), reply("Yes.")]

    async def story() -> None:
        exchange = await place.say("Well?")
        assert "still too long" in exchange.notes[-1].words
        await place.say("And now?")
        assert (await place.talked())[-1] == ("assistant", "Yes.")

    run(story, place)
    assert_valid(provider.bodies[-1])


def test_where_nothing_is_compacted_by_itself_the_user_is_told_what_to_do(provider):
    filled("run", messages(0, 40), window=100_000, automatic=False)
    place = Place(provider, "run")
    provider.replies = [overflow()]

    async def story() -> None:
        exchange = await place.say("Well?")
        assert "/compact" in exchange.notes[-1].words
        assert await place.source.compactions("run") == []

    run(story, place)


# Sessions of agents, in every dialect


@pytest.fixture
def both(provider, monkeypatch) -> dict[str, str]:
    """A model of each provider, by the dialect it takes; the scripted one serves both."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key of ours")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
    return {"openai-chat": name_of(provider), "anthropic": "anthropic/claude-haiku-4-5"}


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic"])
@pytest.mark.parametrize("ending", [6, 7, 8], ids=["at a call", "at a result", "at an answer"])
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_one_can_talk_in_the_session_of_an_agent_wherever_it_stands(provider, both, dialect, ending, wire):
    filled("run", messages(0, ending, dialect), window=100_000)
    place = Place(provider, "run")
    place.chats = Chats(ModelChoice(both[wire]))
    shape = FORMATS["anthropic" if wire == "anthropic" else "openai"]
    provider.replies = [Reply(pieces=[*shape.text("It reads."), *shape.end()])]

    async def story() -> None:
        for words in ("What do you do?", "And now?"):
            assert (await place.say(words)).notes == []
        kept = await place.history()
        assert kept[:ending] == messages(0, ending, dialect)
        assert [raw["role"] for raw in kept[ending:]] == ["user", "assistant"] * 2

    run(story, place)
    for body in provider.bodies:
        assert_valid(body, wire)
        assert "tools" not in body
    with Session.open("run", store=URL, settings=CALM) as session:  # what the agent goes on with
        assert illegal(session.context(), dialect) == []


def test_an_image_that_a_model_does_not_take_is_told_in_words_when_it_says_so(provider):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    filled("run", [{"role": "user", "content": [{"type": "text", "text": "Look"}, image]}], window=100_000)
    place = Place(provider, "run")
    provider.replies = [failure(400, OPENAI.error("invalid", "image input is not supported")), reply("A door.")]

    async def story() -> None:
        exchange = await place.say("What is it?")
        assert ["without images" in note.words for note in exchange.notes] == [True]
        assert (await place.history())[-1]["content"] == "A door."

    run(story, place)
    assert ["image_url" in str(body) for body in provider.bodies] == [True, False]


# Two at once


def test_two_who_talk_in_one_session_lose_nothing_and_each_request_is_valid(provider):
    provider.replies = [reply(f"Answer {number}.") for number in range(12)]
    filled("run", messages(0, 4), window=100_000)
    one, other = Place(provider, "run"), Place(provider, "run")

    async def story() -> None:
        async def talk(place: Place, name: str) -> None:
            for number in range(6):
                assert (await place.say(f"{name} {number}")).is_answered

        await asyncio.gather(talk(one, "one"), talk(other, "other"))
        said = await one.history()
        assert len(said) == 4 + 24
        words = [raw["content"] for raw in said]
        assert all(f"{name} {number}" in words for name in ("one", "other") for number in range(6))
        assert sorted(each for each in words if str(each).startswith("Answer")) == sorted(
            f"Answer {number}." for number in range(12)
        )

    run(story, one, other)
    for body in provider.bodies:
        assert_valid(body)


def test_when_somebody_elses_answer_came_in_between_what_was_asked_is_asked(provider, place):
    provider.replies = answers("Yes.")

    async def story() -> None:
        await place.say("Hello")
        append = place.source.append

        async def interrupted(session_id, message, usage=None):
            done = await append(session_id, message, usage)
            if message["role"] == "user":
                await append(session_id, {"role": "assistant", "content": "I answer that."})
            return done

        place.source.append = interrupted
        await place.say("Well?")

    run(story, place)
    assert [message["content"] for message in provider.bodies[1]["messages"]][2:] == [
        "Well?",
        "I answer that.",
        "Well?",
    ]
    assert_valid(provider.bodies[1])


# Without end


def test_a_conversation_in_a_small_window_is_compacted_again_and_again_and_never_ends(provider):
    words = "the lighthouse stands on the rock and its keeper counts the ships that pass; "
    provider.replies = [reply(f"Answer {number}: {words * 4}", counted=False) for number in range(40)]
    place = Place(provider, window=2_000)
    found = []

    async def story() -> None:
        for number in range(40):
            exchange = await place.say(f"Question {number}: {words * 3}")
            assert [note for note in exchange.notes if note.tone == "failed"] == []
            status = await place.source.session("chat")
            assert status.line.tokens <= status.budget_tokens
            found.append(exchange)
        said = await place.talked()
        assert [role for role, _ in said] == ["user", "assistant"] * 40
        assert [text.split(":")[0] for _, text in said] == [
            f"{who} {number}" for number in range(40) for who in ("Question", "Answer")
        ]
        assert (await place.source.session("chat")).totals.compactions >= 3
        page = await place.source.history("chat", 0, 100)
        assert len(page.compactions) == (await place.source.session("chat")).totals.compactions
        assert [each.message for each in page.compactions] == sorted(each.message for each in page.compactions)

    run(story, place)
    for body in provider.bodies:
        assert_valid(body)
    assert max(len(str(body["messages"])) for body in provider.bodies) < 4 * 2_000 * 2


def test_while_a_compaction_takes_its_time_it_is_said_that_one_goes_on(provider, monkeypatch):
    filled("run", messages(0, 40), window=100_000)
    place = Place(provider, "run")
    provider.replies = [overflow(), reply("Yes.")]
    doing: list[str] = []

    async def story() -> None:
        compact = place.source.compact

        async def slow(*args, **more):
            doing.append(exchange.doing)
            return await compact(*args, **more)

        place.source.compact = slow
        exchange = ChatExchange("Well?")
        await exchange.run(place.source, "run", place.chats)
        assert doing == ["compacting: the model says that the request is too long"]

    run(story, place)
