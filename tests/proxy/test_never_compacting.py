"""Programs that never compact: one checkpoint when the window fills, the same bytes ever after, and recall inside."""

from __future__ import annotations

import json
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from context_compactor import Session
from context_compactor.testing import ScriptedCall, ScriptedReply, StrictServer
from context_compactor.testing.replies import random_replies
from tests.proxy.proxies import Place, ProxyCommand, proxied
from tests.proxy.talking import KEY, PATHS, Talking, declare, post, read
from tests.waiting import wait_for

WINDOW = 32_000
DIALECTS = list(PATHS)
OWN = ("recall", "search_archive", "facts")


def sent(server: StrictServer) -> list[list[dict[str, Any]]]:
    """The messages of each request that has reached the provider."""
    return [request.body.get("messages") or request.body["input"] for request in server.requests]


def rewrites(server: StrictServer) -> int:
    """How often a request did not begin with what was sent before."""
    return sum(now[: len(before)] != before for before, now in pairwise(sent(server)))


def declared(body: dict[str, Any]) -> list[str]:
    return [tool.get("name") or tool["function"]["name"] for tool in body["tools"]]


def compactions(place: Place) -> int:
    (name,) = place.recorded().histories
    with Session.open(name, store=place.store) as session:
        return len(session.compactions())


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_program_that_never_compacts_is_never_refused_and_its_prefix_changes_with_compactions_alone(
    tmp_path: Path, dialect: str, is_stream: bool
):
    server, place = StrictServer(window=WINDOW, seed=3), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        client = Talking(url, dialect)
        for _ in range(60):
            client.turn(is_stream=is_stream)
    assert [(each.rule, each.message) for each in server.refusals] == []
    assert 1 <= rewrites(server) == compactions(place)
    (history,) = place.recorded().histories.values()
    assert len(history) == len(client.messages) - 1  # all but what was not sent yet


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_two_hundred_turns_in_a_small_window_pass_without_a_refusal(tmp_path: Path, dialect: str):
    server, place = StrictServer(window=WINDOW, seed=5), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        client = Talking(url, dialect)
        for number in range(200):
            client.turn(is_stream=bool(number % 2))
    assert (len(server.requests), server.refusals) == (200, [])
    assert 3 <= rewrites(server) == compactions(place)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_sent_stays_the_same_across_a_restart_and_in_another_proxy(tmp_path: Path, dialect: str):
    server, place = StrictServer(window=WINDOW, seed=3), Place(tmp_path)
    with server.serve() as upstream:
        with proxied(upstream, place, window=WINDOW) as url:
            client = Talking(url, dialect)
            while not rewrites(server):
                client.turn()
        before = rewrites(server)
        with proxied(upstream, place, window=WINDOW) as first, proxied(upstream, place, window=WINDOW) as second:
            for url in (first, second, first, second):
                client.url = url
                client.turn()
                wait_for(lambda: len(place.rows()) == len(client.replies))
    assert (rewrites(server), server.refusals) == (before, [])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_until_there_is_a_reason_a_request_is_sent_as_it_is_and_declares_nothing_of_ours(tmp_path: Path, dialect: str):
    server, place = StrictServer(window=WINDOW, seed=3), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        client, bodies = Talking(url, dialect), []
        while not rewrites(server):
            bodies.append(client.body())
            client.turn()
    assert [request.body for request in server.requests[:-1]] == bodies[:-1]
    assert set(OWN) <= set(declared(server.requests[-1].body))


def test_a_request_without_tools_is_left_alone_however_long_it_is(tmp_path: Path):
    server, place = StrictServer([ScriptedReply("Good.")], window=10**6), Place(tmp_path)
    messages = [{"role": "user", "content": f"{number} " * 200} for number in range(300)]
    body = {"model": "gpt-5", "messages": messages}
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        assert post(url, PATHS["openai-chat"], body)[0] == 200
    assert server.requests[-1].body == body


