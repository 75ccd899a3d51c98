"""What the three wire protocols have in common: the values they are read into, what each of them can do, and how the
replies to one request of a client, which asked for tools of ours in between, become one."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from context_compactor.errors import BadInput
from context_compactor.json_values import json_text, read_json
from context_compactor.proxy.wire.sse import SseEvent, SseParser

Body = dict[str, Any]

JSON_CONTENT = "application/json"
_PIECE_CHARACTERS = 200
_SHOWN_CHARACTERS = 500


class WireRequest(Struct, frozen=True):
    """What the body of a request says; `raws` are the messages exactly as their bytes were sent.

    `system` is Anthropic's `system` or the `instructions` of a response; `previous_response_id` is also the id of a
    `conversation`. `has_server_edits` says whether the provider was asked to shorten the context itself.
    """

    dialect: str
    model: str
    messages: list[Body]
    raws: list[bytes]
    system: Any = None
    tools: list[Any] = []
    is_stream: bool = False
    max_output_tokens: int | None = None
    previous_response_id: str = ""
    has_server_edits: bool = False
    wants_usage: bool = False
    can_hide_calls: bool = True
    """Whether calls in its reply can be hidden: the client must not go on from a response that the provider keeps with
    them, nor choose among several replies."""


class WireReply(Struct, frozen=True):
    """What a provider answered: one assistant message, or the output items of a response. `usage` is as it wrote it.

    A reply is complete when the provider has ended it, also at a limit of tokens. `error` is the text of an error's
    body or event, `stop` the stop reason, finish reason or status. `id` is that of a response, from which others can
    go on.
    """

    messages: list[Body]
    usage: Body | None
    is_complete: bool
    model: str
    error: str = ""
    stop: str = ""
    id: str = ""


class OwnCall(Struct, frozen=True):
    """A call of a tool that the proxy answers itself; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class MergedTurn(Struct, frozen=True):
    """One upstream response of a merged reply: its messages with the calls of our tools, and its own usage."""

    own_calls: list[OwnCall]
    has_client_calls: bool
    messages: list[Body]
    usage: Body | None
    is_complete: bool
    model: str = ""
    error: str = ""
    stop: str = ""


Results = Sequence[tuple[OwnCall, str]]


class WireProtocol(Protocol):
    """One API of a provider as its bytes are on the wire. Nothing here does any I/O."""

    name: str
    dialect: str

    def takes(self, method: str, path: str) -> bool:
        """Whether a request to this path, without its query, asks for a reply of the model by this protocol."""
        ...

    def read_request(self, body: bytes) -> WireRequest:
        """What a request says; `BadInput` when the body is no such request."""
        ...

    def rebuild(
        self, body: bytes, messages: Sequence[bytes], more_tools: Sequence[Body] = (), *, drop: Sequence[str] = ()
    ) -> bytes:
        """The body with these encoded messages in place of its own, more tools behind its own, and without the fields
        in `drop`. All other fields keep their bytes and their order.
        """
        ...

    def read_reply(self, content_type: str, content: bytes) -> WireReply:
        """What a reply says, whole or as a stream of events. It never fails: what cannot be read is an error's text."""
        ...

    def write_text_reply(
        self, request: WireRequest, text: str, input_tokens: int, reply_id: str, *, created: int = 0
    ) -> tuple[str, bytes]:
        """The content type and the body of a finished reply with this text, as a stream when one was asked for."""
        ...

    def tool_results(self, results: Results) -> list[Body]:
        """The messages that answer calls of our tools."""
        ...

    def add_results(self, message_list: Sequence[Body], at: int, results: Results) -> list[Body]:
        """The messages with results of our tools among the results of the client, which begin at index `at`."""
        ...

    def merger(self, own_names: frozenset[str], *, is_stream: bool) -> ReplyMerger:
        """What makes one reply of several, without the calls of the tools with these names."""
        ...


class ReplyAssembly(Protocol):
    """Puts a streamed reply together from the values of its events."""

    def add(self, value: Body) -> None:
        """Take the next event."""
        ...

    def reply(self) -> WireReply:
        """The reply as far as it has come."""
        ...


