"""OpenAI's chat completions, any compatible server at an address, and every provider that litellm knows."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from context_compactor.summarize.clients.client import Body, ModelSpec, StreamedAnswer
from context_compactor.summarize.model import ModelRequest, StopReason
from context_compactor.tokens.prices import ModelUsage

STOPS: dict[str, StopReason] = {
    "stop": "complete",
    "length": "length",
    "tool_calls": "tool_call",
    "function_call": "tool_call",
    "content_filter": "refusal",
}
# What the SDK takes by name; the rest, which is the agent's, is sent as it is.
_OURS = ("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens")


class OpenAIAdapter:
    """Chat completions. `base_url` None is OpenAI itself, which names the limit of an answer differently.

    A server of one's own is sent nothing that the environment holds for OpenAI.
    """

    optional: tuple[str, ...] = ("stream_options", "max_completion_tokens", "max_tokens")

    def __init__(self, key: str, base_url: str | None = None, *, is_own: bool = False) -> None:
        import openai

        self.sdk: ModuleType = openai
        self._limit = "max_completion_tokens" if base_url is None else "max_tokens"
        # Without keep-alive no call meets a connection that the other side has closed in the meantime, and a
        # redirect would take the conversation to somebody whom the user has not named.
        headers, http = {"Connection": "close"}, openai.DefaultAsyncHttpxClient(follow_redirects=False)
        self._client = openai.AsyncOpenAI(
            api_key=key, base_url=base_url, max_retries=0, default_headers=headers, http_client=http
        )
        if is_own:
            self._client.organization = self._client.project = None
            self._client._custom_headers = headers

    def body(self, request: ModelRequest, named: ModelSpec, refused: frozenset[str]) -> Body:
        """The request, streamed and with usage."""
        return chat_body(request, named, refused, self._limit)

    async def send(self, body: Body, timeout: Any) -> Any:
        """Send it; a stream of chunks."""
        known = {name: part for name, part in body.items() if name in _OURS}
        extra = {name: part for name, part in body.items() if name not in _OURS}
        return await self._client.chat.completions.create(**known, extra_body=extra or None, timeout=timeout)

    def take(self, event: Any, collected: StreamedAnswer) -> None:
        """Add one chunk."""
        take_chunk(event, collected)


def chat_body(request: ModelRequest, named: ModelSpec, refused: frozenset[str], limit: str) -> Body:
    """A request for chat completions without the parts that were refused; the limit has a second name to try."""
    body: Body = {
        **request.beside,
        "model": named.model,
        "messages": [*request.prefix, *({"role": each.role, "content": each.text} for each in request.messages)],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    other = "max_tokens" if limit == "max_completion_tokens" else "max_completion_tokens"
    body[other if limit in refused else limit] = min(request.max_tokens, named.most_output)
    return {name: part for name, part in body.items() if name not in refused}


def take_chunk(chunk: Any, collected: StreamedAnswer) -> None:
    """Add a chunk of a chat completion to what has come."""
    collected.model = chunk.model or collected.model
    if usage := getattr(chunk, "usage", None):
        collected.usage = _usage(usage)
    for choice in chunk.choices or ():
        delta = choice.delta
        collected.add_reasoning(getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None))
        collected.add_text(delta.content)
        collected.calls.update(call.index for call in delta.tool_calls or ())
        if refusal := getattr(delta, "refusal", None):
            collected.add_text(refusal)
            collected.stop = "refusal"
        if choice.finish_reason and collected.stop != "refusal":
            collected.stop = STOPS.get(choice.finish_reason, "other")


def _usage(usage: Any) -> ModelUsage:
    details = getattr(usage, "prompt_tokens_details", None)
    read = getattr(details, "cached_tokens", None) or 0
    written = getattr(details, "cache_write_tokens", None) or 0
    sent = max((usage.prompt_tokens or 0) - read - written, 0)
    return ModelUsage(input=sent, cache_read=read, cache_write=written, output=usage.completion_tokens or 0)


class LiteLLMAdapter:
    """Chat completions by litellm, whose errors and chunks are those of the openai SDK."""

    optional: tuple[str, ...] = ("stream_options", "max_tokens")

    def __init__(self) -> None:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it fetches a price list on import otherwise
        import litellm
        import openai

        litellm.suppress_debug_info = True
        self.sdk: ModuleType = openai
        self._complete = litellm.acompletion

    def body(self, request: ModelRequest, named: ModelSpec, refused: frozenset[str]) -> Body:
        """The request, streamed and with usage."""
        return chat_body(request, named, refused, "max_tokens")

    async def send(self, body: Body, timeout: Any) -> Any:
        """Send it; a stream of chunks."""
        return await self._complete(**body, timeout=timeout, num_retries=0, max_retries=0)

    def take(self, event: Any, collected: StreamedAnswer) -> None:
        """Add one chunk."""
        take_chunk(event, collected)
