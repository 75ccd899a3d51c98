"""The OpenAI Responses API, as far as Codex needs it from a scripted model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from tools.agents.scripted import Body, Call, Lane, Request, Step

_SUMMARY = "CONTEXT CHECKPOINT COMPACTION"
# With OpenAI itself a compaction is asked for by an item.
_TRIGGER = "compaction_trigger"
_PREFIX = "call_"


class Responses(Struct, frozen=True):
    """`POST /v1/responses`. Codex says in a header that a sub-agent asks."""

    path: str = "/v1/responses"

    def request(self, body: Body, headers: Mapping[str, str]) -> Request:
        """What a body asks."""
        items = body["input"]
        results = {
            item["call_id"].removeprefix(_PREFIX): _text(item["output"])
            for item in items
            if item["type"].endswith("call_output")
        }
        texts = [_text(item.get("content") or item.get("output") or "") for item in items]
        lane = "compact" if items[-1]["type"] == _TRIGGER else _lane(texts[-1], headers)
        return Request(lane, texts, results, [json.dumps(item) for item in items])

    def events(
        self,
        step: Step,
        read: tuple[int, int],
        number: int,
        body: Body,  # noqa: ARG002
    ) -> Iterator[dict[str, Any]]:
        """An answer, as it is streamed."""
        tokens, cached = read
        usage = {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": 60,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens + 60,
        }
        response = {"id": f"resp_{number}", "object": "response", "status": "in_progress", "output": []}
        yield {"type": "response.created", "response": response}
        items = []
        for at, says in enumerate([step.note, step.says] if step.note else [step.says]):
            item = _item(says, f"{number}_{at}")
            yield {"type": "response.output_item.added", "output_index": at, "item": item}
            if isinstance(says, str):
                found = {"item_id": item["id"], "output_index": at, "content_index": 0, "delta": says}
                yield {"type": "response.output_text.delta", **found}
            yield {"type": "response.output_item.done", "output_index": at, "item": item}
            items.append(item)
        done = {"status": "completed", "output": items, "usage": usage}
        yield {"type": "response.completed", "response": response | done}


def _lane(last: str, headers: Mapping[str, str]) -> Lane:
    if _SUMMARY in last:
        return "compact"
    if "thread_title" in headers.get("x-codex-turn-metadata", ""):
        return "aside"
    return "sub" if headers.get("x-openai-subagent") else "main"


def _item(says: Call | str, number: str) -> dict[str, Any]:
    known = {"id": f"item_{number}", "status": "completed"}
    if isinstance(says, str):
        content = [{"type": "output_text", "text": says, "annotations": []}]
        return {**known, "type": "message", "role": "assistant", "content": content}
    known |= {"call_id": f"{_PREFIX}{says.label}", "name": says.tool}
    if isinstance(says.arguments, str):
        return {**known, "type": "custom_tool_call", "input": says.arguments}
    within = {"namespace": says.namespace} if says.namespace else {}
    return {**known, **within, "type": "function_call", "arguments": json.dumps(says.arguments)}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return json.dumps(content)