def test_a_history_that_the_provider_holds_is_left_alone_and_recorded_as_one_session(tmp_path: Path):
    server, place = StrictServer([ScriptedReply("Good.")], window=10**6), Place(tmp_path)
    tools = [declare("openai-responses", "read_file", {"type": "object"})]
    with server.serve() as upstream, proxied(upstream, place, window=4_000) as url:
        previous = None
        for number in range(6):
            said = [{"role": "user", "content": f"part {number} " * 300}]
            more = {"previous_response_id": previous} if previous else {}
            body = {"model": "gpt-5", "input": said, "tools": tools, **more}
            _, _, content = post(url, PATHS["openai-responses"], body)
            previous = json.loads(content)["id"]
            assert server.requests[-1].body == body
    (history,) = place.recorded().histories.values()
    assert len(history) == 12


def scripted_recalls(*, beside: bool) -> Any:
    """Replies that call `recall` for an original as soon as there is one, alone or beside a call of the client."""
    replies = random_replies(3)
    for number in count():
        if number in (40, 42, 47):
            calls = (ScriptedCall("recall", {"id": "tool_001"}),)
            more = (ScriptedCall("read_file", {"path": "a.py"}),) if beside else ()
            yield ScriptedReply("I look it up.", "Where was it?", calls=(*calls, *more))
        else:
            yield next(replies)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("is_stream", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("beside", [False, True])
def test_recall_is_answered_inside_and_stays_in_what_is_sent(
    tmp_path: Path, dialect: str, is_stream: bool, beside: bool
):
    server, place = StrictServer(scripted_recalls(beside=beside), window=WINDOW), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        client = Talking(url, dialect)
        for _ in range(55):
            client.turn(is_stream=is_stream)
    assert [(each.rule, each.message) for each in server.refusals] == []
    seen = json.dumps([reply.messages for reply in client.replies])
    assert not any(f'"{name}"' in seen for name in OWN)
    asked = [json.dumps(body) for body in sent(server)]
    rounds = [each for each in asked if '"recall"' in each]
    assert rounds, "the model has called recall"
    assert "line 1 of the output about the parser" in rounds[0].split('"recall"', 1)[1]
    assert rewrites(server) == compactions(place)
    (history,) = place.recorded().histories.values()
    assert json.dumps(history).count('"recall"') >= 3


def test_a_program_with_a_recall_of_its_own_keeps_it(tmp_path: Path):
    server, place = StrictServer(window=WINDOW, seed=3), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        client = Talking(url, "anthropic")
        client.tools.append(declare("anthropic", "recall", {"type": "object"}))
        while not rewrites(server):
            client.turn()
    assert declared(server.requests[-1].body).count("recall") == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_that_was_too_long_is_sent_again_shorter_and_the_limit_is_learned(tmp_path: Path, dialect: str):
    server, place = StrictServer(window=20_000, seed=3), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=200_000) as url:
        client = Talking(url, dialect)
        for _ in range(60):
            client.turn()
    assert len({refusal.rule for refusal in server.refusals}) == 1
    assert len(server.refusals) <= 2
    assert "retry" in {row.kind for row in place.rows()}


def test_an_overflow_that_cannot_be_helped_comes_back_as_the_provider_said_it(tmp_path: Path):
    server, place = StrictServer(window=2_000, seed=3), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=200_000) as url:
        client = Talking(url, "openai-chat")
        client.tools = [declare("openai-chat", "read_file", {"type": "object", "description": "word " * 20_000})]
        status, _, content = post(url, PATHS["openai-chat"], client.body())
        assert post(upstream, PATHS["openai-chat"], client.body())[2] == content
    assert status == 400


def test_the_same_conversation_under_another_key_is_another_session(tmp_path: Path):
    server, place = StrictServer(window=WINDOW, seed=3), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        client = Talking(url, "openai-chat")
        for _ in range(4):
            client.turn()
        client.headers = {"authorization": "Bearer another"}
        client.turn()
    assert sorted(map(len, place.recorded().histories.values())) == sorted(
        [len(client.messages) - 3, len(client.messages) - 1]
    )


def test_a_client_may_name_its_conversation(tmp_path: Path):
    server, place = StrictServer(window=WINDOW, seed=3), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        client = Talking(url, "openai-chat", headers={**KEY, "x-compactor-session": "run 42"})
        client.turn()
        other = Talking(url, "openai-chat", headers={**KEY, "x-compactor-session": "run-43"})
        other.turn()
    names = sorted(place.recorded().histories)
    assert [name.rpartition("-run")[2][:3] for name in names] == ["-42", "-43"]
    assert all("x-compactor" not in name for request in server.requests for name in request.body)


