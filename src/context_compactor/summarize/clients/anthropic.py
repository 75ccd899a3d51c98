"""Anthropic's messages, by the official SDK."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from context_compactor.summarize.clients.client import Body, ModelSpec, StreamedAnswer
from context_compactor.summarize.model import ModelRequest, StopReason
from context_compactor.tokens.prices import ModelUsage

_STOPS: dict[str, StopReason] = {
    "end_turn": "complete",
    "stop_sequence": "complete",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_call",
    "refusal": "refusal",
}
_MARK = {"type": "ephemeral"}
_MOST_MARKS = 4
# What the SDK takes by name; the rest, which may be newer than the SDK, is sent as it is.
_OURS = ("model", "max_tokens", "messages", "system")


class AnthropicAdapter:
    """The Messages API. System texts stand apart there; a prefix is marked so that its cache is read."""

    optional: tuple[str, ...] = ()

    def __init__(self, key: str | None, token: str | None = None, base_url: str | None = None) -> None:
        import anthropic

        self.sdk: ModuleType = anthropic
        # Without keep-alive no call meets a connection that the other side has closed in the meantime, and a
        # redirect would take the conversation to somebody whom the user has not named.
        self._client = anthropic.AsyncAnthropic(
            api_key=key,
            auth_token=token,
            base_url=base_url,
            max_retries=0,
            default_headers={"Connection": "close"},
            http_client=anthropic.DefaultAsyncHttpxClient(follow_redirects=False),
        )

    def body(self, request: ModelRequest, named: ModelSpec, refused: frozenset[str]) -> Body:  # noqa: ARG002
        """The request, with all instructions before the messages."""
        system = _blocks({"content": request.beside.get("system")})
        system += [part for message in request.prefix if message.get("role") == "system" for part in _blocks(message)]
        system += [{"type": "text", "text": message.text} for message in request.messages if message.role == "system"]
        messages = _marked([message for message in request.prefix if message.get("role") != "system"], request.beside)
        messages += [{"role": turn.role, "content": turn.text} for turn in request.messages if turn.role != "system"]
        most = min(request.max_tokens, named.most_output)
        body: Body = {**request.beside, "model": named.model, "max_tokens": most, "messages": messages}
        if system:
            body["system"] = system
        return body

    async def send(self, body: Body, timeout: Any) -> Any:
        """Send it; a stream of events."""
        known = {name: part for name, part in body.items() if name in _OURS}
        extra = {name: part for name, part in body.items() if name not in _OURS}
        return await self._client.messages.create(**known, extra_body=extra or None, stream=True, timeout=timeout)

    def take(self, event: Any, collected: StreamedAnswer) -> None:
        """Add one event."""
        match event.type:
            case "message_start":
                collected.model = event.message.model or ""
                collected.usage = _usage(event.message.usage, collected.usage)
            case "content_block_start" if event.content_block.type == "tool_use":
                collected.calls.add(event.index)
            case "content_block_start" if event.content_block.type == "text":
                collected.add_text(event.content_block.text)
            case "content_block_delta":
                collected.add_text(getattr(event.delta, "text", None))
                collected.add_reasoning(getattr(event.delta, "thinking", None))
            case "message_delta":
                collected.usage = _usage(event.usage, collected.usage)
                collected.stop = _STOPS.get(event.delta.stop_reason or "", "other")


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _marked(prefix: list[dict[str, Any]], beside: dict[str, Any]) -> list[dict[str, Any]]:
    """A prefix whose last block ends the cached part, unless it has marks of its own or none is left to set."""
    blocks = [block for message in prefix for block in _blocks(message)]
    others = [*_blocks({"content": beside.get("system")}), *beside.get("tools", ())]
    if not blocks or _marks(blocks) or _marks(others) >= _MOST_MARKS:
        return prefix
    *others, last = prefix
    *before, end = _blocks(last)
    return [*others, {**last, "content": [*before, {**end, "cache_control": _MARK}]}]


def _marks(blocks: list[dict[str, Any]]) -> int:
    return sum("cache_control" in block for block in blocks)


def _usage(usage: Any, before: ModelUsage) -> ModelUsage:
    """The counts of an event; what it does not have stays as in the event before."""
    return ModelUsage(
        input=_count_or(usage, "input_tokens", before.input),
        cache_read=_count_or(usage, "cache_read_input_tokens", before.cache_read),
        cache_write=_count_or(usage, "cache_creation_input_tokens", before.cache_write),
        output=_count_or(usage, "output_tokens", before.output),
    )


def _count_or(usage: Any, name: str, before: int) -> int:
    count = getattr(usage, name, None)
    return before if count is None else int(count)
