"""The known dialects, and which one a list of messages is written in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from context_compactor.dialects.anthropic import Anthropic
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.openai_chat import OpenAIChat
from context_compactor.dialects.openai_responses import OpenAIResponses
from context_compactor.errors import BadSetting

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (OpenAIChat(), OpenAIResponses(), Anthropic())}

CHAT_ROLES = ("tool", "function")
CHAT_FIELDS = frozenset({"tool_calls", "function_call", "tool_call_id", "refusal", "reasoning_content"})
BLOCKS = {
    "image_url": "openai-chat",
    "file": "openai-chat",
    "input_text": "openai-responses",
    "output_text": "openai-responses",
    "input_image": "openai-responses",
    "input_file": "openai-responses",
    "tool_use": "anthropic",
    "tool_result": "anthropic",
    "thinking": "anthropic",
    "redacted_thinking": "anthropic",
    "server_tool_use": "anthropic",
    "image": "anthropic",
    "document": "anthropic",
}
"""Blocks that only one dialect has."""

ITEMS = frozenset({"message", "reasoning", "item_reference", "compaction", "mcp_list_tools"})


def find_dialect(name: str, items: object) -> Dialect:
    """The dialect of this name; `auto` looks at the messages."""
    if name == "auto":
        return detect(items if isinstance(items, (list, tuple)) else ())
    if name not in DIALECTS:
        raise BadSetting(f"unknown dialect {name!r}; known dialects: auto, {', '.join(DIALECTS)}")
    return DIALECTS[name]


def detect(items: Sequence[object]) -> Dialect:
    """The dialect of the first message that only one dialect has; plain messages are OpenAI chat.

    A cache mark alone speaks for Anthropic, unless there is a system message, which is not theirs.
    """
    dicts = [item for item in items if isinstance(item, dict)]
    told = distinctive_dialect(dicts)
    if told:
        return DIALECTS[told]
    marked = any("cache_control" in block for item in dicts for block in _blocks(item))
    instructed = any(item.get("role") in ("system", "developer") for item in dicts)
    return DIALECTS["anthropic" if marked and not instructed else "openai-chat"]


def distinctive_dialect(items: Iterable[dict[str, Any]]) -> str:
    """The dialect that one of the messages gives away, or "" while they could be of several."""
    return next(filter(None, map(_dialect_of_item, items)), None) or ""


def _dialect_of_item(item: dict[str, Any]) -> str | None:
    if item.get("role") in CHAT_ROLES or not CHAT_FIELDS.isdisjoint(item):
        return "openai-chat"
    for block in _blocks(item):
        kind = block.get("type")
        if isinstance(kind, str) and kind in BLOCKS:
            return BLOCKS[kind]
    if not _is_item(item):
        return None
    # A message with its type is a Responses item, or a reply that Anthropic sent, which has text blocks.
    return "anthropic" if "role" in item and (_blocks(item) or "stop_reason" in item) else "openai-responses"


def _is_item(item: dict[str, Any]) -> bool:
    kind = item.get("type")
    return isinstance(kind, str) and (kind in ITEMS or kind.endswith(("_call", "_output")))


def _blocks(item: dict[str, Any]) -> list[dict[str, Any]]:
    content = item.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
