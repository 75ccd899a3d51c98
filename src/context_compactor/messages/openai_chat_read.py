"""Reading an OpenAI chat message: its parts, and for each part the field it came from."""

from __future__ import annotations

from typing import Any

from context_compactor.errors import BadMessage
from context_compactor.messages.dialect import (
    Raw,
    blocks_at,
    id_at,
    kind_of_value,
    object_at,
    role_at,
    text_and_media,
    text_at,
)
from context_compactor.messages.jsontext import json_text
from context_compactor.messages.media import inline_media, linked_media
from context_compactor.messages.message import (
    Media,
    Message,
    Opaque,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
"""Where OpenAI-compatible providers and routers put a model's reasoning."""

WHOLE = -1
Slot = tuple[str, int]
"""A field of the raw message and the number of the entry in it, or WHOLE."""


def read_message(index: int, raw: Raw) -> Message:
    """The message at this index of the list."""
    parts, _ = read_parts(index, raw)
    return Message(ROLES[raw["role"]], tuple(parts), raw)


def read_parts(index: int, raw: Raw) -> tuple[list[Part], list[Slot]]:
    """The parts of a message and the slot of each."""
    role = role_at(index, raw.get("role"), ROLES)
    if role == "tool":
        return [_result(index, raw)], [("content", WHOLE)]
    parts: list[Part] = []
    slots: list[Slot] = []
    if role == "assistant":
        _read_thinking(raw, parts, slots)
    _read_content(index, raw, parts, slots)
    if role == "assistant":
        _read_calls(index, raw, parts, slots)
    return parts, slots


def _read_thinking(raw: Raw, parts: list[Part], slots: list[Slot]) -> None:
    text: Any = raw.get("reasoning_content") or raw.get("reasoning")
    sealed = [*_dicts(raw.get("reasoning_details")), *_dicts(raw.get("thinking_blocks"))]
    words: str = text if isinstance(text, str) else ""
    if words or sealed:
        signed = any(block.get("signature") or block.get("data") for block in sealed)
        parts.append(Thinking(words or "\n".join(map(_thought, sealed)), signed))
        slots.append(("thinking", WHOLE))


def _dicts(value: Any) -> list[Raw]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _thought(block: Raw) -> str:
    text = block.get("text") or block.get("thinking") or block.get("summary")
    return text if isinstance(text, str) else ""


def _read_content(index: int, raw: Raw, parts: list[Part], slots: list[Slot]) -> None:
    content = raw.get("content")
    if isinstance(content, str):
        if content:
            parts.append(Text(content))
            slots.append(("content", WHOLE))
    elif content is not None:
        for at, block in enumerate(blocks_at(index, "content", content)):
            parts.append(_part(index, f"content[{at}]", block))
            slots.append(("content", at))
    elif raw["role"] != "assistant":
        raise BadMessage(index, "content", "missing; only an assistant message may have none")


def _read_calls(index: int, raw: Raw, parts: list[Part], slots: list[Slot]) -> None:
    if raw.get("refusal"):
        parts.append(Text(text_at(index, "refusal", raw["refusal"])))
        slots.append(("refusal", WHOLE))
    if isinstance(raw.get("audio"), dict):
        parts.append(Opaque("audio", str(raw["audio"].get("transcript") or "")))
        slots.append(("audio", WHOLE))
    calls = raw.get("tool_calls")
    if calls:
        for at, call in enumerate(_call_list(index, calls)):
            parts.append(_call(index, f"tool_calls[{at}]", call))
            slots.append(("tool_calls", at))
    if raw.get("function_call"):
        parts.append(_legacy_call(index, object_at(index, "function_call", raw["function_call"])))
        slots.append(("function_call", WHOLE))


def _call_list(index: int, calls: object) -> list[Raw]:
    if not isinstance(calls, (list, tuple)):
        raise BadMessage(index, "tool_calls", f"expected a list, got {kind_of_value(calls)}")
    return blocks_at(index, "tool_calls", calls)


def _call(index: int, field: str, call: Raw) -> ToolCall:
    custom = call.get("type") == "custom"
    inner_name, key = ("custom", "input") if custom else ("function", "arguments")
    inner = object_at(index, f"{field}.{inner_name}", call.get(inner_name))
    name = text_at(index, f"{field}.{inner_name}.name", inner.get("name"))
    return ToolCall(id_at(index, f"{field}.id", call.get("id")), name, _arguments(inner.get(key)))


def _arguments(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def _legacy_call(index: int, call: Raw) -> ToolCall:
    name = text_at(index, "function_call.name", call.get("name"))
    return ToolCall(f"function:{name}", name, _arguments(call.get("arguments")))


def _result(index: int, raw: Raw) -> ToolResult:
    if raw["role"] == "function":
        call_id = f"function:{id_at(index, 'name', raw.get('name'))}"
    else:
        call_id = id_at(index, "tool_call_id", raw.get("tool_call_id"))
    content = raw.get("content")
    if content is None or isinstance(content, str):
        return ToolResult(call_id, content or "", content=content)
    blocks = blocks_at(index, "content", content)
    text, media = text_and_media([_part(index, f"content[{at}]", block) for at, block in enumerate(blocks)])
    return ToolResult(call_id, text, content=content, media=media)


def _part(index: int, field: str, block: Raw) -> Part:
    match block.get("type"):
        case "text":
            return Text(text_at(index, f"{field}.text", block.get("text")))
        case "refusal":
            return Text(text_at(index, f"{field}.refusal", block.get("refusal")))
        case "image_url":
            return _image(index, field, block.get("image_url"))
        case "input_audio":
            return _audio(object_at(index, f"{field}.input_audio", block.get("input_audio")))
        case "file":
            return _file(object_at(index, f"{field}.file", block.get("file")))
    return Opaque(str(block.get("type") or ""), json_text(block))


def _image(index: int, field: str, image: object) -> Media:
    url = image.get("url") if isinstance(image, dict) else image
    return linked_media("image", text_at(index, f"{field}.image_url.url", url))


def _audio(audio: Raw) -> Media:
    return inline_media("audio", f"audio/{audio.get('format') or 'wav'}", str(audio.get("data") or ""))


def _file(file: Raw) -> Media:
    encoded = str(file.get("file_data") or "")
    title = str(file.get("filename") or file.get("file_id") or "")
    if encoded.startswith("data:"):
        return linked_media("file", encoded, title=title)
    return inline_media("file", "", encoded, title)
