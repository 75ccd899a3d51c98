"""Talk in the sessions of a server: the model is asked from here, everything that is said goes there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from context_compactor.client import Client
from context_compactor.tui.sources.local import LocalSource
from context_compactor.tui.sources.remote import RemoteSource
from tests.llm.provider import Provider, Reply
from tests.server.running import Running, running
from tests.sessions.talk import messages
from tests.tui.chatting import OPENAI, Place, answers, assert_valid, pane, prompt, reply, run, send, show
from tests.tui.places import enter, screen_text, settle, until

WORDS = "the keeper counts the ships that pass the rock; " * 6


@pytest.fixture
def provider(monkeypatch) -> Iterator[Provider]:
    for name, value in (("RETRY_DELAY_SECONDS", "0"), ("IDLE_SECONDS", "0"), ("PROMOTE_TO_MEMORY", "off")):
        monkeypatch.setenv(f"COMPACTOR_{name}", value)
    serving = Provider()
    yield serving
    serving.close()


@pytest.fixture
def server(tmp_path) -> Iterator[Running]:
    with running(tmp_path, workers=1) as made:
        yield made


def remote(server: Running) -> RemoteSource:
    return RemoteSource(server.url, look_seconds=0.05)


def test_a_conversation_over_a_server_is_compacted_there_and_every_message_is_in_its_store(provider, server, tmp_path):
    provider.replies = [reply(f"Answer {number}: {WORDS}", counted=False) for number in range(24)]
    place = Place(provider, window=2_000, source=remote(server))
    beside = Place(provider, source=LocalSource(f"sqlite:///{tmp_path}/compactor.db"))

    async def story() -> None:
        for number in range(24):
            exchange = await place.say(f"Question {number}: {WORDS}")
            assert [note for note in exchange.notes if note.tone == "failed"] == []
            status = await place.source.session("chat")
            assert status.line.tokens <= status.budget_tokens
        assert [text.split(":")[0] for _, text in await place.talked()] == [
            f"{who} {number}" for number in range(24) for who in ("Question", "Answer")
        ]
        assert status.totals.compactions >= 2
        assert await place.source.history("chat", 3, 30) == await beside.source.history("chat", 3, 30)
        assert await place.source.history("chat", None, 9) == await beside.source.history("chat", None, 9)

    run(story, place, beside)
    for body in provider.bodies:
        assert_valid(body)


def test_an_answer_over_a_server_that_is_ended_is_kept_as_far_as_it_came(provider, server):
    provider.replies = [Reply(pieces=OPENAI.text("One, two"), end="stall")]

    async def story(pilot) -> None:
        await send(pilot, "Count")
        await until(pilot, lambda: "One, two" in screen_text(pilot))
        await pilot.press("ctrl+c")
        await settle(pilot)
        assert "[cut off here:" in screen_text(pilot)

    show(story, provider, source=remote(server))
    with Client(server.url) as client:
        assert [raw["role"] for raw in client.history("chat").messages] == ["user", "assistant"]


def test_the_chat_of_a_server_shows_compactions_and_what_others_append(provider, server):
    provider.replies = answers("Yes.")
    with Client(server.url) as client:
        client.create("run", window=6_000, settings={"idle_seconds": 0, "automatic": False})
        client.append("run", messages(0, 30))
        client.compact("run", target_tokens=1_000)

    async def story(pilot) -> None:
        assert "✓ Compacted" in screen_text(pilot)
        await enter(pilot, "Is it so?")
        assert "Yes." in screen_text(pilot)

        def append() -> None:
            with Client(server.url) as client:
                client.append("run", messages(32, 36))

        await asyncio.to_thread(append)
        await until(pilot, lambda: pane(pilot).conversation.end == 36)
        await until(pilot, lambda: "Part 8 does 24." in screen_text(pilot))

    show(story, provider, "run", source=remote(server))


def test_when_the_server_is_gone_what_was_written_is_in_the_prompt_again(provider, tmp_path):
    provider.replies = answers("Yes.")

    async def story(pilot) -> None:
        await enter(pilot, "Is it so?")
        assert "Yes." in screen_text(pilot)
        made.listener.should_exit = True
        await until(pilot, lambda: "offline" in screen_text(pilot))
        await send(pilot, "And now?")
        await until(pilot, lambda: prompt(pilot) == "And now?")
        await until(pilot, lambda: "Nothing was kept" in screen_text(pilot))

    with running(tmp_path, workers=1) as made:
        show(story, provider, source=remote(made))
