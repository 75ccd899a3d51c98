"""The Anthropic Messages format: how it is read and written, and what the provider rejects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from context_compactor.dialects.dialect import (
    Dialect,
    Overhead,
    Raw,
    ToolDeclaration,
    blocks_at,
    blocks_in,
    dicts_of,
    id_at,
    object_at,
    refuse_thinking,
    role_at,
    text_and_media,
    text_at,
    text_like,
)
from context_compactor.dialects.legality import (
    Pairing,
    PartPosition,
    Rule,
    Violation,
    assistant_first,
    assistants_in_a_row,
    blank_messages,
    first_speaker,
    late_results,
)
from context_compactor.dialects.media import inline_media, linked_media
from context_compactor.dialects.messages import (
    PROVIDER_SUMMARY,
    SERVER_TOOL,
    SYSTEM_MESSAGE,
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
from context_compactor.dialects.reasoning import (
    CACHE_MARK,
    binds_reasoning,
    claude_version,
    drop_reasoning,
    without_cache_marks,
)
from context_compactor.dialects.repair import (
    IndexedMessage,
    Repair,
    RepairRule,
    drop_blanks,
    join_assistants,
    joined_step,
    rename_repeated,
    start_with_user,
    without_indexes,
)
from context_compactor.dialects.strict_order import place_results, results_behind_blocks
from context_compactor.errors import BadMessage
from context_compactor.json_values import json_text

_FIRST_WITH_SYSTEM = (4, 8)
MAX_CACHE_MARKS = 4
UNMARKED_BLOCKS = ("thinking", "redacted_thinking")
MANY_IMAGES = 20
MAX_IMAGES = 100
MAX_SIDE = 8000
MAX_SIDE_OF_MANY = 2000
MAX_ENCODED_BYTES = 5 * 1024 * 1024
"""The provider weighs the base64 text, not the picture."""


def _bad_images(messages: Sequence[Message], _pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    """Images that are too many, too large or too heavy."""
    images = [(at, image) for at, message in enumerate(messages) for image in _images_in(message)]
    side = MAX_SIDE_OF_MANY if len(images) > MANY_IMAGES else MAX_SIDE
    for number, (at, image) in enumerate(images, start=1):
        if number > MAX_IMAGES:
            yield Violation(at, "media", f"image {number} of at most {MAX_IMAGES}")
        if max(image.width, image.height) > side:
            many = f" among {len(images)} images" if side == MAX_SIDE_OF_MANY else ""
            what = f"an image of {image.width}x{image.height} pixels{many}; at most {side} per side"
            yield Violation(at, "media", what)
        if (image.byte_size + 2) // 3 * 4 > MAX_ENCODED_BYTES:
            what = f"an image of {image.byte_size:,} bytes; at most {MAX_ENCODED_BYTES:,} in base64"
            yield Violation(at, "media", what)


def _images_in(message: Message) -> Iterator[Media]:
    for part in message.parts:
        held = part.media if isinstance(part, ToolResult) else (part,)
        for media in held:
            if isinstance(media, Media) and media.kind == "image":
                yield media


def _server_tools(messages: Sequence[Message], _pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    """Calls of the provider's own tools without their result, and the other way round."""
    for at, _ in _lone_server_blocks(messages):
        yield Violation(at, "server-tool", "a server tool's call without its result, or the other way round")


def _lone_server_blocks(messages: Sequence[Message]) -> Iterator[PartPosition]:
    """In the last message a call may still be without: the provider goes on with it when asked again."""
    open_calls: dict[str, PartPosition] = {}
    for place, block in _server_blocks(messages):
        if "tool_use_id" in block:
            if open_calls.pop(str(block["tool_use_id"]), None) is None:
                yield place
            continue
        if str(block.get("id")) in open_calls:
            yield open_calls[str(block.get("id"))]
        open_calls[str(block.get("id"))] = place
    yield from (place for place in open_calls.values() if place.message != len(messages) - 1)


def _server_blocks(messages: Sequence[Message]) -> Iterator[tuple[PartPosition, Raw]]:
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, Opaque) and part.type.endswith(("_tool_use", "_tool_result")):
                yield PartPosition(at, number), message.raw["content"][number]


def _misplaced_systems(messages: Sequence[Message], _pairing: object, dialect: Dialect) -> Iterator[Violation]:
    """System messages where the provider takes none. One may lead the list (clients move it into the `system` field),
    or follow a user message and be the last or followed by the assistant."""
    takes_system = not isinstance(dialect, Anthropic) or dialect.takes_system
    for at in range(first_speaker(messages), len(messages)):
        if messages[at].role == "system":
            next_role = messages[at + 1].role if at + 1 < len(messages) else "assistant"
            if not takes_system or messages[at - 1].role != "user" or next_role != "assistant":
                yield Violation(at, "system", "a system message where the provider takes none")


