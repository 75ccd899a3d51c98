"""Anthropic's `POST /v1/messages`: requests, replies and streams as their bytes are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from context_compactor.json_values import json_text
from context_compactor.proxy.wire.protocol import (
    JSON_CONTENT,
    Body,
    OwnCall,
    ReplyMerger,
    Results,
    WireReply,
    WireRequest,
    decoded_messages,
    error_text,
    failed_reply,
    field_value,
    is_event_stream,
    json_object,
    message_raws,
    object_of,
    objects_of,
    output_count,
    raw_fields,
    rebuilt,
    text_of,
    text_pieces,
)
from context_compactor.proxy.wire.sse import EVENT_STREAM, SseEvent, read_events, write_event

_KEPT_EDITS = "clear_thinking"
_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


class AnthropicWire:
    """The Messages API, also behind gateways that put a path of their own before it."""

    name = "anthropic"
    dialect = "anthropic"

    def takes(self, method: str, path: str) -> bool:
        """A POST to `/v1/messages` behind any prefix; counting tokens is none."""
        return method == "POST" and (path.endswith("/v1/messages") or path == "/messages")

    def read_request(self, body: bytes) -> WireRequest:
        """What a request says; `BadInput` when it has no messages."""
        top = raw_fields(body)
        raws = message_raws(top, "messages")
        limit, tools = field_value(top, "max_tokens"), field_value(top, "tools")
        edits = object_of(field_value(top, "context_management")).get("edits")
        return WireRequest(
            dialect=self.dialect,
            model=text_of(field_value(top, "model")),
            messages=decoded_messages(raws, "messages"),
            raws=raws,
            system=field_value(top, "system"),
            tools=tools if isinstance(tools, list) else [],
            is_stream=field_value(top, "stream") is True,
            max_output_tokens=limit if isinstance(limit, int) else None,
            has_server_edits=any(not text_of(edit.get("type")).startswith(_KEPT_EDITS) for edit in objects_of(edits)),
        )

    def rebuild(
        self, body: bytes, messages: Sequence[bytes], more_tools: Sequence[Body] = (), *, drop: Sequence[str] = ()
    ) -> bytes:
        """The body with other messages and more tools; all other fields keep their bytes."""
        return rebuilt(body, "messages", messages, more_tools, drop)

    def read_reply(self, content_type: str, content: bytes) -> WireReply:
        """What a message or a stream of one says."""
        if not is_event_stream(content_type, content):
            return _whole_reply(content)
        assembly = AnthropicAssembly()
        for event in read_events(content):
            if (value := json_object(event.value)) is not None:
                assembly.add(value)
        return assembly.reply()

    def write_text_reply(
        self,
        request: WireRequest,
        text: str,
        input_tokens: int,
        reply_id: str,
        *,
        created: int = 0,  # noqa: ARG002 - this provider's replies have no time
    ) -> tuple[str, bytes]:
        """A message with this text that ends the turn."""
        block = {"type": "text", "text": text}
        usage = dict.fromkeys(_COUNTS, 0) | {"input_tokens": input_tokens, "output_tokens": output_count(text)}
        message: Body = {
            "id": reply_id,
            "type": "message",
            "role": "assistant",
            "model": request.model,
            "content": [block],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": usage,
        }
        if not request.is_stream:
            return JSON_CONTENT, json_text(message).encode()
        started = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        deltas = [{"type": "text_delta", "text": piece} for piece in text_pieces(text)]
        values: list[Body] = [
            {"type": "message_start", "message": started},
            {"type": "content_block_start", "index": 0, "content_block": {**block, "text": ""}},
            {"type": "ping"},
            *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        return EVENT_STREAM, b"".join(write_event(value, value["type"]) for value in values)

    def tool_results(self, results: Results) -> list[Body]:
        """One user message with all results."""
        return [{"role": "user", "content": _result_blocks(results)}] if results else []

    def add_results(self, message_list: Sequence[Body], at: int, results: Results) -> list[Body]:
        """The results behind the other ones of the user message at `at`, before all else it says."""
        messages = list(message_list)
        if not results:
            return messages
        if at >= len(messages) or messages[at].get("role") != "user":
            return [*messages[:at], *self.tool_results(results), *messages[at:]]
        content = messages[at].get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
        behind = max(
            (at + 1 for at, block in enumerate(blocks) if object_of(block).get("type") == "tool_result"), default=0
        )
        blocks = [*blocks[:behind], *_result_blocks(results), *blocks[behind:]]
        messages[at] = {**messages[at], "content": blocks}
        return messages

    def merger(self, own_names: frozenset[str], *, is_stream: bool) -> AnthropicMerger:
        """What makes one message of several."""
        return AnthropicMerger(own_names, is_stream=is_stream)


def _result_blocks(results: Results) -> list[Body]:
    return [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call, text in results]


def _whole_reply(content: bytes) -> WireReply:
    body = json_object(content)
    if body is None or not isinstance(body.get("content"), list):
        return failed_reply(content)
    usage, stop = body.get("usage"), text_of(body.get("stop_reason"))
    message = {"role": "assistant", "content": objects_of(body["content"])}
    is_usage = isinstance(usage, dict)
    return WireReply([message], usage if is_usage else None, bool(stop), text_of(body.get("model")), stop=stop)


class _OpenBlock:
    """A content block of which pieces come."""

    def __init__(self, started: Body) -> None:
        self._started = started
        self._pieces: dict[str, list[str]] = {}
        self._citations: list[Any] = []

    def add(self, delta: Body) -> None:
        for name, value in delta.items():
            if name == "citation":
                self._citations.append(value)
            elif name != "type" and isinstance(value, str):
                self._pieces.setdefault(name, []).append(value)

    def block(self) -> Body:
        block = dict(self._started)
        for name, pieces in self._pieces.items():
            text = "".join(pieces)
            if name != "partial_json":
                block[name] = text_of(block.get(name)) + text
            elif text:
                # Cut off at the limit of tokens it is no JSON, and the provider takes nothing else than an object.
                block["input"] = object_of(json_object(text))
        if self._citations:
            block["citations"] = [*(block.get("citations") or ()), *self._citations]
        return block


class AnthropicAssembly:
    """Puts a streamed message together."""

    def __init__(self) -> None:
        self._blocks: dict[Any, _OpenBlock] = {}
        self._usage: Body | None = None
        self._model = self._stop = self._error = ""
        self._has_started = self._has_stopped = False

    def add(self, value: Body) -> None:
        """Take the next event."""
        match value.get("type"):
            case "message_start":
                message = object_of(value.get("message"))
                self._has_started = True
                self._model = text_of(message.get("model"))
                self._add_usage(message.get("usage"))
            case "content_block_start":
                self._blocks[json_text(value.get("index"))] = _OpenBlock(object_of(value.get("content_block")))
            case "content_block_delta":
                if block := self._blocks.get(json_text(value.get("index"))):
                    block.add(object_of(value.get("delta")))
            case "message_delta":
                self._stop = text_of(object_of(value.get("delta")).get("stop_reason")) or self._stop
                self._add_usage(value.get("usage"))
            case "message_stop":
                self._has_stopped = True
            case "error":
                self._error = error_text(value) or json_text(value)

    def _add_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            given = {name: count for name, count in usage.items() if count is not None}
            self._usage = {**usage, **(self._usage or {}), **given}

    def reply(self) -> WireReply:
        """The message as far as it has come."""
        content = [block.block() for block in self._blocks.values()]
        messages: list[Body] = [{"role": "assistant", "content": content}] if content or self._has_started else []
        is_complete = self._has_stopped and not self._error
        return WireReply(messages, self._usage, is_complete, self._model, self._error, self._stop)


class AnthropicMerger(ReplyMerger):
    """Numbers the blocks of all responses in one row; the first response begins the message, the last one ends it."""

    def __init__(self, own_names: frozenset[str], *, is_stream: bool) -> None:
        super().__init__(own_names, is_stream=is_stream)
        self._has_started = False
        self._next = 0

    def _begin_response(self) -> None:
        super()._begin_response()
        self._places: dict[int, int | None] = {}

    def _new_assembly(self) -> AnthropicAssembly:
        return AnthropicAssembly()

    def _read_whole(self, content: bytes) -> WireReply:
        return _whole_reply(content)

    def client_messages(self) -> list[Body]:
        """One message with the blocks of all responses, without calls of our tools."""
        blocks = [block for messages in self.full_messages for message in messages for block in message["content"]]
        visible = [block for block in blocks if not self._is_own(block)]
        return [{"role": "assistant", "content": visible}] if any(self.full_messages) else []

    def _is_own(self, block: Body) -> bool:
        return block.get("type") == "tool_use" and text_of(block.get("name")) in self._own_names

    def _calls(self, messages: list[Body]) -> Iterator[OwnCall]:
        for message in messages:
            for block in message["content"]:
                if block.get("type") == "tool_use":
                    arguments = json_text(object_of(block.get("input")))
                    yield OwnCall(text_of(block.get("id")), text_of(block.get("name")), arguments)

    def _seen(self, value: Body) -> Body | None:
        match value.get("type"):
            case "message_start":
                is_first, self._has_started = not self._has_started, True
                return value if is_first else None
            case "content_block_start":
                self._start_block(value)
        index = value.get("index")
        if not isinstance(index, int) or index not in self._places:
            return value
        place = self._places[index]
        return None if place is None else {**value, "index": place}

    def _start_block(self, value: Body) -> None:
        index = value.get("index")
        if not isinstance(index, int):
            return
        if self._is_own(object_of(value.get("content_block"))):
            self._has_hidden = True
            self._places[index] = None
        else:
            place = self._next if self._is_later or self._has_hidden else index
            self._places[index] = place
            self._next = max(self._next, place + 1)

    def _closes(self, event: SseEvent, value: Body | None) -> bool:  # noqa: ARG002
        return value is not None and value.get("type") in ("message_delta", "message_stop")

    def _closing(self, seen: Body) -> Body:
        if seen.get("type") != "message_delta":
            return seen
        delta = object_of(seen.get("delta"))
        closing = {**seen, "delta": {**delta, "stop_reason": self._stop_reason(delta.get("stop_reason"))}}
        if len(self.full_messages) > 1:
            usage = object_of(seen.get("usage"))
            total = {name: n for name, n in (self._usage or {}).items() if name in usage or name in _COUNTS}
            closing["usage"] = {**usage, **total}
        return closing

    def _stop_reason(self, reason: Any) -> Any:
        return "end_turn" if reason == "tool_use" and self._ends_with_own_calls else reason

    def _merged(self, last: Body) -> Body | None:
        if not isinstance(last.get("content"), list):
            return None
        (message,) = self.client_messages()
        stop_reason = self._stop_reason(last.get("stop_reason"))
        merged = {**last, "id": self._first_id, "content": message["content"], "stop_reason": stop_reason}
        return {**merged, "usage": self._usage} if self._usage is not None else merged
