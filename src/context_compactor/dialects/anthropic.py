"""The Anthropic Messages format and its limits for images."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from context_compactor.dialects.dialect import (
    Raw,
    blocks_at,
    dicts_of,
    id_at,
    object_at,
    refuse_thinking,
    role_at,
    text_and_media,
    text_at,
    text_like,
)
from context_compactor.dialects.media import inline_media, linked_media
from context_compactor.dialects.messages import (
    Media,
    MediaKind,
    Message,
    Opaque,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from context_compactor.errors import BadMessage
from context_compactor.json_values import json_text

MANY_IMAGES = 20
MAX_IMAGES = 100
MAX_SIDE = 8000
MAX_SIDE_OF_MANY = 2000
MAX_ENCODED_BYTES = 5 * 1024 * 1024
"""The provider weighs the base64 text, not the picture."""


def find_image_violations(messages: Sequence[Message]) -> Iterator[tuple[int, str]]:
    """The messages whose images the provider would reject, and why."""
    images = [(at, image) for at, message in enumerate(messages) for image in _images_in(message)]
    side = MAX_SIDE_OF_MANY if len(images) > MANY_IMAGES else MAX_SIDE
    for number, (at, image) in enumerate(images, start=1):
        if number > MAX_IMAGES:
            yield at, f"image {number} of at most {MAX_IMAGES}"
        if max(image.width, image.height) > side:
            many = f" among {len(images)} images" if side == MAX_SIDE_OF_MANY else ""
            yield at, f"an image of {image.width}x{image.height} pixels{many}; at most {side} per side"
        if (image.byte_size + 2) // 3 * 4 > MAX_ENCODED_BYTES:
            yield at, f"an image of {image.byte_size:,} bytes; at most {MAX_ENCODED_BYTES:,} in base64"


def _images_in(message: Message) -> Iterator[Media]:
    for part in message.parts:
        held = part.media if isinstance(part, ToolResult) else (part,)
        for media in held:
            if isinstance(media, Media) and media.kind == "image":
                yield media


USER_BLOCKS = ("text", "image", "document", "search_result")
"""Blocks that may stand in a result and beside one."""

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


class Anthropic:
    """Messages as `POST /v1/messages` takes them. A leading `system` message is tolerated."""

    name = "anthropic"
    strict_alternation = True

    def parse(self, items: Sequence[object]) -> list[Message]:
        """One message for each item."""
        return [_read(index, raw) for index, raw in enumerate(dicts_of(items))]

    def edit(self, message: Message, edits: Mapping[int, str | None]) -> Message | None:
        """The message with some blocks replaced by a text or removed."""
        for index, text in edits.items():
            refuse_thinking(message.parts[index], text)
        blocks = [_edited(block, edits.get(at, block)) for at, block in enumerate(_blocks(message.raw))]
        kept = [block for block in blocks if block is not None]
        if not kept:
            return None
        if isinstance(message.raw.get("content"), str):
            return _read(0, {**message.raw, "content": kept[0]["text"]})
        return _read(0, {**message.raw, "content": kept})

    def user_text(self, text: str) -> Message:
        """A new user message that says this."""
        return _read(0, {"role": "user", "content": text})

    def join(self, first: Message, second: Message) -> Message:
        """All blocks of both, in order; signed thinking stays as it is."""
        content = _blocks(first.raw) + _blocks(second.raw)
        return _read(0, {**second.raw, **first.raw, "content": content})

    def pick(self, message: Message, order: Sequence[int]) -> Message:
        """The message with only these blocks, in this order."""
        blocks = _blocks(message.raw)
        return _read(0, {**message.raw, "content": [blocks[at] for at in order]})

    def answer(self, message: Message, call: ToolCall, text: str) -> Message:  # noqa: ARG002
        """A user message with this text as the failed result of a call."""
        block = {"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": True}
        return _read(0, {"role": "user", "content": [block]})

    def as_user_message(self, result: ToolResult, frame: str) -> Message | None:
        """What a result held as blocks of a user message."""
        if not result.text and not result.media:
            return None
        if not result.media or any(block.get("type") not in USER_BLOCKS for block in result.content):
            return self.user_text(f"{frame}\n{result.text}")
        held = [block for block in result.content if block.get("text") != ""]
        return _read(0, {"role": "user", "content": [{"type": "text", "text": frame}, *held]})

    def rename(self, message: Message, ids: Mapping[int, str]) -> Message:
        """The message with other ids for some calls and results."""
        blocks = list(_blocks(message.raw))
        for at, new_id in ids.items():
            key = "id" if blocks[at]["type"] == "tool_use" else "tool_use_id"
            blocks[at] = {**blocks[at], key: new_id}
        return _read(0, {**message.raw, "content": blocks})


def _blocks(raw: Raw) -> list[Raw]:
    content = raw.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or ())


def _edited(block: Raw, change: Raw | str | None) -> Raw | None:
    if not isinstance(change, str):
        return change
    match block.get("type"):
        case "text":
            return {**block, "text": change}
        case "tool_result":
            return {**block, "content": _result_content(block.get("content"), change)}
        case "tool_use":
            return {**block, "input": _arguments(change)}
    return text_like(block, change)


def _result_content(content: object, text: str) -> str | list[Raw]:
    nested = content if isinstance(content, list) else ()
    marked = [block for block in nested if "cache_control" in block]
    return [text_like(marked[-1], text)] if marked else text


def _arguments(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": text}


def _read(index: int, raw: Raw) -> Message:
    role = role_at(index, raw.get("role"), ROLES)
    content = raw.get("content")
    if isinstance(content, str):
        return Message(role, (Text(content),) if content else (), raw)
    blocks = blocks_at(index, "content", content)
    parts = tuple([_part(index, at, block) for at, block in enumerate(blocks)])
    _check_sides(index, role, parts)
    return Message(role, parts, raw)


def _check_sides(index: int, role: Role, parts: Sequence[Part]) -> None:
    """Calls are the assistant's and results the user's; anything else cannot be meant."""
    for at, part in enumerate(parts):
        if isinstance(part, ToolCall) and role != "assistant":
            raise BadMessage(
                index, f"content[{at}].type", f"tool_use in a {role} message; only an assistant calls tools"
            )
        if isinstance(part, ToolResult) and role != "user":
            raise BadMessage(index, f"content[{at}].type", f"tool_result in a {role} message; results are the user's")


def _part(index: int, at: int, block: Raw) -> Part:
    kind = block.get("type")
    if kind == "redacted_thinking":
        return Thinking("", signed=True)
    reader = READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        return Opaque(str(kind or ""), json_text(block))
    return reader(index, f"content[{at}]", block)


def _text(index: int, field: str, block: Raw) -> Part:
    return Text(text_at(index, f"{field}.text", block.get("text")))


def _thinking(index: int, field: str, block: Raw) -> Part:
    return Thinking(text_at(index, f"{field}.thinking", block.get("thinking")), bool(block.get("signature")))


def _tool_use(index: int, field: str, block: Raw) -> Part:
    name = text_at(index, f"{field}.name", block.get("name"))
    return ToolCall(id_at(index, f"{field}.id", block.get("id")), name, json_text(block.get("input", {})))


def _tool_result(index: int, field: str, block: Raw) -> Part:
    call_id = id_at(index, f"{field}.tool_use_id", block.get("tool_use_id"))
    content = block.get("content")
    is_error = block.get("is_error") is True
    if content is None or isinstance(content, str):
        return ToolResult(call_id, content or "", is_error, content)
    nested = blocks_at(index, f"{field}.content", content)
    text, media = text_and_media([_part(index, at, inner) for at, inner in enumerate(nested)])
    return ToolResult(call_id, text, is_error, content, media)


def _image(index: int, field: str, block: Raw) -> Part:
    return _media(index, field, "image", block)


def _document(index: int, field: str, block: Raw) -> Part:
    return _media(index, field, "document", block)


def _media(index: int, field: str, kind: MediaKind, block: Raw) -> Part:
    source = object_at(index, f"{field}.source", block.get("source"))
    media_type = str(source.get("media_type") or "")
    title = str(block.get("title") or "")
    match source.get("type"):
        case "base64":
            return inline_media(kind, media_type, text_at(index, f"{field}.source.data", source.get("data")), title)
        case "url":
            return linked_media(kind, text_at(index, f"{field}.source.url", source.get("url")), media_type, title)
        case "text":
            return Media(kind, media_type or "text/plain", len(str(source.get("data") or "")), title=title)
    return Media(kind, media_type, title=title)


def _search_result(index: int, field: str, block: Raw) -> Part:
    nested = blocks_at(index, f"{field}.content", block.get("content") or [])
    words = [block.get("title"), block.get("source"), *(inner.get("text") for inner in nested)]
    return Opaque("search_result", "\n".join(word for word in words if isinstance(word, str)))


READERS: dict[str, Callable[[int, str, Raw], Part]] = {
    "text": _text,
    "thinking": _thinking,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
}
