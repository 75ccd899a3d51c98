"""The wire protocols of the providers: pure functions between the bytes on the wire and values, without any I/O."""

from __future__ import annotations

from context_compactor.proxy.wire.anthropic import AnthropicWire
from context_compactor.proxy.wire.chat import ChatWire
from context_compactor.proxy.wire.protocol import (
    Body,
    MergedTurn,
    OwnCall,
    ReplyMerger,
    Results,
    WireProtocol,
    WireReply,
    WireRequest,
    add_usage,
)
from context_compactor.proxy.wire.responses import ResponsesWire
from context_compactor.proxy.wire.sse import SseEvent, SseParser

__all__ = [
    "PROTOCOLS",
    "RESPONSES",
    "AnthropicWire",
    "Body",
    "ChatWire",
    "MergedTurn",
    "OwnCall",
    "ReplyMerger",
    "ResponsesWire",
    "Results",
    "SseEvent",
    "SseParser",
    "WireProtocol",
    "WireReply",
    "WireRequest",
    "add_usage",
    "find_protocol",
]

RESPONSES = ResponsesWire()
PROTOCOLS: tuple[WireProtocol, ...] = (AnthropicWire(), ChatWire(), RESPONSES)


def find_protocol(method: str, path: str) -> WireProtocol | None:
    """The protocol of a request to this path, without its query; None when it asks for no reply of a model."""
    return next((protocol for protocol in PROTOCOLS if protocol.takes(method, path)), None)
