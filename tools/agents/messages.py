"""The Anthropic Messages API, as far as coding agents need it from a scripted model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from tools.agents.scripted import Body, Call, Lane, Request, Step

_SUMMARY = "Your task is to create a detailed summary"
_PREFIX = "toolu_"


class Messages(Struct, frozen=True):
    """`POST /v1/messages`. A sub-agent is known by the task it was given, an agent itself by its tool `shell`, and a
    request for a summary by what stands in it."""

    task: str
    shell: str = "Bash"
    summaries: tuple[str, ...] = (_SUMMARY,)
    path: str = "/v1/messages"

    def request(self, body: Body, headers: Mapping[str, str]) -> Request:  # noqa: ARG002
        """What a body asks."""
        messages = body["messages"]
        results = [block for message in messages for block in _blocks(message) if block["type"] == "tool_result"]
        texts = [_text(block) for message in messages for block in _blocks(message)]
        return Request(
            self._lane(body), texts, {block["tool_use_id"].removeprefix(_PREFIX): _text(block) for block in results}
        )

    def _lane(self, body: Body) -> Lane:
        first, last = ("\n".join(map(_text, _blocks(body["messages"][at]))) for at in (0, -1))
        if any(text in last for text in self.summaries):
            return "compact"
        if self.task in first:
            return "sub"
        return "main" if any(tool.get("name") == self.shell for tool in body.get("tools", ())) else "aside"

    def events(self, step: Step, number: int, body: Body) -> Iterator[dict[str, Any]]:
        """An answer, as it is streamed."""
        usage = {"input_tokens": step.tokens, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "content": []}
        ends = {"stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
        yield {"type": "message_start", "message": message | ends}
        begins, delta, reason = _said(step.says)
        yield {"type": "content_block_start", "index": 0, "content_block": begins}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        stop = {"stop_reason": reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": stop, "usage": {**usage, "output_tokens": 60}}
        yield {"type": "message_stop"}


def _said(says: Call | str) -> tuple[dict[str, Any], dict[str, Any], str]:
    if isinstance(says, str):
        return {"type": "text", "text": ""}, {"type": "text_delta", "text": says}, "end_turn"
    begins = {"type": "tool_use", "id": f"{_PREFIX}{says.label}", "name": says.tool, "input": {}}
    return begins, {"type": "input_json_delta", "partial_json": json.dumps(says.arguments)}, "tool_use"


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text(block: Mapping[str, Any]) -> str:
    if block["type"] == "tool_result":
        return "\n".join(map(_text, _blocks({"content": block.get("content") or ""})))
    return str(block.get("text", ""))
