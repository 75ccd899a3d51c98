"""Two wire formats in which the same answer can be told."""

from __future__ import annotations

import json
from typing import Any, Protocol

from context_compactor.settings import Settings
from context_compactor.summarize.clients.client import ModelClient
from context_compactor.summarize.clients.names import open_model


class Format(Protocol):
    name: str

    def client(self, url: str, key: str = "a key") -> ModelClient: ...

    def text(self, *pieces: str) -> list[bytes]: ...

    def thinking(self, piece: str) -> list[bytes]: ...

    def tool_call(self) -> list[bytes]: ...

    def refusal(self) -> list[bytes]: ...

    def end(self, reason: str = "complete") -> list[bytes]: ...

    def error(self, kind: str, words: str) -> dict[str, Any]: ...


def event(value: Any, name: str = "") -> bytes:
    said = f"event: {name}\n" if name else ""
    return f"{said}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


class OpenAIFormat:
    name = "openai"

    def client(self, url: str, key: str = "a key") -> ModelClient:
        return open_model("openai/gpt-4.1-mini", Settings(), {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": f"{url}/v1"})

    def text(self, *pieces: str) -> list[bytes]:
        return [self._chunk({"content": piece}) for piece in pieces]

    def thinking(self, piece: str) -> list[bytes]:
        return [self._chunk({"reasoning_content": piece})]

    def tool_call(self) -> list[bytes]:
        call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        return [self._chunk({"tool_calls": [call]}), *self.end("tool_calls")]

    def refusal(self) -> list[bytes]:
        return [self._chunk({"refusal": "I will not."}), *self.end("stop")]

    def end(self, reason: str = "complete") -> list[bytes]:
        usage = {
            "prompt_tokens": 100,
            "completion_tokens": 7,
            "total_tokens": 107,
            "prompt_tokens_details": {"cached_tokens": 60},
        }
        said = {"complete": "stop"}.get(reason, reason)
        last = {**self._frame(), "choices": [], "usage": usage}
        return [self._chunk({}, said), event(last), b"data: [DONE]\n\n"]

    def error(self, kind: str, words: str) -> dict[str, Any]:
        return {"error": {"message": words, "type": kind, "code": kind, "param": None}}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        return event({**self._frame(), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def _frame(self) -> dict[str, Any]:
        return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "served-model"}


class AnthropicFormat:
    name = "anthropic"

    def client(self, url: str, key: str = "a key") -> ModelClient:
        return open_model(
            "anthropic/claude-haiku-4-5", Settings(), {"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": url}
        )

    def text(self, *pieces: str) -> list[bytes]:
        opened = self._block(0, {"type": "text", "text": ""})
        said = [self._delta(0, {"type": "text_delta", "text": piece}) for piece in pieces]
        return [*self._start(), opened, *said]

    def thinking(self, piece: str) -> list[bytes]:
        opened = self._block(0, {"type": "thinking", "thinking": "", "signature": ""})
        return [*self._start(), opened, self._delta(0, {"type": "thinking_delta", "thinking": piece})]

    def tool_call(self) -> list[bytes]:
        opened = self._block(0, {"type": "tool_use", "id": "c1", "name": "ls", "input": {}})
        return [*self._start(), opened, *self.end("tool_use")]

    def refusal(self) -> list[bytes]:
        return [*self.text("I will not."), *self.end("refusal")]

    def end(self, reason: str = "complete") -> list[bytes]:
        said = {"complete": "end_turn", "length": "max_tokens"}.get(reason, reason)
        delta = {"stop_reason": said, "stop_sequence": None}
        return [
            event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}, "message_delta"),
            event({"type": "message_stop"}, "message_stop"),
        ]

    def error(self, kind: str, words: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": kind, "message": words}}

    def _start(self) -> list[bytes]:
        usage = {
            "input_tokens": 40, "output_tokens": 1, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 0
        }  # fmt: skip
        message = {
            "id": "m", "type": "message", "role": "assistant", "model": "served-model", "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": usage,
        }  # fmt: skip
        return [event({"type": "message_start", "message": message}, "message_start")]

    def _block(self, index: int, block: dict[str, Any]) -> bytes:
        return event({"type": "content_block_start", "index": index, "content_block": block}, "content_block_start")

    def _delta(self, index: int, delta: dict[str, Any]) -> bytes:
        return event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")


FORMATS: dict[str, Format] = {"openai": OpenAIFormat(), "anthropic": AnthropicFormat()}
