"""Replies are read the same from a stream and whole, and what is written is read back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.proxy.wire import PROTOCOLS, ResponsesWire, WireRequest
from context_compactor.testing import ScriptedReply, StrictServer
from tests.proxy.wires import ANSWER, READ, RUN, WIRED, Cut, content_of, cuts, values

STREAM = "text/event-stream; charset=utf-8"
REPLIES = {
    "everything": ScriptedReply("I look at both, «ß» 🧪.", "First read, then run.", calls=(READ, RUN)),
    "a text": ANSWER,
    "redacted thinking": ScriptedReply("Done.", "", redacted=True),
    "a call without arguments": ScriptedReply("", "", calls=(RUN,)),
    "lines": ScriptedReply("Line.\n\nevent: x\ndata: [DONE]\r\n\u2028\x85"),
}


def _request(wire, *, is_stream: bool = True) -> WireRequest:
    return WireRequest(wire.dialect, "m", [], [], is_stream=is_stream, wants_usage=True)


@pytest.mark.parametrize("wired", WIRED.values(), ids=WIRED)
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_streamed_reply_says_what_the_whole_one_says(wired, reply):
    streamed = content_of(StrictServer([reply]), wired.client.path, wired.body())
    whole = content_of(StrictServer([reply]), wired.client.path, wired.body(stream=False))
    read = wired.wire.read_reply(STREAM, streamed)
    assert read == wired.wire.read_reply("application/json", whole)
    assert read.is_complete
    assert read.usage
    assert read.model
    assert read.stop
    assert not read.error


@pytest.mark.parametrize("wired", WIRED.values(), ids=WIRED)
def test_the_messages_of_a_reply_are_what_a_client_sends_back(wired):
    server = StrictServer(REPLIES.values())
    body = wired.body(stream=False)
    content = content_of(server, wired.client.path, body)
    read = wired.wire.read_reply("application/json", content)
    assert read.messages == wired.client.reply(json.loads(content))


@pytest.mark.parametrize("wired", WIRED.values(), ids=WIRED)
@given(at=st.integers(0, 3_000))
def test_a_stream_that_breaks_off_is_read_as_far_as_it_came_and_is_not_complete(wired, at: int):
    content = content_of(StrictServer([REPLIES["everything"]]), wired.client.path, wired.body())
    whole = wired.wire.read_reply(STREAM, content)
    ends = {
        "anthropic": b"event: message_stop",
        "chat": b'"finish_reason": "',
        "responses": b"event: response.completed",
    }
    end = content.index(ends[wired.wire.name])
    cut = wired.wire.read_reply(STREAM, content[: at % end])
    assert not cut.is_complete
    assert len(cut.messages) <= len(whole.messages)


@pytest.mark.parametrize(
    ("wired", "error"),
    [
        (
            WIRED["anthropic"],
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Busy"}}\n\n',
        ),
        (WIRED["chat"], b'data: {"error":{"message":"Busy","code":503}}\n\n'),
        (
            WIRED["responses"],
            b'event: error\ndata: {"type":"error","code":"x","message":"Busy","sequence_number":9}\n\n',
        ),
        (
            WIRED["responses"],
            b'data: {"type":"response.failed","response":{"status":"failed","error":{"message":"Busy"}}}\n\n',
        ),
    ],
    ids=["anthropic", "chat", "responses", "failed-response"],
)
def test_an_error_in_a_stream_is_read_with_what_came_before(wired, error: bytes):
    events = 3 if wired.wire.name == "chat" else 6
    content = content_of(StrictServer([ANSWER]), wired.client.path, wired.body())
    begin = b"\n\n".join(content.split(b"\n\n")[:events]) + b"\n\n"
    read = wired.wire.read_reply(STREAM, begin + error)
    assert (read.error, read.is_complete) == ("Busy", False)
    assert read.messages
    assert read.messages != wired.wire.read_reply(STREAM, content).messages


@pytest.mark.parametrize("wire", PROTOCOLS, ids=lambda wire: wire.name)
@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'{"type":"error","error":{"type":"x","message":"No."}}', "No."),
        (b'{"error":{"message":"No.","code":null}}', "No."),
        (b'{"error":"No."}', "No."),
        (b'{"detail":"No."}', "No."),
        (b"<html>Bad gateway</html>", "<html>Bad gateway</html>"),
        (b'{"choices":[]}', '{"choices":[]}'),
        (b"\xff", "\ufffd"),
        (b"", ""),
    ],
)
def test_what_is_no_reply_is_an_error_with_its_text(wire, content: bytes, error: str):
    read = wire.read_reply("application/json", content)
    assert (read.messages, read.is_complete, read.error) == ([], False, error)


@pytest.mark.parametrize("wire", PROTOCOLS, ids=lambda wire: wire.name)
@pytest.mark.parametrize("is_stream", [True, False])
@given(text=st.text(st.characters(), max_size=900))
def test_a_text_that_is_written_is_read_back(wire, is_stream: bool, text: str):
    content_type, content = wire.write_text_reply(_request(wire, is_stream=is_stream), text, 42, "id_1")
    assert content_type == (STREAM if is_stream else "application/json")
    read = wire.read_reply(content_type, content)
    assert read.is_complete
    assert (read.model, read.error) == ("m", "")
    usage = read.usage or {}
    assert usage.get("input_tokens", usage.get("prompt_tokens")) == 42
    assert usage.get("output_tokens", usage.get("completion_tokens")) == len(text) // 4 + 1
    (message,) = read.messages
    said = message["content"]
    assert text == (said if isinstance(said, str) else said[0]["text"])


@pytest.mark.parametrize("wired", WIRED.values(), ids=WIRED)
def test_a_written_stream_has_the_events_of_the_provider_in_their_order(wired):
    said = content_of(StrictServer([ScriptedReply("a")]), wired.client.path, wired.body())
    _, written = wired.wire.write_text_reply(_request(wired.wire), "a", 1, "id_1")
    theirs, ours = ([_shape(value) for value in values(stream)] for stream in (said, written))
    assert [kind for kind in ours if kind != "ping"] == [kind for kind in theirs if kind != "ping"]
    assert written.endswith(b"\n\n")
    assert written.endswith(b"data: [DONE]\n\n") == said.endswith(b"data: [DONE]\n\n")


def _shape(value):
    if "type" in value:
        return value["type"]
    return [sorted(choice["delta"]) for choice in value["choices"]], sorted(value)


def test_a_chat_stream_has_usage_only_when_the_client_asked_for_it():
    wire = WIRED["chat"].wire
    _, content = wire.write_text_reply(WireRequest(wire.dialect, "m", [], [], is_stream=True), "a", 1, "id_1")
    assert not any("usage" in chunk for chunk in values(content))


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_response_can_be_one_item(is_stream: bool):
    wire = ResponsesWire()
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
    content_type, content = wire.write_item_reply(_request(wire, is_stream=is_stream), item, 42, "resp_1")
    read = wire.read_reply(content_type, content)
    assert (read.messages, read.is_complete) == ([item], True)
    if is_stream:
        kinds = ["created", "output_item.added", "output_item.done", "completed"]
        assert [value["type"] for value in values(content)] == [f"response.{kind}" for kind in kinds]
        assert [value["sequence_number"] for value in values(content)] == [0, 1, 2, 3]


def test_a_codex_stream_without_indexes_and_without_output_at_its_end_is_read():
    items = [{"type": "message", "id": "a"}, {"type": "function_call", "name": "shell", "call_id": "b"}]
    events = [{"type": "response.output_item.done", "item": item} for item in items]
    end = {"type": "response.completed", "response": {"id": "resp_1", "output": []}}
    content = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in [*events, end])
    read = ResponsesWire().read_reply(STREAM, content)
    assert (read.messages, read.is_complete) == (items, True)


def test_calls_that_all_have_the_same_index_are_told_apart_by_their_ids():
    calls = [
        {"index": 0, "id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in ("a", "b")
    ]
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in calls]
    content = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    (message,) = WIRED["chat"].wire.read_reply(STREAM, content).messages
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["a", "b"]


@pytest.mark.parametrize("wired", WIRED.values(), ids=WIRED)
@given(cut=cuts())
def test_reading_does_not_depend_on_how_the_merger_got_its_chunks(wired, cut: Cut):
    content = content_of(StrictServer([REPLIES["everything"]]), wired.client.path, wired.body())
    merger = wired.wire.merger(frozenset(), is_stream=True)
    for chunk in cut(content):
        merger.feed(chunk)
    turn, read = merger.end_of_response(), wired.wire.read_reply(STREAM, content)
    assert (turn.messages, turn.usage, turn.is_complete) == (read.messages, read.usage, read.is_complete)
    assert (turn.model, turn.stop, turn.error) == (read.model, read.stop, read.error)
