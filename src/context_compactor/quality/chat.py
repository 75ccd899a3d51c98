"""Items of the responses form as chat messages, so that every method can be run on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from context_compactor.quality.reading import RawMessage, arguments_text, text_of

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


class Chat(Struct, frozen=True):
    """Chat messages, and for each item the index of the message it went into."""

    messages: list[RawMessage]
    places: list[int]

    def place(self, item: int) -> int:
        """Where the message of an item stands; the end for an item after the last."""
        return self.places[item] if item < len(self.places) else len(self.messages)


def as_chat(items: Sequence[RawMessage]) -> Chat:
    """What the agent wrote between two results or user messages becomes one message with its calls."""
    chat = Chat([], [])
    for item in items:
        _add(chat.messages, item)
        chat.places.append(max(0, len(chat.messages) - 1))
    return chat


def _add(messages: list[RawMessage], item: RawMessage) -> None:
    kind = item.get("type", "message")
    if kind in _OUTPUTS:
        call_id = str(item.get("call_id") or item.get("id") or "")
        messages.append({"role": "tool", "tool_call_id": call_id, "content": text_of(item.get("output"))})
    elif kind in _CALLS:
        _reply(messages).setdefault("tool_calls", []).append(_call(item))
    elif kind == "reasoning":
        _extend(messages, "reasoning_content", text_of(item.get("summary")))
    elif item.get("role") == "assistant":
        _extend(messages, "content", text_of(item.get("content")))
    elif "role" in item:
        messages.append({"role": item["role"], "content": text_of(item.get("content"))})


def _call(item: RawMessage) -> dict[str, Any]:
    name = str(item.get("name") or item.get("type"))
    function = {"name": name, "arguments": arguments_text(item)}
    return {"id": str(item.get("call_id") or item.get("id") or ""), "type": "function", "function": function}


def _extend(messages: list[RawMessage], field: str, text: str) -> None:
    if text:
        reply = _reply(messages)
        reply[field] = "\n".join(filter(None, [reply.get(field), text]))


def _reply(messages: list[RawMessage]) -> RawMessage:
    """The agent's message at the end, a new one if something else stands there."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]