class _HeldEvent(Struct, frozen=True):
    """An event that waits for the end: as it came, and as the client is to see it, which is None for not at all."""

    event: SseEvent
    value: Body | None
    seen: Body | None


class ReplyMerger(ABC):
    """Makes one reply for the client of the upstream responses to its request, and hides calls of our own tools.

    Give each response to `feed` as it comes and write what comes back, call `end_of_response` behind each, and write
    what `finish` returns behind the last. Events that need no change keep their bytes. Those that close a reply wait:
    only the last response may close it, with the usage of all. A response that is not followed by another one, though
    it asked for our tools alone, ends as if the model had said no more.
    """

    def __init__(self, own_names: frozenset[str], *, is_stream: bool) -> None:
        self.full_messages: list[list[Body]] = []
        self._own_names = own_names
        self._is_stream = is_stream
        self._usage: Body | None = None
        self._has_hidden = False
        self._ends_with_own_calls = False
        self._first_id: Any = None
        self._begin_response()

    def _begin_response(self) -> None:
        self._parser = SseParser()
        self._assembly = self._new_assembly()
        self._content = bytearray()
        self._held: list[_HeldEvent] = []
        self._has_ended = False

    @property
    def _is_later(self) -> bool:
        """Whether the response that is read now is not the first one."""
        return bool(self.full_messages)

    @property
    def _is_unchanged(self) -> bool:
        return not self._has_hidden and len(self.full_messages) <= 1

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of a response; what the client is to get now."""
        if not chunk:
            return b""
        kept = b""
        if self._has_ended:
            kept = b"".join(_written(held, self._kept(held.seen)) for held in self._held if held.seen is not None)
            self._begin_response()
        if not self._is_stream:
            self._content += chunk
            return b""
        return kept + b"".join(map(self._forward, self._parser.feed(chunk)))

    def _forward(self, event: SseEvent, *, is_rest: bool = False) -> bytes:
        value = json_object(event.value)
        if value is not None:
            self._assembly.add(value)
        arrived = _HeldEvent(event, value, None if value is None else self._seen(value))
        if is_rest or self._held or self._closes(event, value):
            self._held.append(arrived)
            return b""
        return _written(arrived, self._numbered(arrived.seen))

    def end_of_response(self) -> MergedTurn:
        """What the response was, now that all of it was fed."""
        if self._has_ended:  # not a byte came: the response before can still close the reply
            return MergedTurn([], False, [], None, False)
        if self._is_stream:
            for event in self._parser.close():
                self._forward(event, is_rest=True)
            reply = self._assembly.reply()
        else:
            content = bytes(self._content)
            reply = self._read_whole(content)
            self._first_id = self._first_id or object_of(json_object(content)).get("id")
        calls = list(self._calls(reply.messages))
        own = [call for call in calls if call.name in self._own_names]
        self._ends_with_own_calls = bool(own) and len(own) == len(calls)
        self._has_hidden |= bool(own)
        self.full_messages.append(reply.messages)
        self._usage = add_usage(self._usage, reply.usage)
        self._has_ended = True
        return MergedTurn(
            own,
            len(own) < len(calls),
            reply.messages,
            reply.usage,
            reply.is_complete,
            reply.model,
            reply.error,
            reply.stop,
        )

    def finish(self) -> bytes:
        """What closes the reply; without a stream, all of it. After a response that broke off, what was held of it."""
        if not self._is_stream:
            body = None if self._is_unchanged else json_object(self._content)
            merged = None if body is None else self._merged(body)
            return bytes(self._content) if merged is None else json_text(merged).encode()
        held, self._held = self._held, []
        return b"".join(map(self._closed, held))

    def _closed(self, held: _HeldEvent) -> bytes:
        if self._is_unchanged or held.seen is None:
            return _written(held, held.seen)
        return _written(held, self._numbered(self._closing(held.seen)))

    @abstractmethod
    def client_messages(self) -> list[Body]:
        """The messages as the client has seen them, and will send them back."""

    @abstractmethod
    def _new_assembly(self) -> ReplyAssembly:
        """What puts the next streamed response together."""

    @abstractmethod
    def _read_whole(self, content: bytes) -> WireReply:
        """What a whole response says."""

    @abstractmethod
    def _calls(self, messages: list[Body]) -> Iterator[OwnCall]:
        """Every call that somebody on this side has to answer. Calls that cannot be ours have no name."""

    @abstractmethod
    def _seen(self, value: Body) -> Body | None:
        """An event's value as the client is to see it; None when it is hidden. Called once for each, in their order."""

    @abstractmethod
    def _closes(self, event: SseEvent, value: Body | None) -> bool:
        """Whether a response is closed by this event."""

    @abstractmethod
    def _closing(self, seen: Body) -> Body:
        """A closing event's value with what is true of all responses together."""

    @abstractmethod
    def _merged(self, last: Body) -> Body | None:
        """The body of the last whole response with what is true of all; None when it is no reply."""

    def _kept(self, seen: Body) -> Body | None:  # noqa: ARG002 - for those whose closing events say more
        """What has to be shown of a closing event when another response follows."""
        return None

    def _numbered(self, seen: Body | None) -> Body | None:
        """An event's value just before it is sent."""
        return seen


