"""An agent's loop against a server that refuses what its provider refuses, with a session in between."""

from __future__ import annotations

from random import Random

import pytest

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.messages import Thinking
from context_compactor.sessions.session import Session
from context_compactor.settings import Settings
from context_compactor.testing import StrictServer
from tests.strict.clients import (
    CLIENTS,
    ChainedClient,
    CompactedClient,
    CompactedResponsesClient,
    LoopClient,
    MarkingClient,
    RemindingClient,
    RoutedClaudeClient,
    output_of,
)

WINDOW = 20_000
QUESTIONS = (
    "Request {turn}: why does part {turn} fail? Look at it and tell me.",
    "Request {turn}: please fix what you found. Never touch release {turn}.",
    "Request {turn}: go on with the next part, and run its tests.",
)


def run_loop(
    client: LoopClient, session: Session, server: StrictServer, turns: int, seed: int, compact_every: int = 0
) -> int:
    """Ask, let the agent work until it answers, and ask again. Any refusal ends the test with the server's words.

    With `compact_every` the context is compacted before every so many questions, beside what the session does itself.
    Gives the number of requests that sent reasoning back.
    """
    dice = Random(seed)
    with_reasoning = 0
    for message in client.first():
        session.append(message)
    session.append(client.user(QUESTIONS[0].format(turn=0)))
    for turn in range(1, turns + 1):
        calls = _send(client, session, server)
        while calls:
            session.append(client.results(calls, [output_of(dice, call) for call in calls]))
            with_reasoning += _has_reasoning(client.dialect, session.context())
            calls = _send(client, session, server)
        session.append(client.user(dice.choice(QUESTIONS).format(turn=turn)))
        if compact_every and turn % compact_every == 0:
            session.compact(target_tokens=WINDOW // 5)
    return with_reasoning


def _has_reasoning(dialect: str, context) -> bool:
    return any(isinstance(part, Thinking) for message in DIALECTS[dialect].parse(context) for part in message.parts)


def _send(client: LoopClient, session: Session, server: StrictServer):
    status, answer = server.respond(client.path, client.request(session.context()))
    assert status == 200, f"after {server.answered} answers and {len(session.compactions())} compactions: {answer}"
    session.append(client.reply(answer), usage=client.usage(answer))
    return client.calls(answer)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["tail", "record"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.dialect)
def test_an_agent_works_for_a_hundred_turns_without_one_refusal(tmp_path, client, layout):
    server = StrictServer(window=WINDOW, seed=7)
    settings = Settings(idle_seconds=0, promote_to_memory=False, layout=layout)
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    with Session.open("run", window=WINDOW, dialect=client.dialect, store=store, settings=settings) as session:
        assert run_loop(client, session, server, turns=100, seed=3) > 100
        assert len(session.compactions()) >= 5
    assert server.answered > 300
    assert server.refusals == []


OTHER_CLIENTS = (
    RoutedClaudeClient,
    RemindingClient,
    MarkingClient,
    CompactedClient,
    CompactedResponsesClient,
    ChainedClient,
)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["tail", "record"])
@pytest.mark.parametrize("make", OTHER_CLIENTS, ids=lambda make: make.__name__)
def test_reminders_cache_marks_chains_and_the_providers_own_compactions_are_no_reason_to_refuse(tmp_path, make, layout):
    client, server = make(), StrictServer(window=WINDOW, seed=5)
    settings = Settings(idle_seconds=0, promote_to_memory=False, layout=layout)
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    with Session.open("run", window=WINDOW, dialect=client.dialect, store=store, settings=settings) as session:
        assert run_loop(client, session, server, turns=40, seed=3, compact_every=6) > 40
        assert len(session.compactions()) >= 5
    assert server.refusals == []
