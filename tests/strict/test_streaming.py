"""Streams of the strict server, read by the official clients: they hold what the whole answer holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import anthropic
import openai
import pytest
from msgspec import Struct
from openai.lib.streaming.chat import ChatCompletionStreamState

from context_compactor.testing import ScriptedCall, ScriptedReply, StrictServer
from tests.strict.clients import (
    AnthropicClient,
    ChatClient,
    CompactedClient,
    CompactedResponsesClient,
    GeminiClient,
    LoopClient,
    ResponsesClient,
    RoutedClaudeClient,
    output_of,
)
from tests.waiting import PATIENCE

Raw = dict[str, Any]
Ask = Callable[[Raw], Raw]
GEMINI = "/v1beta/models/gemini-3-pro"
READ = ScriptedCall("read_file", {"path": 'src/ü/"a"\\b.py\n', "lines": [1, 2.5, None]})
NO_ARGUMENTS = ScriptedCall("run_command", {})
FULL = ScriptedReply("I read the parser, then «ß» 🧪.", "First read it, then run it.", calls=(READ, NO_ARGUMENTS))


class Asking(Struct, frozen=True):
    """How a client asks for a whole answer, and for the same in a stream."""

    whole: Ask
    streamed: Ask


@contextmanager
def chat_asking(url: str) -> Iterator[Asking]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:

        def streamed(body: Raw) -> Raw:
            state = ChatCompletionStreamState()
            with client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}) as chunks:
                for chunk in chunks:
                    state.handle_chunk(chunk)
            return _plain(state.get_final_completion().to_dict(exclude_none=True))

        yield Asking(lambda body: client.chat.completions.create(**body).to_dict(exclude_none=True), streamed)


def _plain(completion: Raw) -> Raw:
    """A completion as the endpoint gives it, without what the client's accumulator adds."""
    (choice,) = completion["choices"]
    for call in choice["message"].get("tool_calls", ()):
        call.pop("index")
    return completion


@contextmanager
def responses_asking(url: str) -> Iterator[Asking]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:

        def streamed(body: Raw) -> Raw:
            with client.responses.create(**body, stream=True) as stream:
                events = [event.to_dict() for event in stream]
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            answer = events[-1]["response"]
            assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == answer[
                "output"
            ]
            assert _from_deltas(events) == [_texts(item) for item in answer["output"]]
            return answer

        yield Asking(lambda body: client.responses.create(**body).to_dict(), streamed)


def _from_deltas(events: list[Raw]) -> list[str]:
    """The text or the arguments of each item, put together from the pieces."""
    texts = [""] * sum(event["type"] == "response.output_item.added" for event in events)
    for event in events:
        if event["type"].endswith(".delta"):
            texts[event["output_index"]] += event["delta"]
    return texts


def _texts(item: Raw) -> str:
    parts = [*item.get("content", ()), *item.get("summary", ())]
    return item.get("arguments", "") + "".join(part["text"] for part in parts)


@contextmanager
def anthropic_asking(url: str) -> Iterator[Asking]:
    with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0) as client:

        def streamed(body: Raw) -> Raw:
            with client.beta.messages.stream(**body) as stream:
                return stream.get_final_message().to_dict(exclude_none=True)

        yield Asking(lambda body: client.beta.messages.create(**body).to_dict(exclude_none=True), streamed)


@contextmanager
def gemini_asking(url: str) -> Iterator[Asking]:
    """Without the official client, which the tests do not have: with it this is checked by hand."""

    def streamed(body: Raw) -> Raw:
        chunks = [json.loads(line) for line in posted_lines(f"{url}{GEMINI}:streamGenerateContent?alt=sse", body)]
        assert not any("usageMetadata" in chunk for chunk in chunks[:-1])
        parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
        candidate = {**chunks[-1]["candidates"][0], "content": {"role": "model", "parts": _joined(parts)}}
        return {**chunks[-1], "candidates": [candidate]}

    yield Asking(lambda body: json.loads(posted(f"{url}{GEMINI}:generateContent", body)), streamed)


