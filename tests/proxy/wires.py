"""Replies of the strict server on the wire, merged as the proxy's relay does it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

from context_compactor.proxy.wire import (
    AnthropicWire,
    ChatWire,
    MergedTurn,
    OwnCall,
    ReplyMerger,
    ResponsesWire,
    WireProtocol,
)
from context_compactor.testing import ScriptedCall, ScriptedReply, StrictServer
from tests.strict.clients import AnthropicClient, ChatClient, LoopClient, ResponsesClient, RoutedClaudeClient

Raw = dict[str, Any]
OWN = frozenset({"recall", "search_archive"})
_SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}}

READ = ScriptedCall("read_file", {"path": 'src/ü/"a"\\b.py\n'})
RUN = ScriptedCall("run_command", {})
RECALL = ScriptedCall("recall", {"id": "abc «ß» 🧪"})
SEARCH = ScriptedCall("search_archive", {"id": "x" * 40})

ANSWER = ScriptedReply("The parser was wrong, see line 7 of «ß» 🧪.")
SCRIPTS = {
    "a text": [ANSWER],
    "thinking, a text and two calls of the client": [
        ScriptedReply("I look at both.", "First read, then run.", calls=(READ, RUN))
    ],
    "an own call alone": [ScriptedReply(calls=(RECALL,)), ANSWER],
    "an own call after thinking and a text": [
        ScriptedReply("I look it up first.", "I know that.", calls=(RECALL,)),
        ScriptedReply("The parser.", "Now I see."),
    ],
    "two own calls at once": [ScriptedReply(calls=(RECALL, SEARCH)), ANSWER],
    "own calls beside those of the client": [ScriptedReply("Both.", "Hm.", calls=(RECALL, READ, SEARCH, RUN))],
    "own calls behind those of the client": [ScriptedReply(calls=(READ, RECALL))],
    "two rounds of own calls, then calls of the client": [
        ScriptedReply("First.", "One.", calls=(RECALL,)),
        ScriptedReply("", "Two.", calls=(SEARCH, RECALL)),
        ScriptedReply("Third.", None, calls=(READ, RUN)),
    ],
    "an own call, then own calls beside those of the client": [
        ScriptedReply("First.", calls=(SEARCH,)),
        ScriptedReply("Second.", calls=(RECALL, READ)),
    ],
}


class Wired(Struct, frozen=True):
    """A protocol, and a client of the strict server that speaks it."""

    wire: WireProtocol
    client: LoopClient

    def body(self, messages: Sequence[Raw] = (), **more: Any) -> Raw:
        """A request that offers the client's tools, and asks for usage in the stream."""
        history = [*self.client.first(), self.client.user("What is wrong?"), *messages]
        options = {"stream_options": {"include_usage": True}} if self.wire.name == "chat" else {}
        return {**self.client.request(history), "stream": True, **options, **more}

    def tools(self) -> list[Raw]:
        """Our tools as this provider takes them."""
        names = sorted(OWN)
        if self.wire.name == "anthropic":
            return [{"name": name, "description": name, "input_schema": _SCHEMA} for name in names]
        functions = [{"name": name, "description": name, "parameters": _SCHEMA} for name in names]
        if self.wire.name == "chat":
            return [{"type": "function", "function": function} for function in functions]
        return [{"type": "function", **function} for function in functions]


WIRED = {
    "anthropic": Wired(AnthropicWire(), AnthropicClient()),
    "chat": Wired(ChatWire(), ChatClient()),
    "routed-claude": Wired(ChatWire(), RoutedClaudeClient()),
    "responses": Wired(ResponsesWire(), ResponsesClient()),
}

Cut = Callable[[bytes], Iterable[bytes]]


class Relayed(Struct, frozen=True):
    """What the client has got, what came from upstream for it, and what the merger knows."""

    output: bytes
    upstream: list[bytes]
    turns: list[MergedTurn]
    merger: ReplyMerger
    server: StrictServer
    body: Raw


def result_of(call: OwnCall) -> str:
    return f"found for {call.arguments}"


def content_of(server: StrictServer, path: str, body: Raw) -> bytes:
    """The strict server's answer to a request, as it is sent."""
    status, answer = server.respond(path, body)
    assert status == 200, answer
    events = server._events(path, body, answer)
    return b"".join(event.encode() for event in events) or json.dumps(answer).encode()


def relay(
    wired: Wired,
    replies: Iterable[ScriptedReply],
    *,
    is_stream: bool = True,
    own: frozenset[str] = OWN,
    cut: Cut = lambda content: [content],
    **more: Any,
) -> Relayed:
    """Answer one request of the client as the relay does: with another request as long as only our tools are asked."""
    wire, server = wired.wire, StrictServer(replies, window=10**6)
    merger = wire.merger(own, is_stream=is_stream)
    sent = json.dumps(wired.body(stream=is_stream, **more)).encode()
    sent = wire.rebuild(sent, wire.read_request(sent).raws, wired.tools())
    output, upstream, turns = b"", [], []
    while True:
        body = json.loads(sent)
        upstream.append(content_of(server, wired.client.path, body))
        output += b"".join(map(merger.feed, cut(upstream[-1])))
        turns.append(merger.end_of_response())
        turn = turns[-1]
        if not turn.own_calls or turn.has_client_calls or not turn.is_complete:
            return Relayed(output + merger.finish(), upstream, turns, merger, server, body)
        results = wire.tool_results([(call, result_of(call)) for call in turn.own_calls])
        more = [json.dumps(message).encode() for message in [*turn.messages, *results]]
        sent = wire.rebuild(sent, [*wire.read_request(sent).raws, *more])


def values(stream: bytes) -> Iterator[Raw]:
    """The JSON values of a stream's events, read without the parser under test."""
    for line in stream.decode().split("\n"):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """A way to cut bytes into chunks."""
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=20))

    def cut(content: bytes) -> Iterator[bytes]:
        at = count = 0
        while at < len(content):
            size = sizes[count % len(sizes)]
            yield content[at : at + size]
            at, count = at + size, count + 1

    return cut
