"""Every provider that litellm knows. It finds its keys by itself, in the variables that its documentation names."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from context_compactor.llm.client import Body, Named
from context_compactor.llm.collect import Collected
from context_compactor.llm.model import ModelRequest
from context_compactor.llm.openai_client import chat_body, take_chunk


class LiteLLMWire:
    """Chat completions by litellm, whose errors and chunks are those of the openai SDK."""

    optional: tuple[str, ...] = ("response_format", "stream_options", "max_tokens")

    def __init__(self) -> None:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it fetches a price list on import otherwise
        import litellm
        import openai

        litellm.suppress_debug_info = True
        self.sdk: ModuleType = openai
        self._complete = litellm.acompletion

    def body(self, request: ModelRequest, named: Named, refused: frozenset[str]) -> Body:
        """The request, streamed and with usage."""
        return chat_body(request, named, refused, "max_tokens")

    async def send(self, body: Body, timeout: Any) -> Any:
        """Send it; a stream of chunks."""
        return await self._complete(**body, timeout=timeout, num_retries=0, max_retries=0)

    def take(self, event: Any, collected: Collected) -> None:
        """Add one chunk."""
        take_chunk(event, collected)