def _joined(parts: list[Raw]) -> list[Raw]:
    joined: list[Raw] = []
    for part in parts:
        if joined and "text" in part and "text" in joined[-1] and part.get("thought") == joined[-1].get("thought"):
            joined[-1] = {**joined[-1], **part, "text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


def posted(url: str, body: Raw) -> str:
    with urlopen(Request(url, json.dumps(body).encode(), method="POST"), timeout=PATIENCE) as answer:
        return answer.read().decode()


def posted_lines(url: str, body: Raw) -> list[str]:
    """What stands behind `data:` in each event of a stream."""
    events = posted(url, body).removesuffix("\n\n").split("\n\n")
    return [event.splitlines()[-1].removeprefix("data: ") for event in events]


ENDPOINTS = [
    pytest.param(ChatClient(), chat_asking, id="chat"),
    pytest.param(RoutedClaudeClient(), chat_asking, id="routed-claude"),
    pytest.param(ResponsesClient(), responses_asking, id="responses"),
    pytest.param(CompactedResponsesClient(), responses_asking, id="compacted-responses"),
    pytest.param(AnthropicClient(), anthropic_asking, id="anthropic"),
    pytest.param(CompactedClient(), anthropic_asking, id="compacted-anthropic"),
    pytest.param(GeminiClient(), gemini_asking, id="gemini"),
]


@pytest.mark.parametrize(("client", "asking"), ENDPOINTS)
@pytest.mark.parametrize("seed", range(4))
def test_a_streamed_conversation_is_the_same_as_one_with_whole_answers(client: LoopClient, asking, seed: int):
    dice = Random(seed)
    with ExitStack() as stack:
        servers = [StrictServer(seed=seed, window=10**6) for _ in range(2)]
        whole, streamed = (stack.enter_context(asking(stack.enter_context(server.serve()))) for server in servers)
        history = [*client.first(), client.user("What is wrong?")]
        for _ in range(15):
            answer = streamed.streamed(client.request(history))
            assert answer == whole.whole(client.request(history))
            calls = client.calls(answer)
            history += client.reply(answer)
            outputs = [output_of(dice, call) for call in calls]
            history += client.results(calls, outputs) if calls else [client.user("Go on.")]
        assert [server.answered for server in servers] == [15, 15]


@pytest.mark.parametrize(("client", "asking"), ENDPOINTS)
@pytest.mark.parametrize(
    "reply",
    [
        FULL,
        ScriptedReply("Done.", "", redacted=True),
        ScriptedReply("", "", calls=(NO_ARGUMENTS,)),
        ScriptedReply("Line.\n\nevent: x\ndata: [DONE]\r\n\u2028\x85"),
    ],
)
def test_every_kind_of_content_comes_through_a_stream(client: LoopClient, asking, reply: ScriptedReply):
    body = client.request([*client.first(), client.user("What is wrong?")])
    answers = []
    for kind in ("whole", "streamed"):
        with StrictServer([reply]).serve() as url, asking(url) as asked:
            answers.append(getattr(asked, kind)(body))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(("client", "asking"), ENDPOINTS)
def test_a_request_for_a_stream_is_refused_before_it_begins(client: LoopClient, asking):
    body = client.request([{"role": "nobody"}])
    server = StrictServer()
    with (
        server.serve() as url,
        asking(url) as asked,
        pytest.raises((openai.BadRequestError, anthropic.BadRequestError, HTTPError)) as refused,
    ):
        asked.streamed(body)
    if isinstance(refused.value, HTTPError):
        refused.value.close()
    assert [request.status for request in server.requests] == [400]
    assert len(server.refusals) == 1


def _chat_body(**more: Any) -> Raw:
    return {**ChatClient().request([ChatClient().user("Look.")]), "stream": True, **more}


def test_chat_chunks_have_the_role_then_pieces_then_the_reason_and_the_usage_only_when_asked_for():
    with StrictServer([ScriptedReply("I read the parser.", calls=(READ,))]).serve() as url:
        lines = posted_lines(f"{url}/v1/chat/completions", _chat_body())
        counted = posted_lines(f"{url}/v1/chat/completions", _chat_body(stream_options={"include_usage": True}))
    assert (lines.pop(), counted.pop()) == ("[DONE]", "[DONE]")
    chunks = [json.loads(line) for line in lines]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[:3] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "I read the p"},
        {"content": "arser."},
    ]
    named, *arguments = [delta["tool_calls"][0] for delta in deltas[3:-1]]
    assert named["function"] == {"name": "read_file", "arguments": ""}
    assert len(arguments) > 1
    assert all(set(piece) == {"index", "function"} for piece in arguments)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[-2:]] == [None, "tool_calls"]
    assert not any("usage" in chunk for chunk in chunks)
    last = [json.loads(line) for line in counted][-1]
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] > 0


