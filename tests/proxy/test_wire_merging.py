"""Several upstream replies become one for the client, without a trace of our own tools."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor.proxy.wire import PROTOCOLS, add_usage
from context_compactor.proxy.wire.sse import read_events
from context_compactor.testing import ScriptedReply, StrictServer, random_replies
from context_compactor.testing.streams import pieces as stream_pieces
from tests.proxy.wires import ANSWER, OWN, READ, RECALL, SCRIPTS, WIRED, Cut, content_of, cuts, relay, values

STREAM = "text/event-stream"
every_wire = pytest.mark.parametrize("wired", WIRED.values(), ids=WIRED)
every_script = pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)


@every_wire
@every_script
def test_the_client_sees_one_complete_reply_without_own_calls(wired, script):
    relayed = relay(wired, script)
    read = wired.wire.read_reply(STREAM, relayed.output)
    assert read.is_complete
    assert read.messages == relayed.merger.client_messages()
    assert not any(name.encode() in relayed.output for name in OWN)
    whole = relay(wired, script, is_stream=False)
    assert whole.merger.client_messages() == read.messages
    assert wired.wire.read_reply("application/json", whole.output) == read


@every_wire
@every_script
def test_the_client_sees_all_texts_thoughts_and_calls_of_its_own(wired, script):
    relayed = relay(wired, script)
    for reply in script:
        for text in (reply.text, reply.thinking or "", *(call.name for call in reply.calls if call.name not in OWN)):
            assert text in json.dumps(relayed.merger.client_messages(), ensure_ascii=False)


@every_wire
@every_script
def test_the_full_messages_are_those_of_each_upstream_response(wired, script):
    relayed = relay(wired, script)
    assert relayed.merger.full_messages == [wired.wire.read_reply(STREAM, each).messages for each in relayed.upstream]
    assert [turn.messages for turn in relayed.turns] == relayed.merger.full_messages
    for turn, reply in zip(relayed.turns, script, strict=True):
        called = [call for call in reply.calls if call.name in OWN]
        assert [(call.name, json.loads(call.arguments)) for call in turn.own_calls] == [
            (call.name, call.arguments) for call in called
        ]
        assert turn.has_client_calls == (len(called) < len(reply.calls))


@every_wire
@every_script
@pytest.mark.parametrize("is_stream", [True, False])
def test_the_usage_of_all_responses_is_added_up(wired, script, is_stream: bool):
    relayed = relay(wired, script, is_stream=is_stream)
    usages = [turn.usage for turn in relayed.turns]
    total = list(accumulate(usages, add_usage))[-1]
    content_type = STREAM if is_stream else "application/json"
    assert wired.wire.read_reply(content_type, relayed.output).usage == total
    counts = [usage.get("input_tokens", usage.get("prompt_tokens")) for usage in [*usages, total]]
    assert sum(counts[:-1]) == counts[-1]


@every_wire
@every_script
@settings(max_examples=4)
@given(cut=cuts())
def test_the_client_gets_the_same_however_the_responses_are_cut(wired, script, cut: Cut):
    assert relay(wired, script, cut=cut).output == relay(wired, script).output


@every_wire
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@given(seed=st.integers(0, 1_000), cut=cuts())
def test_when_nothing_is_hidden_the_stream_keeps_every_byte(wired, end: bytes, seed: int, cut: Cut):
    (reply, *_) = zip(random_replies(seed), range(1), strict=False)
    content = content_of(StrictServer([reply[0]], window=10**6), wired.client.path, wired.body())
    content = (b": a comment\n\n" + content + b": the end\n\n").replace(b"\n", end)
    merger = wired.wire.merger(OWN, is_stream=True)
    output = b"".join(map(merger.feed, cut(content)))
    assert merger.end_of_response().is_complete
    assert output + merger.finish() == content


@every_wire
@given(reply=st.sampled_from(SCRIPTS["a text"] + SCRIPTS["thinking, a text and two calls of the client"]))
def test_when_nothing_is_hidden_a_whole_reply_keeps_every_byte(wired, reply):
    content = content_of(StrictServer([reply]), wired.client.path, wired.body(stream=False))
    merger = wired.wire.merger(OWN, is_stream=False)
    assert merger.feed(content[:20]) + merger.feed(content[20:]) == b""
    assert merger.end_of_response().is_complete
    assert merger.finish() == content


@every_wire
def test_each_text_is_forwarded_as_soon_as_its_event_is_complete(wired):
    content = content_of(StrictServer([ANSWER]), wired.client.path, wired.body())
    merger = wired.wire.merger(OWN, is_stream=True)
    pieces = 0
    for event in read_events(content):
        out = merger.feed(event.raw)
        if any(mark in event.raw for mark in (b'"text_delta"', b'output_text.delta"', b'"delta": {"content": "')):
            assert out == event.raw
            pieces += 1
    assert pieces == len(stream_pieces(ANSWER.text))


@every_wire
def test_the_events_that_close_a_reply_are_held_until_the_end(wired):
    content = content_of(StrictServer([ANSWER]), wired.client.path, wired.body())
    merger = wired.wire.merger(OWN, is_stream=True)
    forwarded = merger.feed(content)
    merger.end_of_response()
    assert not wired.wire.read_reply(STREAM, forwarded).is_complete
    closing = merger.finish()
    assert forwarded + closing == content
    assert merger.finish() == b""


@every_wire
@every_script
@given(at=st.integers(0, 100_000))
def test_a_stream_that_breaks_off_is_forwarded_as_far_as_it_came(wired, script, at: int):
    content = content_of(StrictServer([script[0]]), wired.client.path, _with_own_tools(wired))
    merger = wired.wire.merger(frozenset(), is_stream=True)
    cut = content[: at % len(content)]
    output = merger.feed(cut)
    merger.end_of_response()
    assert output + merger.finish() == cut
    hiding = wired.wire.merger(OWN, is_stream=True)
    output = hiding.feed(cut)
    turn = hiding.end_of_response()
    output += hiding.finish()
    read = wired.wire.read_reply(STREAM, output)
    assert read.is_complete == turn.is_complete
    assert [json.dumps(message) for message in read.messages] == [
        json.dumps(message) for message in hiding.client_messages()
    ]


def _with_own_tools(wired):
    body = json.dumps(wired.body()).encode()
    return json.loads(wired.wire.rebuild(body, wired.wire.read_request(body).raws, wired.tools()))


ERRORS = {
    "anthropic": b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Busy"}}\n\n',
    "chat": b'data: {"error":{"message":"Busy"}}\n\n',
    "responses": b'event: error\ndata: {"type":"error","message":"Busy"}\n\n',
}


@every_wire
def test_an_error_in_a_later_response_reaches_the_client_and_nothing_is_made_up_behind_it(wired):
    merger = wired.wire.merger(OWN, is_stream=True)
    first = content_of(
        StrictServer([ScriptedReply("I look.", calls=(RECALL,))]), wired.client.path, _with_own_tools(wired)
    )
    output = merger.feed(first)
    assert merger.end_of_response().is_complete
    error = ERRORS[wired.wire.name]
    output += merger.feed(error)
    turn = merger.end_of_response()
    assert (turn.is_complete, turn.error) == (False, "Busy")
    output += merger.finish()
    assert output.endswith(error)
    read = wired.wire.read_reply(STREAM, output)
    assert (read.error, read.is_complete, read.messages) == ("Busy", False, merger.client_messages())


@every_wire
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_reply_whose_own_calls_are_not_answered_ends_as_if_the_model_had_said_no_more(wired, is_stream: bool):
    body = {**_with_own_tools(wired), "stream": is_stream}
    content = content_of(StrictServer([ScriptedReply("I look.", calls=(RECALL,))]), wired.client.path, body)
    merger = wired.wire.merger(OWN, is_stream=is_stream)
    output = merger.feed(content)
    merger.end_of_response()
    assert not merger.end_of_response().is_complete
    read = wired.wire.read_reply(STREAM if is_stream else "application/json", output + merger.finish())
    assert read.is_complete
    assert read.stop in ("end_turn", "stop", "completed")
    assert "I look." in json.dumps(read.messages)


@every_wire
def test_a_whole_error_behind_a_reply_is_given_as_it_is(wired):
    body = {**_with_own_tools(wired), "stream": False}
    content = content_of(StrictServer([ScriptedReply("I look.", calls=(RECALL,))]), wired.client.path, body)
    merger = wired.wire.merger(OWN, is_stream=False)
    merger.feed(content)
    merger.end_of_response()
    merger.feed(b'{"error": {"message": "Busy"}}')
    assert merger.end_of_response().error == "Busy"
    assert merger.finish() == b'{"error": {"message": "Busy"}}'


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_anthropic_blocks_are_numbered_in_one_row_in_one_message(script):
    events = list(values(relay(WIRED["anthropic"], script).output))
    kinds = [event["type"] for event in events]
    assert [kinds.count(kind) for kind in ("message_start", "message_delta", "message_stop")] == [1, 1, 1]
    assert (kinds[0], kinds[-2], kinds[-1]) == ("message_start", "message_delta", "message_stop")
    for kind in ("content_block_start", "content_block_stop"):
        indexes = [event["index"] for event in events if event["type"] == kind]
        assert indexes == list(range(len(indexes)))
    is_called = any(event.get("content_block", {}).get("type") == "tool_use" for event in events)
    assert events[-2]["delta"]["stop_reason"] == ("tool_use" if is_called else "end_turn")


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_chat_calls_are_numbered_in_one_row_in_one_completion(script):
    output = relay(WIRED["chat"], script).output
    chunks = list(values(output))
    assert len({chunk["id"] for chunk in chunks}) == 1
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert sum("role" in delta for delta in deltas) == 1
    calls = [call for delta in deltas for call in delta.get("tool_calls", ()) if "id" in call]
    assert [call["index"] for call in calls] == list(range(len(calls)))
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert reasons == ["tool_calls" if calls else "stop"]
    assert sum(chunk["usage"] is not None for chunk in chunks) == 1
    assert output.count(b"data: [DONE]") == 1
    assert output.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_responses_events_and_items_are_numbered_in_one_row(script):
    relayed = relay(WIRED["responses"], script)
    events = list(values(relayed.output))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert [kinds.count(kind) for kind in ("created", "in_progress", "completed")] == [1, 1, 1]
    items = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in items] == list(range(len(items)))
    answer = events[-1]["response"]
    assert answer["output"] == [event["item"] for event in items] == relayed.merger.client_messages()
    assert answer["id"] == list(values(relayed.upstream[-1]))[-1]["response"]["id"]


def test_a_merged_response_can_be_continued_by_the_provider():
    wired = WIRED["responses"]
    relayed = relay(wired, SCRIPTS["an own call after thinking and a text"], store=True)
    answer = list(values(relayed.output))[-1]["response"]
    more = {**relayed.body, "input": [wired.client.user("Go on.")], "previous_response_id": answer["id"]}
    status, continued = relayed.server.respond(wired.client.path, more)
    assert status == 200, continued


def test_the_texts_of_two_chat_completions_have_an_empty_line_between_them():
    (message,) = relay(WIRED["chat"], SCRIPTS["an own call after thinking and a text"]).merger.client_messages()
    assert message["content"] == "I look it up first.\n\nThe parser."


def _chunks(*choices, usage=None) -> bytes:
    written = [json.dumps({"id": "c", "choices": [choice], "usage": usage}) for choice in choices]
    return "".join(f"data: {chunk}\n\n" for chunk in written).encode() + b"data: [DONE]\n\n"


def _call(name: str, **more):
    return {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}, **more}


def test_a_text_that_comes_with_the_finish_reason_is_not_lost_when_another_response_follows():
    merger = WIRED["chat"].wire.merger(OWN, is_stream=True)
    delta = {"role": "assistant", "content": "I look.", "tool_calls": [_call("recall", index=0)]}
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    assert merger.feed(_chunks({"index": 0, "delta": delta, "finish_reason": "tool_calls"}, usage=usage)) == b""
    assert [call.name for call in merger.end_of_response().own_calls] == ["recall"]
    done = {"index": 0, "delta": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}
    output = merger.feed(_chunks(done, usage=usage))
    assert [value["choices"][0]["delta"]["content"] for value in values(output)] == ["I look."]
    merger.end_of_response()
    read = WIRED["chat"].wire.read_reply(STREAM, output + merger.finish())
    assert read.messages == merger.client_messages() == [{"role": "assistant", "content": "I look.\n\nDone."}]
    assert (read.stop, read.usage) == ("stop", {"prompt_tokens": 10, "completion_tokens": 4})


@pytest.mark.parametrize("index", [{}, {"index": 0}, {"index": None}])
def test_own_calls_are_hidden_also_where_all_calls_have_one_index_or_none(index):
    merger = WIRED["chat"].wire.merger(OWN, is_stream=True)
    calls = [_call(name, **index) for name in ("recall", "read_file", "search_archive", "run_command")]
    output = merger.feed(_chunks({"index": 0, "delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}))
    turn = merger.end_of_response()
    assert ([call.name for call in turn.own_calls], turn.has_client_calls) == (["recall", "search_archive"], True)
    (seen, *_) = values(output + merger.finish())
    visible = seen["choices"][0]["delta"]["tool_calls"]
    assert [(call["index"], call["function"]["name"]) for call in visible] == [(0, "read_file"), (1, "run_command")]


def test_codex_items_without_indexes_are_hidden_too():
    items = [
        {"type": "function_call", "name": "recall", "call_id": "a", "arguments": "{}"},
        {"type": "custom_tool_call", "name": "recall", "call_id": "b", "input": "x"},
    ]
    events = [{"type": "response.output_item.done", "item": item} for item in items]
    end = {"type": "response.completed", "response": {"id": "resp_1", "usage": {"input_tokens": 1}}}
    content = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in [*events, end]).encode()
    merger = WIRED["responses"].wire.merger(OWN, is_stream=True)
    output = merger.feed(content)
    turn = merger.end_of_response()
    assert ([call.id for call in turn.own_calls], turn.has_client_calls) == (["a"], True)
    assert list(values(output + merger.finish())) == [events[1], end]


@pytest.mark.parametrize(
    ("item", "is_call"),
    [
        ({"type": "local_shell_call", "call_id": "a"}, True),
        ({"type": "computer_call", "call_id": "a"}, True),
        ({"type": "mcp_approval_request", "id": "a"}, True),
        ({"type": "tool_search_call", "call_id": "a", "execution": "client"}, True),
        ({"type": "tool_search_call", "call_id": "a", "execution": "server"}, False),
        ({"type": "web_search_call", "id": "a"}, False),
        ({"type": "mcp_call", "id": "a"}, False),
    ],
)
def test_calls_that_the_client_must_answer_are_told_from_those_of_the_server(item, is_call: bool):
    merger = WIRED["responses"].wire.merger(OWN, is_stream=False)
    merger.feed(json.dumps({"status": "completed", "output": [item]}).encode())
    assert merger.end_of_response().has_client_calls is is_call


def test_a_server_tool_of_anthropic_is_no_call_of_the_client():
    merger = WIRED["anthropic"].wire.merger(OWN, is_stream=False)
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    merger.feed(json.dumps({"content": [block], "stop_reason": "pause_turn"}).encode())
    assert not merger.end_of_response().has_client_calls


def test_a_call_that_was_cut_off_at_the_limit_of_tokens_has_no_arguments():
    merger = WIRED["anthropic"].wire.merger(OWN, is_stream=True)
    block = {"type": "tool_use", "id": "toolu_1", "name": "recall", "input": {}}
    events = [
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"id": "a'}},
    ]
    merger.feed("".join(f"data: {json.dumps(event)}\n\n" for event in events).encode())
    turn = merger.end_of_response()
    assert [call.arguments for call in turn.own_calls] == ["{}"]
    assert turn.messages[0]["content"] == [block]


NAMES = st.sampled_from(
    "type message index delta content_block content usage choices id item output_index response output error name "
    "finish_reason tool_calls function sequence_number item_id stop_reason partial_json text role input".split()
)
WORDS = st.sampled_from(
    "message_start content_block_start content_block_delta message_delta message_stop error tool_use recall "
    "response.created response.output_item.added response.output_item.done response.output_text.delta "
    "response.completed function_call message completed".split()
)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.floats(0, 1) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=12,
)


@pytest.mark.parametrize("wire", PROTOCOLS, ids=lambda wire: wire.name)
@pytest.mark.parametrize("own", [OWN, frozenset()], ids=["own", "none"])
@settings(max_examples=60)
@given(rounds=st.lists(st.lists(ODD, max_size=8), min_size=1, max_size=3))
def test_no_event_however_odd_breaks_a_stream(wire, own: frozenset[str], rounds):
    merger = wire.merger(own, is_stream=True)
    output, content = b"", b""
    for each in rounds:
        content = "".join(f"data: {json.dumps(value)}\n\n" for value in each).encode()
        output += merger.feed(content)
        merger.end_of_response()
    output += merger.finish()
    merger.client_messages()
    wire.read_reply(STREAM, output)
    if len(rounds) == 1 and not own:
        assert output == content


@pytest.mark.parametrize("wire", PROTOCOLS, ids=lambda wire: wire.name)
@settings(max_examples=60)
@given(rounds=st.lists(ODD, min_size=1, max_size=3))
def test_no_body_however_odd_breaks_a_whole_reply(wire, rounds):
    merger = wire.merger(OWN, is_stream=False)
    for each in rounds:
        merger.feed(json.dumps(each).encode())
        merger.end_of_response()
    merger.finish()
    merger.client_messages()


@pytest.mark.parametrize("wire", PROTOCOLS, ids=lambda wire: wire.name)
@given(content=st.binary(max_size=200), cut=cuts())
def test_what_is_no_stream_at_all_is_forwarded_as_it_is(wire, content: bytes, cut: Cut):
    merger = wire.merger(OWN, is_stream=True)
    output = b"".join(map(merger.feed, cut(content)))
    assert not merger.end_of_response().is_complete
    assert output + merger.finish() == content


def test_usage_is_added_up_at_any_depth():
    first = {"input_tokens": 1, "details": {"cached": 2}, "tier": "a", "none": None, "list": [1], "flag": True}
    second = {
        "input_tokens": 10,
        "details": {"cached": 20, "new": 1},
        "tier": "b",
        "none": 3,
        "list": [2],
        "flag": True,
    }
    assert add_usage(first, second) == {
        "input_tokens": 11,
        "details": {"cached": 22, "new": 1},
        "tier": "b",
        "none": 3,
        "list": [1, 2],
        "flag": True,
    }
    assert add_usage(None, first) == add_usage(first, None) == first


@every_wire
def test_a_call_of_the_client_alone_is_not_touched_beside_hidden_rounds(wired):
    relayed = relay(wired, [ScriptedReply(calls=(RECALL,)), ScriptedReply(calls=(READ,))])
    turn = relayed.turns[-1]
    visible = [message for message in relayed.merger.client_messages() if "read_file" in json.dumps(message)]
    assert (len(relayed.turns), turn.own_calls, turn.has_client_calls, len(visible)) == (2, [], True, 1)
