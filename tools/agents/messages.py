"""The Anthropic Messages API, as far as coding agents need it from a scripted model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from tools.agents.scripted import Body, Call, Lane, Request, Step

_SUMMARY = "Your task is to create a detailed summary"
_PREFIX = "toolu_"
# Claude Code tells its model behind a result how much is left of its window.
_REMINDER = re.compile(r"\n{0,2}<system-reminder>\s*<total_tokens>[^<]*</total_tokens>\s*</system-reminder>\s*\Z")
_BILLING = "x-anthropic-billing-header"


class Messages(Struct, frozen=True):
    """`POST /v1/messages`. Claude Code says in a header that a sub-agent asks; an agent itself is known by its tool
    `shell`, and a request for a summary by what stands in it."""

    shell: str = "Bash"
    summaries: tuple[str, ...] = (_SUMMARY,)
    path: str = "/v1/messages"

    def request(self, body: Body, headers: Mapping[str, str]) -> Request:
        """What a body asks."""
        messages = body["messages"]
        blocks = [block for message in messages for block in _blocks(message)]
        results = {
            block["tool_use_id"].removeprefix(_PREFIX): _REMINDER.sub("", _text(block))
            for block in blocks
            if block["type"] == "tool_result"
        }
        agent = headers.get("x-claude-code-agent-id", "")
        return Request(self._lane(body, agent), [_text(block) for block in blocks], results, _parts(body), agent)

    def _lane(self, body: Body, agent: str) -> Lane:
        last = "\n".join(map(_text, _blocks(body["messages"][-1])))
        if any(text in last for text in self.summaries):
            return "compact"
        if agent:
            return "sub"
        return "main" if any(tool.get("name") == self.shell for tool in body.get("tools", ())) else "aside"

    def events(self, step: Step, read: tuple[int, int], number: int, body: Body) -> Iterator[dict[str, Any]]:
        """An answer, as it is streamed."""
        tokens, cached = read
        usage = {
            "input_tokens": 0,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": tokens - cached,
        }
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "content": []}
        ends = {"stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
        yield {"type": "message_start", "message": message | ends}
        for at, says in enumerate([step.note, step.says] if step.note else [step.says]):
            begins, delta, reason = _said(says)
            yield {"type": "content_block_start", "index": at, "content_block": begins}
            yield {"type": "content_block_delta", "index": at, "delta": delta}
            yield {"type": "content_block_stop", "index": at}
        stop = {"stop_reason": reason, "stop_sequence": None}
        yield {
            "type": "message_delta",
            "delta": stop,
            "usage": {**usage, "output_tokens": 60 + len(str(step.says)) // 4},
        }
        yield {"type": "message_stop"}


def _parts(body: Body) -> list[str]:
    """Tools, system prompt and messages, without what says where a cache shall begin and who pays for it."""
    system = [block for block in _blocks({"content": body.get("system", "")}) if _BILLING not in block["text"]]
    messages = ((message["role"], block) for message in body["messages"] for block in _blocks(message))
    return [
        json.dumps(body.get("tools", [])),
        *(block["text"] for block in system),
        *(f"{role}: {_plain(block)}" for role, block in messages),
    ]


def _plain(block: Mapping[str, Any]) -> str:
    """What a model reads of a block, the texts as they are."""
    more = {key: value for key, value in block.items() if key not in ("cache_control", "text", "content", "type")}
    return f"{block['type']} {json.dumps(more) if more else ''} {_text(block)}"


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
