"""The official SDKs read what the proxy writes: its own replies, and merged ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import anthropic
import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

from context_compactor.proxy.wire import ResponsesWire, WireRequest
from tests.proxy.wires import SCRIPTS, WIRED, Raw, relay

TEXT = "The parser was wrong in line 7: «ß» 🧪.\n" * 20
TEXTS = {"long": TEXT, "short": "a", "empty": ""}
# The SDK of OpenAI cannot put two of a router's thinking blocks together, whoever sends them.
NAMES = [name for name in WIRED if name != "routed-claude"]
JSON_CONTENT, STREAM = "application/json", "text/event-stream; charset=utf-8"


@contextmanager
def serving(content_type: str, content: bytes) -> Iterator[str]:
    """A server that gives every request this answer."""

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(name: str, content_type: str, content: bytes) -> Raw:
    """The answer as the provider's SDK understands it."""
    is_stream = content_type == STREAM
    with serving(content_type, content) as url:
        match name:
            case "anthropic":
                return _anthropic(url, is_stream)
            case "responses":
                return _responses(url, is_stream)
        return _chat(url, is_stream)


def _anthropic(url: str, is_stream: bool) -> Raw:
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
    with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0) as client:
        if not is_stream:
            return client.messages.create(**body).to_dict(exclude_none=True)
        with client.messages.stream(**body) as stream:
            return stream.get_final_message().to_dict(exclude_none=True)


def _chat(url: str, is_stream: bool) -> Raw:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        if not is_stream:
            return client.chat.completions.create(**body).to_dict(exclude_none=True)
        state = ChatCompletionStreamState()
        with client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}) as chunks:
            for chunk in chunks:
                state.handle_chunk(chunk)
        return state.get_final_completion().to_dict(exclude_none=True)


def _responses(url: str, is_stream: bool) -> Raw:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        if not is_stream:
            return client.responses.create(model="m", input="Hi").to_dict()
        with client.responses.stream(model="m", input="Hi") as stream:
            events = [event.to_dict(warnings=False) for event in stream]
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            return stream.get_final_response().to_dict(warnings=False)


def _messages(name: str, answer: Raw) -> list[Raw]:
    match name:
        case "anthropic":
            return [{"role": answer["role"], "content": answer["content"]}]
        case "responses":
            return answer["output"]
    (choice,) = answer["choices"]
    return [choice["message"]]


def _plain(value):
    """A message without what an SDK adds or leaves out: nulls, indexes, parsed arguments and empty lists."""
    if isinstance(value, dict):
        kept = {
            key: _plain(inner) for key, inner in value.items() if key not in ("index", "parsed_arguments", "parsed")
        }
        return {key: inner for key, inner in kept.items() if inner not in (None, [])}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "whole"])
def test_the_sdk_reads_a_written_text(name: str, text: str, is_stream: bool):
    wire = WIRED[name].wire
    request = WireRequest(wire.dialect, "the-model", [], [], is_stream=is_stream, wants_usage=True)
    answer = asked(wire.name, *wire.write_text_reply(request, text, 42, "id_1", created=7))
    (message,) = _messages(wire.name, answer)
    content = message["content"]
    assert text == (content if isinstance(content, str) else content[0]["text"])
    assert (answer["id"], answer["model"]) == ("id_1", "the-model")
    usage = answer["usage"]
    assert usage.get("input_tokens", usage.get("prompt_tokens")) == 42
    assert usage.get("output_tokens", usage.get("completion_tokens")) == len(text) // 4 + 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "whole"])
def test_the_sdk_reads_a_merged_reply_as_the_merger_says_the_client_has_seen_it(name: str, script, is_stream: bool):
    wired = WIRED[name]
    relayed = relay(wired, script, is_stream=is_stream)
    content_type = STREAM if is_stream else JSON_CONTENT
    answer = asked(wired.wire.name, content_type, relayed.output)
    assert _plain(_messages(wired.wire.name, answer)) == _plain(relayed.merger.client_messages())
    read = wired.wire.read_reply(content_type, relayed.output)
    assert _plain(answer["usage"]) == _plain(read.usage)


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "whole"])
def test_the_sdk_reads_a_response_of_one_compaction_item(is_stream: bool):
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
    request = WireRequest("openai-responses", "m", [], [], is_stream=is_stream)
    answer = asked("responses", *ResponsesWire().write_item_reply(request, item, 42, "resp_1"))
    assert answer["output"] == [item]