def test_responses_begin_and_end_each_item_and_only_the_end_of_reasoning_has_all_of_its_encrypted_content():
    with (
        StrictServer([FULL]).serve() as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client,
        client.responses.create(**ResponsesClient().request([ResponsesClient().user("Look.")]), stream=True) as stream,
    ):
        events = list(stream)
    kinds = [event.type.removeprefix("response.") for event in events]
    reasoning = [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    message = [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]
    call = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    seen = [kind for at, kind in enumerate(kinds) if not at or kind != kinds[at - 1]]
    assert seen == ["created", "in_progress", *reasoning, *message, *call, *call, "completed"]
    items = [
        event.item for event in events if event.type in ("response.output_item.added", "response.output_item.done")
    ]
    assert items[0].encrypted_content != items[1].encrypted_content


def test_anthropic_events_begin_and_end_each_block():
    reply = ScriptedReply("I read the parser.", "Read it.", calls=(READ,))
    with (
        StrictServer([reply]).serve() as url,
        anthropic.Anthropic(base_url=url, api_key="any") as client,
        client.messages.create(**AnthropicClient().request([AnthropicClient().user("Look.")]), stream=True) as stream,
    ):
        events = [event.to_dict() for event in stream]
    assert events[0]["message"]["usage"]["input_tokens"] > 0
    kinds = [event["delta"]["type"] if "index" in event and "delta" in event else event["type"] for event in events]
    seen = [kind for at, kind in enumerate(kinds) if not at or kind != kinds[at - 1]]
    start, stop = "content_block_start", "content_block_stop"
    thinking, text = (start, "thinking_delta", "signature_delta", stop), (start, "text_delta", stop)
    assert seen == [
        "message_start",
        *thinking,
        *text,
        start,
        "input_json_delta",
        stop,
        "message_delta",
        "message_stop",
    ]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_an_anthropic_stream_has_a_ping():
    body = {**AnthropicClient().request([AnthropicClient().user("Look.")]), "stream": True}
    with StrictServer([FULL]).serve() as url:
        assert "event: ping\ndata: " in posted(f"{url}/v1/messages", body)


def test_a_signed_text_of_gemini_may_come_back_in_the_pieces_it_was_streamed_in_but_not_changed():
    client, server = GeminiClient(), StrictServer([ScriptedReply("The parser was wrong in line 3.", "I know.")])
    asked = [client.user("What is wrong?")]
    with server.serve() as url:
        lines = posted_lines(f"{url}{GEMINI}:streamGenerateContent?alt=sse", client.request(asked))
    parts = [part for line in lines for part in json.loads(line)["candidates"][0]["content"]["parts"]]
    assert (parts[-1]["text"], "thoughtSignature" in parts[-1]) == ("", True)

    def status(sent: list[Raw]) -> int:
        history = [*asked, {"role": "model", "parts": sent}, client.user("Go on.")]
        return server.respond(client.path, client.request(history))[0]

    assert status(parts) == 200
    assert status(_joined(parts)) == 200
    assert status([*parts[:-2], parts[-1]]) == 400
    assert status([*parts[:-2], {"text": "line 4."}, parts[-1]]) == 400


def test_without_http_the_answer_to_a_request_for_a_stream_is_whole():
    status, answer = StrictServer([FULL]).respond("/v1/chat/completions", _chat_body())
    assert (status, answer["object"]) == (200, "chat.completion")


def test_bedrock_does_not_stream_and_says_so():
    server = StrictServer()
    status, answer = server.respond("/model/m/converse-stream", {"messages": []})
    assert (status, server.refusals[0].rule) == (400, "stream")
    assert "Converse" in answer["message"]


def test_requests_are_kept_as_they_were_sent_with_the_status_of_their_answer():
    server, body = StrictServer([FULL]), _chat_body()
    with server.serve() as url:
        posted(f"{url}/v1/chat/completions", body)
    server.respond("/v1/embeddings", {"input": "x"})
    server.respond("/v1/messages", None)
    assert [(request.path, request.status) for request in server.requests] == [
        ("/v1/chat/completions", 200),
        ("/v1/embeddings", 404),
        ("/v1/messages", 400),
    ]
    assert server.requests[0].body == body


def test_a_client_that_leaves_a_stream_does_not_disturb_the_next_one():
    server = StrictServer([ScriptedReply("word " * 100_000)])
    with server.serve() as url, openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        for _ in range(2):
            with client.chat.completions.create(**_chat_body()) as chunks:
                assert next(iter(chunks)).choices[0].delta.role == "assistant"
    assert [request.status for request in server.requests] == [200, 200]
