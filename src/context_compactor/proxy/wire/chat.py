"""OpenAI's `POST /v1/chat/completions`, as it and the many compatible providers send it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

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

_DONE = "[DONE]"
_BETWEEN_TEXTS = "\n\n"
_NOTHING: tuple[Any, ...] = (None, "", [], {})


class ChatWire:
    """Chat completions. Of several choices the first one is the reply."""

    name = "chat"
    dialect = "openai-chat"

    def takes(self, method: str, path: str) -> bool:
        """A POST to `/chat/completions` behind any prefix."""
        return method == "POST" and path.endswith("/chat/completions")

    def read_request(self, body: bytes) -> WireRequest:
        """What a request says; `BadInput` when it has no messages. System messages are among them."""
        top = raw_fields(body)
        raws = message_raws(top, "messages")
        limits = [field_value(top, name) for name in ("max_completion_tokens", "max_tokens")]
        tools = field_value(top, "tools")
        return WireRequest(
            dialect=self.dialect,
            model=text_of(field_value(top, "model")),
            messages=decoded_messages(raws, "messages"),
            raws=raws,
            tools=tools if isinstance(tools, list) else [],
            is_stream=field_value(top, "stream") is True,
            max_output_tokens=next((limit for limit in limits if isinstance(limit, int)), None),
            wants_usage=object_of(field_value(top, "stream_options")).get("include_usage") is True,
            can_hide_calls=field_value(top, "n") in (None, 1) and field_value(top, "store") is not True,
        )

    def rebuild(
        self, body: bytes, messages: Sequence[bytes], more_tools: Sequence[Body] = (), *, drop: Sequence[str] = ()
    ) -> bytes:
        """The body with other messages and more tools; all other fields keep their bytes."""
        return rebuilt(body, "messages", messages, more_tools, drop)

    def read_reply(self, content_type: str, content: bytes) -> WireReply:
        """What a completion or a stream of chunks says."""
        if not is_event_stream(content_type, content):
            return _whole_reply(content)
        assembly = ChatAssembly()
        for event in read_events(content):
            if (value := json_object(event.value)) is not None:
                assembly.add(value)
        return assembly.reply()

    def write_text_reply(
        self, request: WireRequest, text: str, input_tokens: int, reply_id: str, *, created: int = 0
    ) -> tuple[str, bytes]:
        """A completion with this text; its usage is streamed where the client has asked for it."""
        written = output_count(text)
        usage = {
            "prompt_tokens": input_tokens,
            "completion_tokens": written,
            "total_tokens": input_tokens + written,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }
        head: Body = {"id": reply_id, "object": "chat.completion", "created": created, "model": request.model}
        if not request.is_stream:
            message: Body = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
            return JSON_CONTENT, json_text({**head, "choices": [choice], "usage": usage}).encode()
        head["object"] = "chat.completion.chunk"
        if request.wants_usage:
            head["usage"] = None
        deltas: list[Body] = [
            {"role": "assistant", "content": "", "refusal": None},
            *({"content": piece} for piece in text_pieces(text)),
        ]
        chunks = [*(_chunk(head, delta) for delta in deltas), _chunk(head, {}, "stop")]
        if request.wants_usage:
            chunks.append({**head, "choices": [], "usage": usage})
        return EVENT_STREAM, b"".join(map(write_event, [*chunks, _DONE]))

    def tool_results(self, results: Results) -> list[Body]:
        """One tool message for each result."""
        return [{"role": "tool", "tool_call_id": call.id, "content": text} for call, text in results]

    def add_results(self, message_list: Sequence[Body], at: int, results: Results) -> list[Body]:
        """The results before the message at `at`."""
        return [*message_list[:at], *self.tool_results(results), *message_list[at:]]

    def merger(self, own_names: frozenset[str], *, is_stream: bool) -> ChatMerger:
        """What makes one completion of several."""
        return ChatMerger(own_names, is_stream=is_stream)


def _chunk(head: Body, delta: Body, finish_reason: str | None = None) -> Body:
    return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]}


def _whole_reply(content: bytes) -> WireReply:
    body = json_object(content)
    choices = objects_of((body or {}).get("choices"))
    if body is None or not choices or not isinstance(choices[0].get("message"), dict):
        return failed_reply(content)
    usage, stop = body.get("usage"), text_of(choices[0].get("finish_reason"))
    messages = [choices[0]["message"]]
    is_usage = isinstance(usage, dict)
    return WireReply(messages, usage if is_usage else None, bool(stop), text_of(body.get("model")), stop=stop)


class _CallPlace(Struct, frozen=True):
    """Where a call is that pieces come of: its place in the message, which is None for a hidden one."""

    id: str
    place: int | None


def _begins_call(entry: Body, known: _CallPlace | None) -> bool:
    """Whether a piece begins a call. Some providers send all calls of a message with the same index, or without."""
    call_id = text_of(entry.get("id"))
    return known is None or bool(call_id and call_id != known.id and _called_name(entry))


def _called_name(call: Body) -> str:
    return text_of(object_of(call.get("function")).get("name"))


class ChatAssembly:
    """Puts the first choice of a streamed completion together."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[str]] = {}
        self._others: Body = {}
        self._calls: list[_OpenCall] = []
        self._places: dict[str, _CallPlace] = {}
        self._usage: Body | None = None
        self._model = self._stop = self._error = ""
        self._has_started = False

    def add(self, value: Body) -> None:
        """Take the next chunk."""
        if value.get("error"):
            self._error = error_text(value)
        if isinstance(value.get("usage"), dict):
            self._usage = value["usage"]
        self._model = self._model or text_of(value.get("model"))
        for choice in objects_of(value.get("choices")):
            if choice.get("index") in (0, None):
                self._has_started = True
                self._stop = text_of(choice.get("finish_reason")) or self._stop
                self._add_delta(object_of(choice.get("delta")))

    def _add_delta(self, delta: Body) -> None:
        for name, value in delta.items():
            if name == "tool_calls":
                for entry in objects_of(value):
                    self._add_call(entry)
            elif name == "role":
                self._others[name] = value
            elif isinstance(value, str):
                self._pieces.setdefault(name, []).append(value)
            elif isinstance(value, list):
                self._others[name] = [*(self._others.get(name) or ()), *value]
            elif isinstance(value, dict):
                self._others[name] = {**object_of(self._others.get(name)), **value}
            else:
                self._others.setdefault(name, value)

    def _add_call(self, entry: Body) -> None:
        key = json_text(entry.get("index"))
        known = self._places.get(key)
        if known is None or _begins_call(entry, known):
            known = self._places[key] = _CallPlace(text_of(entry.get("id")), len(self._calls))
            self._calls.append(_OpenCall())
        self._calls[known.place or 0].add(entry)

    def reply(self) -> WireReply:
        """The message as far as it has come."""
        message: Body = {"role": "assistant", "content": None, **self._others}
        message |= {name: "".join(pieces) for name, pieces in self._pieces.items()}
        if self._calls:
            message["tool_calls"] = [call.call() for call in self._calls]
        messages = [message] if self._has_started else []
        is_complete = bool(self._stop) and not self._error
        return WireReply(messages, self._usage, is_complete, self._model, self._error, self._stop)


