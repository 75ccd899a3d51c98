"""The OpenAI chat format: a list of role messages, calls beside the content, one message for each result.

A message's parts come from several fields; `read_parts` notes the field of each, so that a change finds its
way back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from context_compactor.messages.dialect import Raw, dicts_of, refuse_thinking, text_like
from context_compactor.messages.message import Message, ToolCall, ToolResult
from context_compactor.messages.openai_chat_read import THINKING_FIELDS, WHOLE, read_message, read_parts


class OpenAIChat:
    """Messages as `POST /v1/chat/completions` takes them, legacy functions included."""

    name = "openai-chat"
    strict_alternation = False

    def parse(self, items: Sequence[object]) -> list[Message]:
        """One message for each item."""
        return [read_message(index, raw) for index, raw in enumerate(dicts_of(items))]

    def edit(self, message: Message, edits: Mapping[int, str | None]) -> Message | None:
        """The message with some parts replaced by a text or removed."""
        parts, slots = read_parts(0, message.raw)
        for index, text in edits.items():
            refuse_thinking(parts[index], text)
        if not edits:
            return message
        if message.role == "tool" and edits[0] is None:
            return None
        raw = dict(message.raw)
        for index, text in edits.items():
            _change(raw, *slots[index], text)
        edited = read_message(0, _tidied(raw))
        return edited if edited.parts else None

    def user_text(self, text: str) -> Message:
        """A new user message that says this."""
        return read_message(0, {"role": "user", "content": text})

    def join(self, first: Message, second: Message) -> Message:
        """Texts joined by a blank line (or both lists of parts), then all calls."""
        one, two = first.raw, second.raw
        raw = {**two, **one, "content": _both_contents(one.get("content"), two.get("content"))}
        for field in ("tool_calls", "reasoning_details", "thinking_blocks"):
            if one.get(field) and two.get(field):
                raw[field] = [*one[field], *two[field]]
        for field in ("reasoning_content", "reasoning", "refusal"):
            if one.get(field) and two.get(field):
                raw[field] = f"{one[field]}\n\n{two[field]}"
        for field in ("tool_calls", "function_call", *THINKING_FIELDS, "refusal"):
            if field in raw and not raw[field]:
                raw[field] = two.get(field)
        return read_message(0, _tidied(raw))

    def pick(self, message: Message, order: Sequence[int]) -> Message:
        """The message with only these parts; their order is the format's."""
        _, slots = read_parts(0, message.raw)
        raw = dict(message.raw)
        for at, slot in enumerate(slots):
            if at not in order:
                _change(raw, *slot, None)
        return read_message(0, _tidied(raw))

    def answer(self, message: Message, call: ToolCall, text: str) -> Message:
        """A message with this text as the result of a call."""
        if isinstance(message.raw.get("function_call"), dict):
            return read_message(0, {"role": "function", "name": call.name, "content": text})
        return read_message(0, {"role": "tool", "tool_call_id": call.id, "content": text})

    def as_words(self, result: ToolResult, frame: str) -> Message | None:
        """What a result held as a user message."""
        if not result.text and not result.media:
            return None
        if not result.media:
            return self.user_text(f"{frame}\n{result.text}")
        return read_message(0, {"role": "user", "content": [{"type": "text", "text": frame}, *result.content]})

    def rename(self, message: Message, ids: Mapping[int, str]) -> Message:
        """The message with other ids for some calls and results."""
        raw = dict(message.raw)
        _, slots = read_parts(0, raw)
        for index, new_id in ids.items():
            field, entry = slots[index]
            if field == "tool_calls":
                calls = list(raw["tool_calls"])
                calls[entry] = {**calls[entry], "id": new_id}
                raw["tool_calls"] = calls
            elif "tool_call_id" in raw:
                raw["tool_call_id"] = new_id
        return read_message(0, raw)


def _both_contents(one: Any, two: Any) -> Any:
    if not one or not two:
        return one or two
    if isinstance(one, str) and isinstance(two, str):
        return f"{one}\n\n{two}"
    return [*_as_blocks(one), *_as_blocks(two)]


def _as_blocks(content: Any) -> list[Raw]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _change(raw: Raw, field: str, entry: int, text: str | None) -> None:
    """Write one change into a copy; a removed entry of a list becomes None until the message is tidied."""
    if field == "thinking":
        for name in THINKING_FIELDS:
            raw.pop(name, None)
    elif entry != WHOLE:
        entries = list(raw[field])
        entries[entry] = None if text is None else REWRITERS[field](entries[entry], text)
        raw[field] = entries
    elif field == "audio":
        del raw[field]
        raw["content"] = _both_contents(raw.get("content"), text)
    elif field == "function_call" and text is not None:
        raw[field] = {**raw[field], "arguments": text}
    elif text is None and field != "content":
        del raw[field]
    else:
        raw[field] = text


def _tidied(raw: Raw) -> Raw:
    """Without removed entries and empty lists, and with a content wherever the format wants one."""
    for field in ("content", "tool_calls"):
        if isinstance(raw.get(field), list):
            raw[field] = [entry for entry in raw[field] if entry is not None] or None
    if "tool_calls" in raw and raw["tool_calls"] is None:
        del raw["tool_calls"]
    if raw.get("content") is None and not any(raw.get(field) for field in ("tool_calls", "function_call", "audio")):
        raw["content"] = ""
    return raw


def _new_block(block: Raw, text: str) -> Raw:
    if block.get("type") == "refusal":
        return {**block, "refusal": text}
    return {**block, "text": text} if block.get("type") == "text" else text_like(block, text)


def _new_call(call: Raw, text: str) -> Raw:
    if call.get("type") == "custom":
        return {**call, "custom": {**call["custom"], "input": text}}
    return {**call, "function": {**call["function"], "arguments": text}}


REWRITERS: dict[str, Callable[[Raw, str], Raw]] = {"content": _new_block, "tool_calls": _new_call}
