"""OpenAI's `POST /v1/responses`, as it, Codex' backend and compatible providers send it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from context_compactor.errors import BadInput
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

_OPENINGS = ("response.created", "response.queued", "response.in_progress")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_ENDED = ("completed", "incomplete")
_CLIENT_CALLS = (
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "computer_call",
    "mcp_approval_request",
)


class ResponsesWire:
    """The Responses API; compacting and stored responses have other paths."""

    name = "responses"
    dialect = "openai-responses"

    def takes(self, method: str, path: str) -> bool:
        """A POST to `/responses` behind any prefix."""
        return method == "POST" and path.endswith("/responses")

    def read_request(self, body: bytes) -> WireRequest:
        """What a request says. One that only continues a response, or uses a stored prompt, has no messages."""
        top = raw_fields(body)
        raws = _input_raws(top)
        limit, tools = field_value(top, "max_output_tokens"), field_value(top, "tools")
        conversation = field_value(top, "conversation")
        previous = field_value(top, "previous_response_id") or object_of(conversation).get("id") or conversation
        edits = field_value(top, "context_management")
        return WireRequest(
            dialect=self.dialect,
            model=text_of(field_value(top, "model")),
            messages=decoded_messages(raws, "input"),
            raws=raws,
            system=field_value(top, "instructions"),
            tools=tools if isinstance(tools, list) else [],
            is_stream=field_value(top, "stream") is True,
            max_output_tokens=limit if isinstance(limit, int) else None,
            previous_response_id=text_of(previous),
            has_server_edits=any(edit.get("type") == "compaction" for edit in objects_of(edits)),
            can_hide_calls=field_value(top, "store") is False,
        )

    def rebuild(
        self, body: bytes, messages: Sequence[bytes], more_tools: Sequence[Body] = (), *, drop: Sequence[str] = ()
    ) -> bytes:
        """The body with other input items and more tools; all other fields keep their bytes."""
        return rebuilt(body, "input", messages, more_tools, drop)

    def read_reply(self, content_type: str, content: bytes) -> WireReply:
        """What a response or a stream of one says."""
        if not is_event_stream(content_type, content):
            return _whole_reply(content)
        assembly = ResponsesAssembly()
        for event in read_events(content):
            if (value := json_object(event.value)) is not None:
                assembly.add(value)
        return assembly.reply()

    def write_text_reply(
        self, request: WireRequest, text: str, input_tokens: int, reply_id: str, *, created: int = 0
    ) -> tuple[str, bytes]:
        """A completed response with one message."""
        part: Body = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        item_id = f"msg_{reply_id.removeprefix('resp_')}"
        item: Body = {"id": item_id, "type": "message", "status": "completed", "content": [part], "role": "assistant"}
        answer = _answer(request, [item], (input_tokens, output_count(text)), reply_id, created)
        if not request.is_stream:
            return JSON_CONTENT, json_text(answer).encode()
        place = {"item_id": item_id, "output_index": 0, "content_index": 0}
        added = {**item, "status": "in_progress", "content": []}
        events: list[Body] = [
            {"type": "response.in_progress", "response": _started(answer)},
            {"type": "response.output_item.added", "output_index": 0, "item": added},
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            *(
                {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
                for piece in text_pieces(text)
            ),
            {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
        ]
        return EVENT_STREAM, _stream(answer, events)

    def write_window_reply(
        self, request: WireRequest, items: Sequence[Body], input_tokens: int, reply_id: str, *, created: int = 0
    ) -> tuple[str, bytes]:
        """The answer to `/responses/compact`: the whole new window."""
        tokens = input_tokens, output_count(json_text(items))
        answer = _answer(request, list(items), tokens, reply_id, created)
        return JSON_CONTENT, json_text({**answer, "object": "response.compaction"}).encode()

    def write_item_reply(
        self, request: WireRequest, item: Body, input_tokens: int, reply_id: str, *, created: int = 0
    ) -> tuple[str, bytes]:
        """A completed response whose only output is this item, such as a compaction."""
        answer = _answer(request, [item], (input_tokens, output_count(json_text(item))), reply_id, created)
        if not request.is_stream:
            return JSON_CONTENT, json_text(answer).encode()
        kinds = ("response.output_item.added", "response.output_item.done")
        return EVENT_STREAM, _stream(answer, [{"type": kind, "output_index": 0, "item": item} for kind in kinds])

    def tool_results(self, results: Results) -> list[Body]:
        """One output item for each result."""
        return [{"type": "function_call_output", "call_id": call.id, "output": text} for call, text in results]

    def add_results(self, message_list: Sequence[Body], at: int, results: Results) -> list[Body]:
        """The results before the item at `at`."""
        return [*message_list[:at], *self.tool_results(results), *message_list[at:]]

    def merger(self, own_names: frozenset[str], *, is_stream: bool) -> ResponsesMerger:
        """What makes one response of several."""
        return ResponsesMerger(own_names, is_stream=is_stream)


def _input_raws(top: dict[str, Any]) -> list[bytes]:
    if "input" not in top:
        if not {"previous_response_id", "conversation", "prompt"} & top.keys():
            raise BadInput("the request has no 'input', which should be a text or a list of items")
        return []
    if bytes(top["input"]).startswith(b'"'):
        return [json_text({"role": "user", "content": field_value(top, "input")}).encode()]
    return message_raws(top, "input")


def _answer(request: WireRequest, output: list[Body], tokens: tuple[int, int], reply_id: str, created: int) -> Body:
    read, written = tokens
    return {
        "id": reply_id,
        "object": "response",
        "created_at": created,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": request.system,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": None,
        "metadata": {},
        "model": request.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": request.previous_response_id or None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        },
        "user": None,
    }


def _started(answer: Body) -> Body:
    return {**answer, "status": "in_progress", "output": [], "usage": None}


def _stream(answer: Body, between: Iterable[Body]) -> bytes:
    created = {"type": "response.created", "response": _started(answer)}
    values = [created, *between, {"type": "response.completed", "response": answer}]
    return b"".join(write_event({**value, "sequence_number": at}, value["type"]) for at, value in enumerate(values))


def _whole_reply(content: bytes) -> WireReply:
    body = json_object(content)
    if body is None or not isinstance(body.get("output"), list):
        return failed_reply(content)
    usage, status = body.get("usage"), text_of(body.get("status"))
    return WireReply(
        objects_of(body["output"]),
        usage if isinstance(usage, dict) else None,
        status in _ENDED,
        text_of(body.get("model")),
        error_text(body) if body.get("error") else "",
        status,
        text_of(body.get("id")),
    )


class ResponsesAssembly:
    """Takes the finished items of a streamed response, and the text of a message that was broken off."""

    def __init__(self) -> None:
        self._done: dict[str, Body] = {}
        self._begun: dict[str, Body] = {}
        self._pieces: dict[str, list[str]] = {}
        self._response: Body = {}
        self._error = ""
        self._has_ended = False

    def add(self, value: Body) -> None:
        """Take the next event."""
        kind, index = text_of(value.get("type")), value.get("output_index")
        key = json_text(index) if index is not None else f"item {len(self._done)}"
        if kind in (*_OPENINGS, *_ENDS):
            self._response = object_of(value.get("response"))
            self._has_ended |= kind in _ENDS
            if self._response.get("error"):
                self._error = error_text(self._response)
        elif kind == "response.output_item.added":
            self._begun[key] = object_of(value.get("item"))
        elif kind == "response.output_item.done":
            self._done[key] = object_of(value.get("item"))
            self._begun.pop(key, None)
        elif kind == "response.output_text.delta":
            self._pieces.setdefault(key, []).append(text_of(value.get("delta")))
        elif kind == "error":
            self._error = error_text(value) or json_text(value)

    def reply(self) -> WireReply:
        """The response as far as it has come."""
        given = objects_of(self._response.get("output"))
        items = list(self._done.values())
        items = given if len(given) > len(items) else [*items, *self._broken_off()]
        usage, status = self._response.get("usage"), text_of(self._response.get("status"))
        is_ended = self._has_ended and (status or "completed") in _ENDED and not self._error
        model, name = text_of(self._response.get("model")), text_of(self._response.get("id"))
        used = usage if isinstance(usage, dict) else None
        return WireReply(items, used, is_ended, model, self._error, status, name)

    def _broken_off(self) -> Iterator[Body]:
        for key, item in self._begun.items():
            if item.get("type") == "message" and self._pieces.get(key):
                part = {"type": "output_text", "text": "".join(self._pieces[key]), "annotations": []}
                yield {**item, "status": "incomplete", "content": [part]}


class ResponsesMerger(ReplyMerger):
    """Numbers the items and events of all responses in one row.

    The last response gives the merged one its id: it is the one that can be continued by the provider.
    """

    def __init__(self, own_names: frozenset[str], *, is_stream: bool) -> None:
        super().__init__(own_names, is_stream=is_stream)
        self._next = 0
        self._has_opened = False
        self._last_number = -1
        self._shift: int | None = 0

    def _begin_response(self) -> None:
        super()._begin_response()
        self._places: dict[int, int | None] = {}
        self._shift = None

    def _new_assembly(self) -> ResponsesAssembly:
        return ResponsesAssembly()

    def _read_whole(self, content: bytes) -> WireReply:
        return _whole_reply(content)

    def client_messages(self) -> list[Body]:
        """The output items of all responses, without calls of our tools."""
        return [item for items in self.full_messages for item in items if not self._is_own(item)]

    def _is_own(self, item: Body) -> bool:
        return item.get("type") == "function_call" and text_of(item.get("name")) in self._own_names

    def _calls(self, messages: list[Body]) -> Iterator[OwnCall]:
        answered = {item.get("call_id") for item in messages if text_of(item.get("type")).endswith("_output")}
        for item in messages:
            kind, call_id = item.get("type"), text_of(item.get("call_id") or item.get("id"))
            is_searched = kind == "tool_search_call" and item.get("execution") == "client"
            if (kind in _CLIENT_CALLS or is_searched) and call_id not in answered:
                name = text_of(item.get("name")) if kind == "function_call" else ""
                yield OwnCall(call_id, name, text_of(item.get("arguments")) or "{}")

    def _seen(self, value: Body) -> Body | None:
        if value.get("type") in _OPENINGS:
            is_shown = not self._is_later or not self._has_opened
            self._has_opened = True
            return value if is_shown else None
        index, item = value.get("output_index"), object_of(value.get("item"))
        if not isinstance(index, int):
            if not self._is_own(item):
                return value
            self._hide(value)
            return None
        if index not in self._places:
            self._places[index] = None if self._is_own(item) else self._new_place(index)
        place = self._places[index]
        if place is None:
            self._hide(value)
            return None
        return {**value, "output_index": place}

    def _hide(self, value: Body) -> None:
        self._has_hidden = True
        if self._shift is not None and isinstance(value.get("sequence_number"), int):
            self._shift -= 1

    def _new_place(self, index: int) -> int:
        place = self._next if self._is_later or self._has_hidden else index
        self._next = max(self._next, place + 1)
        return place

    def _numbered(self, seen: Body | None) -> Body | None:
        number = None if seen is None else seen.get("sequence_number")
        if seen is None or not isinstance(number, int):
            return seen
        if self._shift is None:
            self._shift = self._last_number + 1 - number if self._is_later else 0
        self._last_number = number + self._shift
        return {**seen, "sequence_number": self._last_number}

    def _closes(self, event: SseEvent, value: Body | None) -> bool:  # noqa: ARG002
        return value is not None and value.get("type") in _ENDS

    def _closing(self, seen: Body) -> Body:
        if seen.get("type") not in _ENDS or not isinstance(seen.get("response"), dict):
            return seen
        return {**seen, "response": self._merged_response(seen["response"])}

    def _merged_response(self, last: Body) -> Body:
        merged = dict(last)
        # Codex' backend leaves the output out of the end: there the items were sent, and nobody reads it.
        if last.get("output") or not self.full_messages[-1]:
            merged["output"] = self.client_messages()
        if self._usage is not None:
            merged["usage"] = self._usage
        return merged

    def _merged(self, last: Body) -> Body | None:
        return self._merged_response(last) if isinstance(last.get("output"), list) else None
