"""Requests are read with the bytes of each message, and rebuilt without touching anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.errors import BadInput
from context_compactor.proxy.wire import AnthropicWire, ChatWire, OwnCall, ResponsesWire, find_protocol
from tests.proxy.wires import OWN, SCRIPTS, WIRED, relay, result_of

ANTHROPIC, CHAT, RESPONSES = AnthropicWire(), ChatWire(), ResponsesWire()
FIELDS = {"anthropic": "messages", "chat": "messages", "responses": "input"}
every_wire = pytest.mark.parametrize("wire", [ANTHROPIC, CHAT, RESPONSES], ids=lambda wire: wire.name)
RECALLED = OwnCall("call_1", "recall", "{}")

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(st.dictionaries(st.text(max_size=8), JSON, max_size=4), max_size=5)
OTHERS = st.dictionaries(st.text(max_size=8).filter(lambda key: key not in ("messages", "input", "tools")), JSON)


@st.composite
def written(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> tuple[Any, bytes]:
    """A value, and its JSON as one of many clients might write it."""
    value = draw(values)
    spaces = draw(st.sampled_from([None, 0, 2]))
    separators = draw(st.sampled_from([(",", ":"), (" , ", " : "), (", ", ": ")]))
    texts = [
        json.dumps(value, ensure_ascii=is_ascii, indent=spaces, separators=separators) for is_ascii in (True, False)
    ]
    is_written = not any("\ud800" <= character <= "\udfff" for character in texts[1])
    return value, texts[draw(st.booleans()) and is_written].encode()


@every_wire
@given(st.lists(written(st.dictionaries(st.text(max_size=8), JSON, max_size=4)), max_size=5), OTHERS)
def test_rebuilding_with_the_same_messages_gives_equal_json_with_the_bytes_of_each_message(wire, messages, others):
    field = FIELDS[wire.name]
    raws = [raw for _, raw in messages]
    body = _with_list(others, field, raws)
    request = wire.read_request(body)
    assert request.raws == raws
    assert request.messages == [value for value, _ in messages]
    again = wire.rebuild(body, request.raws)
    assert json.loads(again) == json.loads(body)
    assert all(raw in again for raw in raws)
    assert wire.read_request(again) == request
    assert wire.rebuild(body, request.raws) == again


def _with_list(others: dict[str, Any], field: str, raws: list[bytes]) -> bytes:
    before = json.dumps({"model": "m", **others}).encode()[:-1]
    return before + f', "{field}" : ['.encode() + b" ,\n".join(raws) + b" ] } "


@every_wire
def test_other_fields_keep_their_bytes_and_order_and_tools_are_added_at_the_end(wire):
    field = FIELDS[wire.name]
    body = (
        b'{"model" : "m", "x":1.50, "'
        + field.encode()
        + b'":[{"role":"user","content":"\\u00fc"}],"tools":[{"name" :"a"}], "y":{"b" : 1e2}}'
    )
    rebuilt = wire.rebuild(body, [b'{"role": "user"}'], [{"name": "recall"}], drop=["x"])
    assert rebuilt == (
        b'{"model":"m","'
        + field.encode()
        + b'":[{"role": "user"}],"tools":[{"name" :"a"},{"name":"recall"}],"y":{"b" : 1e2}}'
    )


@pytest.mark.parametrize("tools", [b"", b',"tools":null', b',"tools":[]'])
def test_tools_are_added_where_there_were_none(tools: bytes):
    rebuilt = CHAT.rebuild(b'{"messages":[]' + tools + b"}", [], [{"name": "recall"}])
    assert rebuilt == b'{"messages":[],"tools":[{"name":"recall"}]}'
    assert CHAT.rebuild(b'{"messages":[]' + tools + b"}", []) == b'{"messages":[]' + tools + b"}"


@every_wire
def test_half_a_character_as_javascript_writes_it_is_kept(wire):
    field = FIELDS[wire.name].encode()
    message = b'{"role":"user", "content":"cut \\ud83d"}'
    body = b' {"model":"m" , "' + field + b'" : [ ' + message + b' , {"role":"user"} ],"tools":[{"name":"\\ud83d"}]} '
    request = wire.read_request(body)
    assert request.raws == [message, b'{"role":"user"}']
    assert request.messages[0]["content"] == "cut \ud83d"
    assert wire.rebuild(body, request.raws, [{"name": "recall"}]) == (
        b'{"model":"m","'
        + field
        + b'":['
        + message
        + b',{"role":"user"}],"tools":[{"name":"\\ud83d"},{"name":"recall"}]}'
    )


@every_wire
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"not json",
        b"{}",
        b'{"messages":{},"input":{}}',
        b'{"messages":["a"],"input":["a"]}',
        b'{"messages":[{"a":"\\ud83d"},],"input":[{"a":"\\ud83d"},]}',
        b'{"messages":["\\ud83d" "a"],"input":["\\ud83d" "a"]}',
        b'{"messages":[],"input":[],"x":"\\ud83d"',
        b'{"messages":[],"input":[],"x":"\\ud83d"} {}',
        b'{"messages":[],"input":[],"x" "\\ud83d"}',
        b'{"messages":[],"input":[],"\\ud83d"}',
        b'{"messages":[],"input":[],1:"\\ud83d"}',
        b'{"messages":' + b"[" * 100_000,
        b"\xff\xfe{}",
    ],
)
def test_what_is_no_such_request_is_refused(wire, body: bytes):
    with pytest.raises(BadInput):
        wire.read_request(body)


def test_a_refusal_names_the_message_that_is_none():
    with pytest.raises(BadInput, match=r'messages\[1\] should be an object: "b"'):
        CHAT.read_request(b'{"messages":[{},"b"]}')


def test_anthropic_requests_are_read():
    body = {
        "model": "claude",
        "max_tokens": 100,
        "stream": True,
        "system": [{"type": "text", "text": "Be kind."}],
        "tools": [{"name": "a"}],
        "messages": [{"role": "user", "content": "Hi"}],
    }
    request = ANTHROPIC.read_request(json.dumps(body).encode())
    assert (request.dialect, request.model, request.is_stream) == ("anthropic", "claude", True)
    assert (request.system, request.tools, request.max_output_tokens) == (body["system"], [{"name": "a"}], 100)
    assert not request.has_server_edits


@pytest.mark.parametrize(
    ("edits", "is_server"),
    [
        ([], False),
        ([{"type": "clear_thinking_20251015"}], False),
        ([{"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}], True),
        ([{"type": "compact_20260112"}], True),
    ],
)
def test_anthropic_edits_by_the_server_are_seen(edits, is_server: bool):
    body = {"messages": [], "context_management": {"edits": edits}}
    assert ANTHROPIC.read_request(json.dumps(body).encode()).has_server_edits is is_server


def test_chat_requests_are_read():
    body = {
        "model": "gpt",
        "max_tokens": 5,
        "max_completion_tokens": 7,
        "messages": [{"role": "system", "content": ""}],
    }
    request = CHAT.read_request(json.dumps(body).encode())
    assert (request.dialect, request.model, request.is_stream) == ("openai-chat", "gpt", False)
    assert (request.system, request.tools, request.max_output_tokens, request.wants_usage) == (None, [], 7, False)
    asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
    assert CHAT.read_request(json.dumps(asked).encode()).wants_usage


@pytest.mark.parametrize(
    ("fields", "previous"),
    [
        ({}, ""),
        ({"previous_response_id": None, "conversation": None}, ""),
        ({"previous_response_id": "resp_1"}, "resp_1"),
        ({"conversation": "conv_1"}, "conv_1"),
        ({"conversation": {"id": "conv_2"}}, "conv_2"),
    ],
)
def test_responses_requests_are_read(fields, previous: str):
    body = {"model": "gpt", "input": "Hi «ß»", "instructions": "Be kind.", "max_output_tokens": 9, **fields}
    request = RESPONSES.read_request(json.dumps(body).encode())
    assert request.messages == [{"role": "user", "content": "Hi «ß»"}]
    assert [json.loads(raw) for raw in request.raws] == request.messages
    assert (request.dialect, request.system, request.max_output_tokens) == ("openai-responses", "Be kind.", 9)
    assert (request.previous_response_id, request.has_server_edits) == (previous, False)


def test_a_response_that_only_continues_another_has_no_messages():
    assert RESPONSES.read_request(b'{"previous_response_id":"resp_1"}').messages == []


def test_compaction_by_the_responses_api_is_seen():
    body = b'{"input":[],"context_management":[{"type":"compaction","compact_threshold":1000}]}'
    assert RESPONSES.read_request(body).has_server_edits


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/messages", "anthropic"),
        ("/anthropic/v1/messages", "anthropic"),
        ("/messages", "anthropic"),
        ("/v1/messages/count_tokens", None),
        ("/v1/messages/batches", None),
        ("/v1/chat/completions", "chat"),
        ("/chat/completions", "chat"),
        ("/openai/deployments/gpt/chat/completions", "chat"),
        ("/v1/completions", None),
        ("/v1/responses", "responses"),
        ("/backend-api/codex/responses", "responses"),
        ("/v1/responses/compact", None),
        ("/v1/responses/resp_1", None),
        ("/v1/models", None),
    ],
)
def test_a_path_has_one_protocol_or_none(path: str, name: str | None):
    found = find_protocol("POST", path)
    assert (found.name if found else None) == name
    assert find_protocol("GET", path) is None


def test_own_results_stand_behind_the_other_results_and_before_the_text():
    mine = {"type": "tool_result", "tool_use_id": "call_1", "content": "found"}
    theirs, text = {"type": "tool_result", "tool_use_id": "b", "content": "x"}, {"type": "text", "text": "And?"}
    asked = {"role": "assistant", "content": []}
    results = [(RECALLED, "found")]
    sent = [asked, {"role": "user", "content": [theirs, text]}]
    assert ANTHROPIC.add_results(sent, 1, results) == [asked, {"role": "user", "content": [theirs, mine, text]}]
    assert sent[1]["content"] == [theirs, text]
    said = [asked, {"role": "user", "content": "And?"}]
    assert ANTHROPIC.add_results(said, 1, results) == [asked, {"role": "user", "content": [mine, text]}]
    assert ANTHROPIC.add_results([asked], 1, results) == [asked, {"role": "user", "content": [mine]}]
    assert ANTHROPIC.add_results([asked, asked], 1, results) == [asked, {"role": "user", "content": [mine]}, asked]


@every_wire
def test_without_results_nothing_is_added(wire):
    sent = [{"role": "assistant"}, {"role": "user", "content": "And?"}]
    assert wire.add_results(sent, 1, []) == sent
    assert wire.tool_results([]) == []


@pytest.mark.parametrize("wired", WIRED.values(), ids=WIRED)
@pytest.mark.parametrize("name", [name for name in SCRIPTS if "beside" in name or "behind" in name])
def test_own_results_among_those_of_the_client_are_taken_by_the_provider(wired, name: str):
    relayed = relay(wired, SCRIPTS[name])
    turn = relayed.turns[-1]
    calls = [call for call in wired.client.calls(_answer(wired, turn.messages)) if call.name not in OWN]
    answered = wired.client.results(calls, ["done"] * len(calls))
    field = FIELDS[wired.wire.name]
    history = [*relayed.body[field], *turn.messages]
    results = [(call, result_of(call)) for call in turn.own_calls]
    messages = wired.wire.add_results([*history, *answered], len(history), results)
    status, answer = relayed.server.respond(wired.client.path, {**relayed.body, field: messages})
    assert status == 200, answer


def _answer(wired, messages):
    match wired.wire.name:
        case "anthropic":
            return {"content": messages[0]["content"]}
        case "chat":
            return {"choices": [{"message": messages[0]}]}
    return {"output": messages}
