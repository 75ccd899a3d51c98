"""The OpenAI Responses format: a flat list of items; calls, outputs and reasoning are items of their own.

A message item has one part for each block of its content; every other item is one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_compactor.messages.dialect import Raw, dicts_of, refuse_thinking
from context_compactor.messages.message import Message, ToolCall, ToolResult
from context_compactor.messages.openai_responses_read import (
    CALLS,
    OUTPUT_TYPES,
    OUTPUTS,
    ROLES,
    is_failure,
    item_type,
    read_item,
    shell_outcomes,
)


class OpenAIResponses:
    """Items as the `input` of `POST /v1/responses` takes them."""

    name = "openai-responses"
    strict_alternation = False

    def parse(self, items: Sequence[object]) -> list[Message]:
        """One message for each item."""
        return [read_item(index, raw) for index, raw in enumerate(dicts_of(items))]

    def edit(self, message: Message, edits: Mapping[int, str | None]) -> Message | None:
        """The item with some parts replaced by a text or removed."""
        for index, text in edits.items():
            refuse_thinking(message.parts[index], text)
        if not edits:
            return message
        if item_type(message.raw) == "message":
            return _edited_message(message.raw, edits)
        text = edits[0]
        return None if text is None else _edited_item(message, text)

    def user_text(self, text: str) -> Message:
        """A new user message that says this."""
        content = [{"type": "input_text", "text": text}]
        return read_item(0, {"type": "message", "role": "user", "content": content})

    def join(self, first: Message, second: Message) -> Message:
        """Two message items as one; other items cannot be joined."""
        if {item_type(first.raw), item_type(second.raw)} != {"message"}:
            raise ValueError("only message items can be joined")
        one, two = first.raw["content"], second.raw["content"]
        if isinstance(one, str) and isinstance(two, str):
            content: Any = "\n\n".join(text for text in (one, two) if text)
        else:
            content = [*_blocks(first.raw), *_blocks(second.raw)]
        return read_item(0, {**second.raw, **first.raw, "content": content})

    def pick(self, message: Message, order: Sequence[int]) -> Message:
        """The item with only these parts, in this order."""
        if item_type(message.raw) != "message":
            return message
        blocks = _blocks(message.raw)
        return read_item(0, {**message.raw, "content": [blocks[at] for at in order]})

    def answer(self, message: Message, call: ToolCall, text: str) -> Message | None:
        """An output item with this text for a call; a computer's output can only be a screenshot."""
        kind = OUTPUTS[item_type(message.raw)]
        raw: Raw = {"type": kind, "call_id": call.id, "output": text}
        match kind:
            case "local_shell_call_output":
                raw["id"] = raw.pop("call_id")
            case "shell_call_output":
                raw["output"] = [_shell_run(text, {"type": "exit", "exit_code": 1})]
            case "apply_patch_call_output":
                raw["status"] = "failed"
            case "computer_call_output":
                return None
        return read_item(0, raw)

    def as_words(self, result: ToolResult, frame: str) -> Message | None:
        """What an output held as a user message."""
        if not result.text and not result.media:
            return None
        if not result.media:
            return self.user_text(f"{frame}\n{result.text}")
        held = result.content if isinstance(result.content, list) else [_screenshot(result.content)]
        content = [{"type": "input_text", "text": frame}, *held]
        return read_item(0, {"type": "message", "role": "user", "content": content})

    def rename(self, message: Message, ids: Mapping[int, str]) -> Message:
        """The call or output with another id."""
        return read_item(0, {**message.raw, _id_key(message.raw): ids[0]})


def unbind(before: Sequence[Message], after: Sequence[Message]) -> list[Message]:
    """Take the item ids off replies whose reasoning was in `before` and is no longer in `after`.

    The API looks an item up by its id and rejects it when its reasoning does not come with it.
    """
    wanted = dict(_reasoned(before))
    lost = {item_id for item_id, thoughts in _reasoned(after) if wanted.get(item_id, thoughts) - thoughts}
    return [_without_id(message) if str(message.raw.get("id")) in lost else message for message in after]


def _without_id(message: Message) -> Message:
    return read_item(0, {key: value for key, value in message.raw.items() if key != "id"})


def _reasoned(messages: Sequence[Message]) -> Iterator[tuple[str, frozenset[str]]]:
    """The id of every item of a reply, with the ids of the reasoning before it."""
    thoughts: frozenset[str] = frozenset()
    for message in messages:
        item_id = message.raw.get("id")
        if message.role != "assistant":
            thoughts = frozenset()
        elif isinstance(item_id, str) and message.raw.get("type") == "reasoning":
            thoughts |= {item_id}
        elif isinstance(item_id, str):
            yield item_id, thoughts


def _screenshot(output: Raw) -> Raw:
    held: Raw = {key: output[key] for key in ("image_url", "file_id") if key in output}
    return {"type": "input_image", "detail": "auto", **held}


def _id_key(raw: Raw) -> str:
    return "call_id" if raw.get("call_id") else "id"


def _blocks(raw: Raw) -> list[Raw]:
    content = raw.get("content")
    if isinstance(content, str):
        return [{"type": _text_type(raw), "text": content}] if content else []
    return list(content or ())


def _text_type(raw: Raw) -> str:
    return "output_text" if raw.get("role") == "assistant" else "input_text"


def _edited_message(raw: Raw, edits: Mapping[int, str | None]) -> Message | None:
    content = raw.get("content")
    if isinstance(content, str):
        return read_item(0, {**raw, "content": edits[0]}) if edits.get(0) is not None else None
    blocks = []
    for at, block in enumerate(content or ()):
        text = edits.get(at, "")
        if at not in edits:
            blocks.append(block)
        elif text is not None:
            blocks.append(_edited_block(raw, block, text))
    return read_item(0, {**raw, "content": blocks}) if blocks else None


def _edited_block(raw: Raw, block: Raw, text: str) -> Raw:
    kind = block.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {**block, "text": text}
    if kind == "refusal":
        return {**block, "refusal": text}
    return {"type": _text_type(raw), "text": text}


def _edited_item(message: Message, text: str) -> Message:
    raw = message.raw
    kind = item_type(raw)
    if kind == "computer_call_output":
        return message  # Its output can only be a screenshot.
    if kind == "shell_call_output" and isinstance(raw.get("output"), list):
        outcomes = sorted(shell_outcomes(raw["output"]), key=is_failure, reverse=True)
        return read_item(0, {**raw, "output": [_shell_run(text, outcomes[0] if outcomes else {})]})
    if kind in OUTPUT_TYPES:
        return read_item(0, {**raw, "output": text})
    if kind in ("function_call", "custom_tool_call"):
        return read_item(0, {**raw, CALLS[kind]: text})
    if kind in CALLS:
        return message
    role = message.role if message.role in ROLES else "assistant"
    block = {"type": _text_type({"role": role}), "text": text}
    return read_item(0, {"type": "message", "role": role, "content": [block]})


def _shell_run(text: str, outcome: Raw) -> Raw:
    return {"stdout": text, "stderr": "", "outcome": outcome or {"type": "exit", "exit_code": 0}}