def test_two_programs_that_begin_alike_are_kept_apart_once_they_differ(tmp_path: Path):
    server, place = StrictServer(window=WINDOW, seed=3), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        one, other = Talking(url, "openai-chat"), Talking(url, "openai-chat")
        for _ in range(5):
            one.turn()
            other.turn()
    histories = [json.dumps(history) for history in place.recorded().histories.values()]
    for client in (one, other):
        words = json.dumps(
            client.replies[-1].messages[0].get("content") or client.replies[-1].messages[0]["tool_calls"]
        )
        assert any(words in history for history in histories)


def test_a_reply_that_was_read_is_read_again_from_the_session(tmp_path: Path):
    server, place = StrictServer([ScriptedReply("The cause is a clock.")], window=WINDOW), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        status, headers, content = post(url, PATHS["anthropic"], Talking(url, "anthropic").body(is_stream=True))
        assert (status, read("anthropic", headers, content).is_complete) == (200, True)
    assert place.recorded().only[-1]["content"][-1]["text"] == "The cause is a clock."


def test_a_program_that_sends_only_its_last_messages_has_one_session(tmp_path: Path):
    replies = [ScriptedReply(f"This is reply number {number}.") for number in range(12)]
    server, place = StrictServer(replies, window=10**6), Place(tmp_path)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Tell me about the parser."}]
    with server.serve() as upstream, proxied(upstream, place) as url:
        for number in range(12):
            _, headers, content = post(url, PATHS["openai-chat"], {"model": "gpt-5", "messages": messages[-7:]})
            said = read("openai-chat", headers, content).messages
            messages = [*messages, *said, {"role": "user", "content": f"And part {number}?"}]
            wait_for(lambda: len(place.rows()) == len(server.requests))
    assert place.recorded().only == messages[:-1]


def test_a_client_that_leaves_thinking_out_is_not_refused_for_what_was_looked_up_inside(tmp_path: Path):
    server, place = StrictServer(scripted_recalls(beside=False), window=WINDOW), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        client = Talking(url, "anthropic")
        for _ in range(55):
            client.turn()
            client.messages = [_without_thinking(raw) for raw in client.messages]
    assert [(each.rule, each.message) for each in server.refusals] == []


def _without_thinking(raw: dict[str, Any]) -> dict[str, Any]:
    if raw["role"] != "assistant":
        return raw
    kept = [block for block in raw["content"] if "thinking" not in block["type"]]
    return {**raw, "content": kept or [{"type": "text", "text": "…"}]}


def test_another_name_for_a_tool_of_ours_leaves_the_clients_own_alone(tmp_path: Path):
    server, place = StrictServer(window=WINDOW, seed=3), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        client = Talking(url, "openai-chat")
        client.tools.append(declare("openai-chat", "facts", {"type": "object"}))
        while not rewrites(server):
            client.turn()
    names = declared(server.requests[-1].body)
    assert [names.count(name) for name in OWN] == [1, 1, 1]


def test_a_compacted_conversation_waits_for_a_recorder_that_is_started_again(tmp_path: Path):
    server, place = StrictServer(window=WINDOW, seed=3), Place(tmp_path)
    with server.serve() as upstream, ProxyCommand(upstream, place, "--window", str(WINDOW)) as proxy:
        client = Talking(proxy.url, "anthropic")
        while not rewrites(server):
            client.turn()
        proxy.kill_recorder()
        for _ in range(3):
            client.turn()
    assert (rewrites(server), server.refusals) == (1, [])


def test_a_compacted_conversation_goes_on_where_it_shall_only_be_recorded(tmp_path: Path):
    server, place = StrictServer(window=WINDOW, seed=3), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place, window=WINDOW) as url:
        client = Talking(url, "openai-chat")
        while not rewrites(server):
            client.turn()
        client.headers = {**KEY, "x-compactor-mode": "record"}
        client.turn()
    assert (rewrites(server), server.refusals) == (1, [])