class _OpenCall:
    """A tool call of which pieces come: everything but the arguments comes whole."""

    def __init__(self) -> None:
        self._fields: Body = {}
        self._inner: dict[str, Body] = {}
        self._pieces: dict[str, list[str]] = {}

    def add(self, entry: Body) -> None:
        for name, value in entry.items():
            if name in ("function", "custom") and isinstance(value, dict):
                self._add_inner(name, value)
            elif name != "index" and value not in _NOTHING:
                self._fields[name] = value

    def _add_inner(self, name: str, value: Body) -> None:
        inner = self._inner.setdefault(name, {})
        for field, text in value.items():
            if field in ("arguments", "input") and isinstance(text, str):
                self._pieces.setdefault(name, []).append(text)
                inner[field] = ""
            elif text not in _NOTHING:
                inner[field] = text

    def call(self) -> Body:
        call = {"id": "", "type": "function", **self._fields}
        for name, inner in self._inner.items():
            text = "".join(self._pieces.get(name, ()))
            call[name] = {**inner, ("arguments" if name == "function" else "input"): text}
        return call


class ChatMerger(ReplyMerger):
    """Numbers the calls of all responses in one row. The texts of two responses have an empty line between them."""

    def __init__(self, own_names: frozenset[str], *, is_stream: bool) -> None:
        super().__init__(own_names, is_stream=is_stream)
        self._next: dict[str, int] = {}

    def _begin_response(self) -> None:
        super()._begin_response()
        self._places: dict[str, _CallPlace] = {}
        self._has_text = False

    def _new_assembly(self) -> ChatAssembly:
        return ChatAssembly()

    def _read_whole(self, content: bytes) -> WireReply:
        return _whole_reply(content)

    def client_messages(self) -> list[Body]:
        """One message with the texts and calls of all responses, without calls of our tools."""
        merged: Body = {}
        for messages in self.full_messages:
            for message in messages:
                merged = _joined(merged, self._visible(message))
        return [merged] if merged else []

    def _visible(self, message: Body) -> Body:
        calls = message.get("tool_calls")
        if not isinstance(calls, list):
            return message
        visible = [call for call in calls if not self._is_own(object_of(call))]
        rest = {name: value for name, value in message.items() if name != "tool_calls"}
        return {**rest, "tool_calls": visible} if visible else rest

    def _is_own(self, call: Body) -> bool:
        return _called_name(call) in self._own_names

    def _calls(self, messages: list[Body]) -> Iterator[OwnCall]:
        for message in messages:
            for call in objects_of(message.get("tool_calls")):
                arguments = text_of(object_of(call.get("function")).get("arguments"))
                yield OwnCall(text_of(call.get("id")), _called_name(call), arguments or "{}")

    def _seen(self, value: Body) -> Body | None:
        if not self._is_later:
            self._first_id = self._first_id or value.get("id")
        choices = value.get("choices")
        if not isinstance(choices, list):
            return value
        seen = [self._seen_choice(choice) if isinstance(choice, dict) else choice for choice in choices]
        chunk = {**value, "choices": seen}
        if self._is_later and "id" in value:
            chunk["id"] = self._first_id
        return None if seen != choices and not _says(chunk) else chunk

    def _seen_choice(self, choice: Body) -> Body:
        if not isinstance(choice.get("delta"), dict):
            return choice
        delta = dict(choice["delta"])
        if self._is_later:
            delta.pop("role", None)
            if text := text_of(delta.get("content")):
                delta["content"] = self._separator() + text
        if isinstance(delta.get("tool_calls"), list):
            entries = delta.pop("tool_calls")
            seen = [self._seen_call(choice, entry) if isinstance(entry, dict) else entry for entry in entries]
            visible = [entry for entry in seen if entry is not None]
            if visible or not entries:
                delta["tool_calls"] = visible
        return {**choice, "delta": delta}

    def _separator(self) -> str:
        if self._has_text:
            return ""
        self._has_text = True
        before = self.client_messages()
        return _BETWEEN_TEXTS if before and before[0].get("content") else ""

    def _seen_call(self, choice: Body, entry: Body) -> Body | None:
        number, index = json_text(choice.get("index")), entry.get("index")
        key = json_text([number, index])
        known = self._places.get(key)
        if known is None or _begins_call(entry, known):
            known = self._places[key] = _CallPlace(text_of(entry.get("id")), self._new_place(number, entry))
        if known.place is None:
            return None
        return {**entry, "index": known.place} if self._is_later or self._has_hidden else entry

    def _new_place(self, number: str, entry: Body) -> int | None:
        if self._is_own(entry):
            self._has_hidden = True
            return None
        index, following = entry.get("index"), self._next.get(number, 0)
        place = index if isinstance(index, int) and not (self._is_later or self._has_hidden) else following
        self._next[number] = max(following, place + 1)
        return place

    def _closes(self, event: SseEvent, value: Body | None) -> bool:
        if value is None:
            return event.value == _DONE
        choices = objects_of(value.get("choices"))
        is_usage = not choices and isinstance(value.get("usage"), dict)
        return is_usage or any(choice.get("finish_reason") is not None for choice in choices)

    def _closing(self, seen: Body) -> Body:
        closing = dict(seen)
        if isinstance(seen.get("choices"), list):
            closing["choices"] = [self._closing_choice(choice) for choice in seen["choices"]]
        if len(self.full_messages) > 1 and isinstance(seen.get("usage"), dict):
            closing["usage"] = self._usage
        return closing

    def _closing_choice(self, choice: Any) -> Any:
        if self._ends_with_own_calls and object_of(choice).get("finish_reason") == "tool_calls":
            return {**choice, "finish_reason": "stop"}
        return choice

    def _kept(self, seen: Body) -> Body | None:
        """Providers that do not stream calls piece by piece send them, and texts, with the finish reason."""
        choices = [{**choice, "finish_reason": None} for choice in objects_of(seen.get("choices"))]
        kept = {**seen, "choices": choices}
        if "usage" in kept:
            kept["usage"] = None
        return kept if _says(kept) else None

    def _merged(self, last: Body) -> Body | None:
        choices = objects_of(last.get("choices"))
        if not choices or not isinstance(choices[0].get("message"), dict):
            return None
        message = next(iter(self.client_messages()), {})
        first = self._closing_choice({**choices[0], "message": message})
        others = [{**choice, "message": self._visible(object_of(choice.get("message")))} for choice in choices[1:]]
        merged = {**last, "id": self._first_id, "choices": [first, *others]}
        return {**merged, "usage": self._usage} if self._usage is not None else merged


def _says(chunk: Body) -> bool:
    """Whether a chunk from which something was taken still has something for the client."""
    if isinstance(chunk.get("usage"), dict):
        return True
    for choice in chunk["choices"]:
        delta = object_of(object_of(choice).get("delta"))
        if object_of(choice).get("finish_reason") is not None or any(part not in _NOTHING for part in delta.values()):
            return True
    return False


def _joined(message: Body, more: Body) -> Body:
    """Two messages as a client puts their pieces together."""
    joined = dict(message)
    for name, value in more.items():
        before = joined.get(name)
        if name == "role" or before in _NOTHING:
            joined[name] = value
        elif value in _NOTHING:
            continue
        elif isinstance(before, str) and isinstance(value, str):
            joined[name] = before + (_BETWEEN_TEXTS if name == "content" else "") + value
        elif isinstance(before, list) and isinstance(value, list):
            joined[name] = [*before, *value]
        else:
            joined[name] = value
    return joined
