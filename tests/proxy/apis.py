"""The three APIs of providers, as a client calls them and a provider answers: plain bytes on both sides."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import brotli
import zstandard
from msgspec import Struct

from tests.proxy.upstream import END_OF_CHUNKS, Answer, Heard, Step, answer, chunk, stream_head

Raw = dict[str, Any]
ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}
READ, WRITTEN, UNCACHED, OUTPUT = 200, 30, 11, 7


class Api(Struct, frozen=True):
    """One of them. `writes` says whether its provider reports what was written to a cache."""

    name: str
    target: bytes
    field: str
    writes: bool
    tools: list[Raw]
    user: Callable[[str], Raw]
    said: Callable[[str], Raw]
    whole: Callable[[str], Raw]
    events: Callable[[str], Sequence[Raw | str]]

    def body(self, messages: Sequence[Raw], *, is_stream: bool = False, **more: Any) -> bytes:
        limits = {"max_tokens": 100} if self.name == "anthropic" else {}
        given = {"model": "model-x", **limits, self.field: list(messages), "tools": self.tools, "stream": is_stream}
        return json.dumps({**given, **more}).encode()

    def answers(self, text: str, *, is_stream: bool, encoding: str = "") -> Iterator[Step]:
        """What a provider sends that says this."""
        headers = [(b"Content-Encoding", encoding.encode())] if encoding else []
        if not is_stream:
            packed = ENCODINGS[encoding](json.dumps(self.whole(text)).encode())
            yield answer(packed, headers=[(b"Content-Type", b"application/json"), *headers])
            return
        yield stream_head(headers)
        packed = ENCODINGS[encoding](self.stream(text))
        for at in range(0, len(packed), 50):
            yield chunk(packed[at : at + 50])
        yield END_OF_CHUNKS

    def stream(self, text: str) -> bytes:
        return b"".join(_event(each) for each in self.events(text))

    def provider(self, encoding: str = "") -> Answer:
        """A provider that answers each request with the words `Answer to <its last message>`."""

        def respond(heard: Heard) -> Iterator[Step]:
            body = json.loads(ENCODED.get(b"".join(heard.values(b"Content-Encoding")), bytes)(heard.body))
            text = answer_to(body[self.field])
            return self.answers(text, is_stream=bool(body.get("stream")), encoding=encoding)

        return respond


ENCODED: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.decompress,
    b"zstd": lambda packed: zstandard.ZstdDecompressor().decompressobj().decompress(packed),
}


def answer_to(messages: Sequence[Raw]) -> str:
    content = messages[-1]["content"]
    asked = content if isinstance(content, str) else content[-1].get("text", "something")
    return f"Answer to {asked} «ß» 🧪"


def _event(value: Raw | str) -> bytes:
    if isinstance(value, str):
        return f"data: {value}\n\n".encode()
    name = f"event: {value['type']}\n" if "type" in value else ""
    return f"{name}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _halves(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]


_ANTHROPIC_USAGE = {
    "input_tokens": UNCACHED,
    "cache_read_input_tokens": READ,
    "cache_creation_input_tokens": WRITTEN,
    "output_tokens": OUTPUT,
}


def _anthropic_message(text: str) -> Raw:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "model-x",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": _ANTHROPIC_USAGE,
    }


def _anthropic_events(text: str) -> list[Raw | str]:
    usage = {**_ANTHROPIC_USAGE, "output_tokens": 1}
    started = {**_anthropic_message(""), "content": [], "stop_reason": None, "usage": usage}
    deltas = [{"type": "text_delta", "text": piece} for piece in _halves(text)]
    return [
        {"type": "message_start", "message": started},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": OUTPUT}},
        {"type": "message_stop"},
    ]


_CHAT_USAGE = {
    "prompt_tokens": READ + UNCACHED,
    "completion_tokens": OUTPUT,
    "total_tokens": READ + UNCACHED + OUTPUT,
    "prompt_tokens_details": {"cached_tokens": READ},
}


def _chat_whole(text: str) -> Raw:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c1", "object": "chat.completion", "model": "model-x", "choices": [choice], "usage": _CHAT_USAGE}


def _chat_events(text: str) -> list[Raw | str]:
    common = {"id": "c1", "object": "chat.completion.chunk", "model": "model-x"}

    def piece(delta: Raw, reason: str | None = None) -> Raw:
        return {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    return [
        piece({"role": "assistant", "content": ""}),
        *(piece({"content": each}) for each in _halves(text)),
        piece({}, "stop"),
        {**common, "choices": [], "usage": _CHAT_USAGE},
        "[DONE]",
    ]


def _responses_item(text: str) -> Raw:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}


def _responses_whole(text: str) -> Raw:
    usage = {
        "input_tokens": READ + UNCACHED,
        "input_tokens_details": {"cached_tokens": READ},
        "output_tokens": OUTPUT,
        "total_tokens": READ + UNCACHED + OUTPUT,
    }
    common = {"id": "resp_1", "object": "response", "status": "completed", "model": "model-x"}
    return {**common, "output": [_responses_item(text)], "usage": usage}


def _responses_events(text: str) -> list[Raw | str]:
    whole = _responses_whole(text)
    started = {**whole, "status": "in_progress", "output": [], "usage": None}
    item = _responses_item(text)
    events: list[Raw] = [
        {"type": "response.created", "response": started},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        *({"type": "response.output_text.delta", "output_index": 0, "delta": each} for each in _halves(text)),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


_SCHEMA = {"type": "object", "properties": {}}

ANTHROPIC = Api(
    "anthropic",
    b"/v1/messages",
    "messages",
    True,
    [{"name": "run", "description": "Run.", "input_schema": _SCHEMA}],
    lambda text: {"role": "user", "content": text},
    lambda text: {"role": "assistant", "content": [{"type": "text", "text": text}]},
    _anthropic_message,
    _anthropic_events,
)
CHAT = Api(
    "openai-chat",
    b"/v1/chat/completions",
    "messages",
    False,
    [{"type": "function", "function": {"name": "run", "description": "Run.", "parameters": _SCHEMA}}],
    lambda text: {"role": "user", "content": text},
    lambda text: {"role": "assistant", "content": text},
    _chat_whole,
    _chat_events,
)
RESPONSES = Api(
    "openai-responses",
    b"/v1/responses",
    "input",
    False,
    [{"type": "function", "name": "run", "description": "Run.", "parameters": _SCHEMA, "strict": False}],
    lambda text: {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
    _responses_item,
    _responses_whole,
    _responses_events,
)
APIS = (ANTHROPIC, CHAT, RESPONSES)