def _marks_in(value: Any) -> int:
    """How many cache marks a message, or something in one, has."""
    if isinstance(value, dict):
        return (value.get(CACHE_MARK) is not None) + sum(map(_marks_in, value.values()))
    return sum(map(_marks_in, value)) if isinstance(value, list) else 0


def _too_many_marks(messages: Sequence[Message], _pairing: object, _dialect: Dialect) -> Iterator[Violation]:
    """More cache marks than a request may have."""
    marked = [(at, count) for at, message in enumerate(messages) if (count := _marks_in(message.raw))]
    total = sum(count for _, count in marked)
    if total > MAX_CACHE_MARKS:
        yield Violation(marked[-1][0], "cache-marks", f"{total} cache marks; at most {MAX_CACHE_MARKS} in a request")


def _spare_marks(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Keep the marks of the two newest marked messages, where the provider reads and writes next.

    The other two that a request may have are left to the system prompt and the tools.
    """
    if not any(_too_many_marks(without_indexes(steps), None, dialect)):
        return steps
    marked = [at for at, (_, message) in enumerate(steps) if _marks_in(message.raw)]
    kept = set(marked[-2:])
    log.append(Repair(steps[marked[0]][0], f"removed cache marks: a request may have {MAX_CACHE_MARKS}"))
    return [
        (index, _with_mark(message) if at in kept else _unmarked(message) if at in marked else message)
        for at, (index, message) in enumerate(steps)
    ]


def _unmarked(message: Message) -> Message:
    return _read(0, without_cache_marks(message.raw))


def _with_mark(message: Message) -> Message:
    """The message with one cache mark, at its last block that may have one."""
    blocks = [without_cache_marks(block) for block in _blocks(message.raw)]
    places = [
        at for at, block in enumerate(blocks) if block.get("type") not in UNMARKED_BLOCKS and block.get("text") != ""
    ]
    if places:
        blocks[places[-1]] = {**blocks[places[-1]], CACHE_MARK: _newest_mark(message.raw)}
    return _read(0, {**message.raw, "content": blocks})


def _newest_mark(raw: Raw) -> Raw:
    """The mark that a message has already, with its lifetime, or a plain one."""
    held: list[Raw] = [block[CACHE_MARK] for block in blocks_in(raw) if block.get(CACHE_MARK) is not None]
    return held[-1] if held else {"type": "ephemeral"}


def _late_summaries(messages: Sequence[Message], _pairing: object, _dialect: Dialect) -> Iterator[Violation]:
    """Summaries by the provider that are not the first block of their message."""
    for at, message in enumerate(messages):
        if any(map(_is_summary, message.parts[1:])):
            yield Violation(at, "compaction", "a compaction block behind other blocks of its message")


def _is_summary(part: Part) -> bool:
    return isinstance(part, Opaque) and part.type == PROVIDER_SUMMARY


def _lead_with_summary(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Put a summary by the provider before the other blocks of its message; of several the newest stays."""
    late = {problem.index for problem in _late_summaries(without_indexes(steps), None, dialect)}
    repaired: list[IndexedMessage] = []
    for at, (index, message) in enumerate(steps):
        kept = message
        if at in late:
            log.append(Repair(index, "put the compaction block first in its message"))
            summaries = [number for number, part in enumerate(message.parts) if _is_summary(part)]
            others = [number for number, part in enumerate(message.parts) if not _is_summary(part)]
            kept = dialect.pick(message, [summaries[-1], *others])
        repaired.append((index, kept))
    return repaired


def _server_blocks_to_text(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Turn a server tool's call or result that lost its other half into words."""
    edits: dict[int, dict[int, str | None]] = {}
    for at, number in _lone_server_blocks(without_indexes(steps)):
        index, message = steps[at]
        part = message.parts[number]
        edits.setdefault(at, {})[number] = f"{SERVER_TOOL}\n{part.text if isinstance(part, Opaque) else ''}"
        log.append(Repair(index, "turned a server tool's block without its other half into words"))
    return [
        (index, dialect.edit(message, edits[at]) or message if at in edits else message)
        for at, (index, message) in enumerate(steps)
    ]


def _is_blank_text(block: Raw) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str) and not block["text"].strip()


def _blocks_in_result(block: Raw) -> list[Raw]:
    return blocks_in(block) if block.get("type") == "tool_result" else []


def _has_blank_result(message: Message) -> bool:
    return any(map(_is_blank_text, (inner for block in blocks_in(message.raw) for inner in _blocks_in_result(block))))


def _drop_blanks_in_results(steps: list[IndexedMessage], _dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Remove texts of nothing but white space from results."""
    kept: list[IndexedMessage] = []
    for index, message in steps:
        if not _has_blank_result(message):
            kept.append((index, message))
            continue
        content = [
            {**block, "content": [inner for inner in _blocks_in_result(block) if not _is_blank_text(inner)]}
            if any(map(_is_blank_text, _blocks_in_result(block)))
            else block
            for block in message.raw["content"]
        ]
        kept.append((index, _read(0, {**message.raw, "content": content})))
        log.append(Repair(index, "removed an empty block"))
    return kept


def _place_systems(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Turn system messages where none may be into words of the user, joined to the user's own beside them."""
    misplaced = {problem.index for problem in _misplaced_systems(without_indexes(steps), None, dialect)}
    groups: list[list[IndexedMessage]] = []
    for at, (index, message) in enumerate(steps):
        spoken = dialect.user_text(f"{SYSTEM_MESSAGE}\n{message.text}") if at in misplaced else message
        if at in misplaced:
            log.append(Repair(index, "turned a system message into a user message: the provider takes none here"))
        beside = at in misplaced or at - 1 in misplaced
        if beside and groups and spoken.role == groups[-1][-1][1].role == "user":
            groups[-1].append((index, spoken))
        else:
            groups.append([(index, spoken)])
    return [joined_step(group, dialect) for group in groups]


USER_BLOCKS = ("text", "image", "document", "search_result")
"""Blocks that may stand in a result and beside one."""

# Blocks that no other dialect has; those that routers and frameworks put into chat messages too; roles of chat.
OWN_BLOCKS = ("tool_use", "tool_result", "server_tool_use", PROVIDER_SUMMARY)
TYPICAL_BLOCKS = ("thinking", "redacted_thinking", "image", "document")
CHAT_ROLES = ("system", "developer", "tool", "function")

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


class Anthropic:
    """Messages as `POST /v1/messages` takes them. A leading `system` message is tolerated."""

    name = "anthropic"
    strict_alternation = True
    reply_is_one_message = True
    has_unique_call_ids = True
    can_clear_thinking = True
    summaries_are_readable = True
    compaction_note = ""
    # fitted to reported usage
    overhead = Overhead(request=8, message=4, name=0, call=40, result=30, tool=12, tools=346, images="anthropic")
    request_bytes = 32 * 1024 * 1024
    media_blocks: tuple[str, ...] = ("image", "document")
    native_models: tuple[str, ...] = ("anthropic/",)
    rules: tuple[Rule, ...] = (
        late_results,
        results_behind_blocks,
        blank_messages,
        _server_tools,
        _misplaced_systems,
        assistants_in_a_row,
        assistant_first,
        _bad_images,
        _too_many_marks,
        _late_summaries,
    )
    # Moving results may empty a message, and an emptied one may bring two assistants together: so some come twice.
    repairs: tuple[RepairRule, ...] = (
        _drop_blanks_in_results,
        drop_blanks,
        join_assistants,
        _server_blocks_to_text,
        rename_repeated,
        place_results,
        drop_blanks,
        _place_systems,
        join_assistants,
        _lead_with_summary,
        start_with_user,
        _spare_marks,
    )

    def __init__(self, binds_reasoning: bool = True, takes_system: bool = True, layout: str = "tail") -> None:
        self.binds_reasoning = binds_reasoning
        self.takes_system = takes_system
        self.recommended_layout = layout

    def for_model(self, model: str | None) -> Dialect:
        """Claude since 5.1 binds reasoning to its conversation; before 4.8 it took no system message in the middle."""
        version = claude_version(model)
        if version is None:
            return self
        binds = binds_reasoning(model)
        return Anthropic(binds, takes_system=version >= _FIRST_WITH_SYSTEM, layout="record" if binds else "tail")

    def recognizes(self, item: Raw) -> bool:
        """By blocks that only Anthropic has, and by a reply as it was received: with its type and why it stopped."""
        if any(block.get("type") in OWN_BLOCKS for block in blocks_in(item)):
            return True
        return item.get("type") == "message" and "role" in item and "stop_reason" in item

    def recognizes_plain(self, items: Sequence[Raw]) -> bool:
        """By thinking and media, by a typed message with text blocks; by a cache mark unless there is a system message.

        Only chat has developer messages.
        """
        roles = {str(item.get("role")) for item in items}
        if "developer" in roles:
            return False
        blocks = [(item, block) for item in items for block in blocks_in(item)]
        if any(block.get("type") in TYPICAL_BLOCKS or item.get("type") == "message" for item, block in blocks):
            return True
        return "system" not in roles and any("cache_control" in block for _, block in blocks)

    def recognizes_request(self, body: Mapping[str, Any]) -> bool:
        """By a system prompt beside the messages, which other providers take as a message."""
        messages = [item for item in body.get("messages") or () if isinstance(item, dict)]
        is_chat = any(item.get("role") in CHAT_ROLES or item.get("tool_calls") for item in messages)
        blocks = [
            *blocks_in({"content": body.get("system")}),
            *(block for item in messages for block in blocks_in(item)),
        ]
        return body.get("system") is not None and not is_chat and all("type" in block for block in blocks)

    def is_blank(self, message: Message, is_last: bool) -> bool:
        """Whether it has nothing but blank texts; an unfinished reply may be."""
        if is_last and message.role == "assistant":
            return False
        return all(isinstance(part, Text) and (not part.text or part.text.isspace()) for part in message.parts)

    def has_blank_block(self, message: Message) -> bool:
        """Whether one of its texts, or one in a result, is empty or nothing but white space."""
        return any(isinstance(part, Text) and not part.text.strip() for part in message.parts) or _has_blank_result(
            message
        )

    def parse(self, items: Sequence[object]) -> list[Message]:
        return [_read(index, raw) for index, raw in enumerate(dicts_of(items))]

    def edit(self, message: Message, edits: Mapping[int, str | None]) -> Message | None:
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
        return _read(0, {"role": "user", "content": text})

    def declare_tools(self, tools: Sequence[ToolDeclaration]) -> list[Raw]:
        return [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools]

    def place_cache_marks(self, messages: Sequence[Message], stable: int) -> list[Message]:
        marked = [at for at, message in enumerate(messages) if _marks_in(message.raw)]
        if not marked:
            return [*messages]
        newest = max(marked[-1], stable)
        return [
            _with_mark(message) if at in (stable, newest) else _unmarked(message) if at in marked else message
            for at, message in enumerate(messages)
        ]

    def can_join(self, first: Message, second: Message) -> bool:
        return True

    def join(self, first: Message, second: Message) -> Message:
        """All blocks of both, in order; signed thinking stays as it is."""
        content = _blocks(first.raw) + _blocks(second.raw)
        return _read(0, {**second.raw, **first.raw, "content": content})

    def pick(self, message: Message, order: Sequence[int]) -> Message:
        blocks = _blocks(message.raw)
        return _read(0, {**message.raw, "content": [blocks[at] for at in order]})

    def answer(self, message: Message, call: ToolCall, text: str) -> Message:
        """A user message with this text as the failed result of a call."""
        block = {"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": True}
        return _read(0, {"role": "user", "content": [block]})

    def as_user_message(self, result: ToolResult, frame: str) -> Message | None:
        """What a result held as blocks of a user message."""
        if not result.text and not result.media:
            return None
        if not result.media or any(block.get("type") not in USER_BLOCKS for block in result.content):
            return self.user_text(f"{frame}\n{result.text}")
        held = [block for block in result.content if not _is_blank_text(block)]
        return _read(0, {"role": "user", "content": [{"type": "text", "text": frame}, *held]})

    def rename(self, message: Message, ids: Mapping[int, str]) -> Message:
        blocks = list(_blocks(message.raw))
        for at, new_id in ids.items():
            key = "id" if blocks[at]["type"] == "tool_use" else "tool_use_id"
            blocks[at] = {**blocks[at], key: new_id}
        return _read(0, {**message.raw, "content": blocks})

    def detach(self, before: Sequence[Message], after: Sequence[Message]) -> list[Message | None]:
        """Without the reasoning behind the first change, which is bound to what stood before it."""
        return drop_reasoning(before, after, self) if self.binds_reasoning else [*after]


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
    signature = block.get("signature")
    text = "" if signature and block.get("thinking") is None else block.get("thinking")
    return Thinking(text_at(index, f"{field}.thinking", text), bool(signature))


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


def _media(kind: MediaKind, index: int, field: str, block: Raw) -> Part:
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


def _provider_summary(_index: int, _field: str, block: Raw) -> Part:
    content = block.get("content")
    return Opaque(PROVIDER_SUMMARY, content if isinstance(content, str) else "")


READERS: dict[str, Callable[[int, str, Raw], Part]] = {
    "text": _text,
    "thinking": _thinking,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "image": partial(_media, "image"),
    "document": partial(_media, "document"),
    "search_result": _search_result,
    PROVIDER_SUMMARY: _provider_summary,
}