def _written(held: _HeldEvent, seen: Body | None) -> bytes:
    if held.value is None or seen == held.value:
        return held.event.raw
    return b"" if seen is None else held.event.rewritten(seen)


def json_object(content: str | bytes | bytearray) -> Body | None:
    """The JSON object in a text, or None when it is something else."""
    try:
        value = read_json(content.encode() if isinstance(content, str) else bytes(content))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def object_of(value: object) -> Body:
    """The value when it is an object, else an empty one: providers that are only compatible send all kinds."""
    return value if isinstance(value, dict) else {}


def objects_of(value: object) -> list[Body]:
    """The objects in a value that should be a list of them."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text_of(value: object) -> str:
    """The value when it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def add_usage(usage: Body | None, more: Body | None) -> Body | None:
    """The counts of two usage records added up, whatever the provider calls them; of all else the newer."""
    if usage is None or more is None:
        return more if usage is None else usage
    return {**usage, **{name: _sum(usage.get(name), value) for name, value in more.items()}}


def _sum(value: Any, more: Any) -> Any:
    if value is None or more is None:
        return more if value is None else value
    if isinstance(value, dict) and isinstance(more, dict):
        return add_usage(value, more)
    if isinstance(value, list) and isinstance(more, list):
        return [*value, *more]
    return value + more if _is_number(value) and _is_number(more) else more


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def failed_reply(content: bytes) -> WireReply:
    """An answer that is no reply, with what its body says about that."""
    body = json_object(content)
    text = error_text(body) if body is not None else ""
    return WireReply([], None, False, "", text or content.decode(errors="replace")[:_SHOWN_CHARACTERS])


def error_text(body: Body) -> str:
    """What an error's body or event says, in the forms that providers and the proxies before them use."""
    for value in (body.get("error"), body):
        if isinstance(value, str):
            return value
        for name in ("message", "detail"):
            if found := text_of(object_of(value).get(name)):
                return found
    return json_text(body["error"]) if body.get("error") else ""


def is_event_stream(content_type: str, content: bytes) -> bool:
    """Whether a reply is a stream of events: by its content type, unless it plainly is a JSON object."""
    begin = content[:16].lstrip()
    return not begin.startswith(b"{") and ("event-stream" in content_type or begin.startswith((b"event:", b"data:")))


def text_pieces(text: str) -> list[str]:
    """A text as a stream sends it."""
    return [text[at : at + _PIECE_CHARACTERS] for at in range(0, len(text), _PIECE_CHARACTERS)]


def output_count(text: str) -> int:
    """About how many tokens a text that no model has written would have been."""
    return len(text) // 4 + 1


