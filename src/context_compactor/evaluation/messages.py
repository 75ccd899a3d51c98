"""How the evaluation reads raw messages and counts their tokens; nothing is shared with the engine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Struct

RawMessage = dict[str, Any]
FlatPartKind = Literal["system", "user", "assistant", "thinking", "call", "result"]

_OLD_TEXT = ("old_string", "old_str", "oldText", "old_text")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_LINE_NUMBER = re.compile(r"^[ \t]*\d{1,6}(?:→|\t|\|| {2})", re.MULTILINE)


class FlatPart(Struct, frozen=True):
    """One readable part of a message. `values` are a call's argument strings, `replaced` the old texts of its edits."""

    kind: FlatPartKind
    text: str
    tool: str = ""
    call_id: str = ""
    failed: bool = False
    values: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


def read_message(message: RawMessage) -> list[FlatPart]:
    """The pieces of one raw message of the chat, messages or responses form, in reading order."""
    kind = message.get("type")
    if kind in ("function_call", "custom_tool_call", "local_shell_call"):
        return [_call(message)]
    if kind in ("function_call_output", "custom_tool_call_output"):
        return [FlatPart("result", text_of(message.get("output")), call_id=str(message.get("call_id", "")))]
    if kind == "reasoning":
        return [FlatPart("thinking", text_of(message.get("summary")))]
    return _read_chat(message)


def read_messages(messages: Iterable[RawMessage]) -> list[FlatPart]:
    """All pieces of a list of messages; results know the tool that was called."""
    tools: dict[str, str] = {}
    pieces: list[FlatPart] = []
    for piece in (piece for message in messages for piece in read_message(message)):
        if piece.kind == "call":
            tools[piece.call_id] = piece.tool
        named = piece.kind == "result" and not piece.tool
        pieces.append(msgspec.structs.replace(piece, tool=tools.get(piece.call_id, "")) if named else piece)
    return pieces


def origin(piece: FlatPart) -> str:
    """Who wrote a piece: user, assistant, thinking, `call Edit`, `result Bash`."""
    return f"{piece.kind} {piece.tool}" if piece.tool else piece.kind


def flatten(messages: Iterable[RawMessage]) -> list[tuple[str, str]]:
    """What a reader of the messages sees, as (kind, text)."""
    return [(piece.kind, piece.text) for message in messages for piece in read_message(message)]


def flat_text(messages: Iterable[RawMessage]) -> str:
    """The whole text of the messages, pieces parted by a newline."""
    return "\n".join(text for _, text in flatten(messages))


def without_line_numbers(text: str) -> str:
    """The text without the line numbers that file readers put in front of each line."""
    return _LINE_NUMBER.sub("", text)


def is_instruction(message: RawMessage) -> bool:
    """Whether a message is the system's or the developer's."""
    return message.get("role") in ("system", "developer")


def text_of(content: object) -> str:
    """The text of a content value: a string, or blocks with text, joined by newlines."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(text_of, content)))
    if isinstance(content, dict):
        return _text_of_block(content)
    return str(content)


def _text_of_block(block: dict[str, Any]) -> str:
    for key in ("text", "refusal", "content", "output"):
        if key in block:
            return text_of(block[key])
    return ""


def _read_chat(message: RawMessage) -> list[FlatPart]:
    role = str(message.get("role", ""))
    content = message.get("content")
    if role == "tool":
        call_id = str(message.get("tool_call_id", ""))
        return [FlatPart("result", text_of(content), tool=str(message.get("name") or ""), call_id=call_id)]
    kind: FlatPartKind = "assistant" if role == "assistant" else "user" if role == "user" else "system"
    pieces = list(_read_content(kind, content))
    if message.get("reasoning_content"):
        pieces.insert(0, FlatPart("thinking", text_of(message["reasoning_content"])))
    pieces.extend(_call(call) for call in message.get("tool_calls") or ())
    return pieces


def _read_content(kind: FlatPartKind, content: object) -> Iterator[FlatPart]:
    if isinstance(content, list):
        for block in content:
            yield from _read_block(kind, block)
    elif content:
        yield FlatPart(kind, text_of(content))


def _read_block(kind: FlatPartKind, block: object) -> Iterator[FlatPart]:
    if not isinstance(block, dict):
        yield FlatPart(kind, text_of(block))
    elif block.get("type") == "tool_use":
        yield _call(block)
    elif block.get("type") == "tool_result":
        call_id, failed = str(block.get("tool_use_id", "")), bool(block.get("is_error"))
        yield FlatPart("result", text_of(block.get("content")), call_id=call_id, failed=failed)
    elif block.get("type") == "thinking":
        yield FlatPart("thinking", str(block.get("thinking", "")))
    else:
        text = text_of(block)
        if text:
            yield FlatPart(kind, text)


def _call(call: dict[str, Any]) -> FlatPart:
    function = call.get("function") or call
    given = next((function[key] for key in ("arguments", "input", "action") if key in function), "")
    name = str(function.get("name") or function.get("type") or "")
    arguments = _decoded(given)
    values = tuple(_leaves(arguments))
    short = [value for value in values if "\n" not in value]
    long = [value for value in values if "\n" in value]
    text = "\n".join([" ".join([name, *short]), *long])
    return FlatPart(
        "call",
        text,
        tool=name,
        call_id=str(call.get("call_id") or call.get("id") or ""),
        values=values,
        replaced=tuple(_old_texts(arguments)),
    )


def _decoded(given: object) -> object:
    if not isinstance(given, str):
        return given
    try:
        return msgspec.json.decode(given)
    except msgspec.DecodeError:
        return given


def _old_texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (value[key] for key in _OLD_TEXT if isinstance(value.get(key), str))
        yield from _old_texts(value.get("edits"))
    elif isinstance(value, list):
        for item in value:
            yield from _old_texts(item)


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str):
        yield value
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def arguments_text(call: dict[str, Any]) -> str:
    """A call's arguments as the JSON or text a provider counts."""
    function = call.get("function") or call
    given = next((function[key] for key in ("arguments", "input", "action") if key in function), "")
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


def billed_text(message: RawMessage) -> str:
    """What is counted of a message: its texts, and names and JSON arguments of its calls."""
    parts = [piece.text for piece in read_message(message) if piece.kind != "call"]
    for call in _calls_of(message):
        function = call.get("function") or call
        parts.append(str(function.get("name") or "") + " " + arguments_text(call))
    return "\n".join(parts)


def _calls_of(message: RawMessage) -> list[dict[str, Any]]:
    if message.get("type") in ("function_call", "custom_tool_call", "local_shell_call"):
        return [message]
    content = message.get("content")
    blocks: Sequence[object] = content if isinstance(content, list) else ()
    used = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use"]
    return used + list(message.get("tool_calls") or ())


def printable(text: str) -> str:
    """The text with lone surrogates replaced, so that a tokenizer takes it."""
    return _LONE_SURROGATE.sub("�", text) if not text.isascii() else text


PER_MESSAGE = 4


@cache
def _tokenizer() -> Any:
    from splintr import Tokenizer

    return Tokenizer.from_pretrained("o200k_base")


def count_text(text: str) -> int:
    """The o200k tokens of a text."""
    return len(_tokenizer().encode(printable(text)))


def count_message(message: RawMessage) -> int:
    """The o200k tokens of a message's text, names and JSON arguments, and four more."""
    return count_text(billed_text(message)) + PER_MESSAGE


def count_messages(messages: Iterable[RawMessage]) -> int:
    """The tokens of a context."""
    return sum(map(count_message, messages))
