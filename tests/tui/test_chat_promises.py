"""Whatever is said and whatever becomes of the answers: the history is whole and valid, and every request is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_compactor.tui.chat.chats import ChatExchange
from tests.llm.provider import Provider, Reply, failure
from tests.sessions.talk import illegal
from tests.tui.chatting import OPENAI, Place, assert_valid, reply, run
from tests.waiting import until

WORDS = "the keeper counts the ships that pass the rock. " * 12
CUT = Reply(pieces=OPENAI.text(WORDS), end="drop")
HELD = Reply(pieces=OPENAI.text(WORDS), end="stall")
GOOD = reply(WORDS, counted=False)
SCRIPTS: dict[str, tuple[list[Reply], int]] = {
    "answered": ([GOOD], 1),
    "answered after a while": ([failure(503, b"busy"), GOOD], 1),
    "answered at the second go": ([CUT, GOOD], 1),
    "answered when it was shorter": ([failure(400, OPENAI.error("context_length_exceeded", "too long")), GOOD], -1),
    "cut by length": ([reply(WORDS, end="length", counted=False)], 1),
    "refused in words": ([Reply(pieces=[*OPENAI.text("No."), *OPENAI.end("content_filter")])], 1),
    "broken off": ([CUT], 1),
    "ended in the middle": ([HELD], 1),
    "ended before it came": ([Reply(end="stall")], 0),
    "empty": ([reply(counted=False)], 0),
    "denied": ([failure(401, OPENAI.error("invalid_api_key", "no"))], 0),
    "gone": ([failure(503, b"gone")], 0),
}
"""What the provider does, and how many messages of the assistant that leaves; -1 where both are right."""
said = st.tuples(st.text(min_size=1, max_size=200).map(str.strip).filter(bool), st.sampled_from(sorted(SCRIPTS)))


@pytest.fixture
def provider(monkeypatch) -> Iterator[Provider]:
    for name, value in (("RETRY_DELAY_SECONDS", "0"), ("IDLE_SECONDS", "0"), ("PROMOTE_TO_MEMORY", "off")):
        monkeypatch.setenv(f"COMPACTOR_{name}", value)
    serving = Provider()
    yield serving
    serving.close()


async def play(place: Place, provider: Provider, text: str, outcome: str) -> ChatExchange:
    provider.bodies.clear()
    provider.replies = SCRIPTS[outcome][0]
    exchange = ChatExchange(text)
    task = asyncio.create_task(exchange.run(place.source, place.session_id, place.chats))
    if outcome.startswith("ended"):
        await until(lambda: provider.bodies)
        if outcome == "ended in the middle":
            await until(lambda: exchange.partial.said()[0] == WORDS)
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() == outcome.startswith("ended")
    return exchange


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(said, min_size=1, max_size=8))
def test_any_talk_leaves_a_whole_history_and_every_request_is_valid(provider, script):
    place = Place(provider, f"chat-{uuid4().hex}", window=1_600)

    async def story() -> None:
        expected: list[tuple[str, str]] = []
        for text, outcome in script:
            exchange = await play(place, provider, text, outcome)
            assert (exchange.is_over, exchange.is_kept) == (True, True)
            for body in provider.bodies:
                assert_valid(body)
            talked = await place.talked()
            expected.append(("user", text))
            assert talked[: len(expected)] == expected
            answered = talked[len(expected) :]
            assert len(answered) in ((0, 1) if SCRIPTS[outcome][1] < 0 else (SCRIPTS[outcome][1],)), outcome
            assert all(role == "assistant" and words.strip() for role, words in answered)
            expected += answered
            status = await place.source.session(place.session_id)
            assert status.line.tokens <= status.budget_tokens
            assert illegal((await place.source.request(place.session_id)).messages) == []

    run(story, place)