def message_raws(top: dict[str, Raw], field: str) -> list[bytes]:
    """The bytes of each message in a field of a request."""
    if field not in top:
        raise BadInput(f"the request has no {field!r}, which should be a list of messages")
    return [bytes(raw) for raw in _raw_list(top[field], field)]


def decoded_messages(raws: Sequence[bytes], field: str) -> list[Body]:
    """The messages behind their bytes."""
    messages: list[Body] = []
    for at, raw in enumerate(raws):
        message = json_object(raw)
        if message is None:
            raise BadInput(f"{field}[{at}] should be an object: {raw[:80].decode(errors='replace')}")
        messages.append(message)
    return messages


def raw_fields(body: bytes) -> dict[str, Raw]:
    """The fields of a request, each as its bytes are."""
    try:
        return msgspec.json.decode(body, type=dict[str, Raw])
    except (ValueError, RecursionError) as problem:
        found = _odd_fields(body)
        if found is None:
            raise BadInput(f"the body should be a JSON object: {problem}") from problem
        return found


def field_value(top: dict[str, Raw], field: str) -> Any:
    """One field's value, None when it is missing."""
    if field not in top:
        return None
    try:
        return read_json(bytes(top[field]))
    except (ValueError, RecursionError) as problem:
        raise BadInput(f"{field!r} cannot be read: {problem}") from problem


def rebuilt(
    body: bytes, field: str, messages: Sequence[bytes], more_tools: Sequence[Body], drop: Sequence[str]
) -> bytes:
    """A request with other messages in `field`, and with more tools; see `WireProtocol.rebuild`."""
    fields = {name: bytes(raw) for name, raw in raw_fields(body).items()}
    fields[field] = _array(messages)
    if more_tools:
        own = [] if fields.get("tools", b"null") == b"null" else _raw_list(Raw(fields["tools"]), "tools")
        fields["tools"] = _array([*map(bytes, own), *(json_text(tool).encode() for tool in more_tools)])
    written = [json_text(name).encode() + b":" + raw for name, raw in fields.items() if name not in drop]
    return b"{" + b",".join(written) + b"}"


def _array(elements: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(elements) + b"]"


def _raw_list(raw: Raw, field: str) -> list[Raw]:
    try:
        return msgspec.json.decode(raw, type=list[Raw])
    except (ValueError, RecursionError) as problem:
        found = _odd_list(bytes(raw))
        if found is None:
            raise BadInput(f"{field!r} should be a list: {problem}") from problem
        return found


# Half a character, which JavaScript writes as an escape when a text was cut inside of one, stops msgspec; Python's own
# reader takes it, and says where each value ends.
_READER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def _odd_fields(body: bytes) -> dict[str, Raw] | None:
    try:
        parts = list(_split(body.decode(), "{", "}"))
        keys = [_READER.decode(key) for key in parts[::2]]
    except (ValueError, RecursionError):
        return None
    values = [Raw(value.encode()) for value in parts[1::2]]
    return dict(zip(keys, values, strict=True)) if all(isinstance(key, str) for key in keys) else None


def _odd_list(content: bytes) -> list[Raw] | None:
    try:
        return [Raw(value.encode()) for value in _split(content.decode(), "[", "]")]
    except (ValueError, RecursionError):
        return None


def _split(text: str, opening: str, closing: str) -> Iterator[str]:
    """The texts of the values in an array, or of the keys and values in an object, one after the other."""
    at = _skip(text, _skip(text, 0, ""), opening)
    marks = "," if opening == "[" else ":,"
    count = 0
    while not text.startswith(closing, at):
        if count:
            at = _skip(text, at, marks[(count - 1) % len(marks)])
        _, end = _READER.raw_decode(text, at)
        yield text[at:end]
        at = _skip(text, end, "")
        count += 1
    if _skip(text, at, closing) != len(text) or count % len(marks):
        raise ValueError("more than one JSON value")


def _skip(text: str, at: int, mark: str) -> int:
    """The place behind a mark and the space that follows it."""
    if not text.startswith(mark, at):
        raise ValueError(f"{mark!r} expected")
    found = _SPACE.match(text, at + len(mark))
    return found.end() if found else at
