"""The format of Amazon Bedrock's Converse API: how it is read and written, and what the provider rejects.

A cache point is read as a mark of the block before it. Images and documents may hold `bytes`, as boto3 takes them, or
base64 text, as they stand in JSON; they come out as they came in.
"""

from __future__ import annotations

import json
import re
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
    kind_of_value,
    object_at,
    refuse_thinking,
    role_at,
    text_and_media,
    text_at,
)
from context_compactor.dialects.legality import (
    Pairing,
    Rule,
    Violation,
    assistant_first,
    assistants_in_a_row,
    blank_messages,
    late_results,
)
from context_compactor.dialects.media import inline_media, linked_media, unencoded_media
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
from context_compactor.dialects.reasoning import (
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
    rename_repeated,
    start_with_user,
)
from context_compactor.dialects.strict_order import (
    join_users,
    late_systems,
    place_results,
    results_behind_blocks,
    systems_to_words,
    users_in_a_row,
)
from context_compactor.errors import BadMessage
from context_compactor.json_values import json_text

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
MEDIA: dict[str, MediaKind] = {"image": "image", "document": "document", "audio": "audio", "video": "file"}
BLOCKS = (
    "text",
    "toolUse",
    "toolResult",
    "reasoningContent",
    *MEDIA,
    "cachePoint",
    "guardContent",
    "searchResult",
    "citationsContent",
)
"""The one key of a block that says what it is."""

# Fields of a request that no other provider has.
REQUEST_FIELDS = ("modelId", "toolConfig", "inferenceConfig", "additionalModelRequestFields")
# Models of others than Anthropic, whose reasoning is not bound to what was said before it.
OTHER_MODELS = re.compile(
    r"nova|titan|llama|mistral|mixtral|deepseek|qwen|gpt-oss|cohere|command-r|jamba|kimi|minimax|glm|gemma"
)

MAX_CACHE_POINTS = 4
MAX_IMAGES, MAX_IMAGE_BYTES, MAX_SIDE = 20, 3_932_160, 8000
MAX_DOCUMENTS, MAX_DOCUMENT_BYTES = 5, 4_718_592
DOCUMENT_WORDS = "[document]"


def _blocks(raw: Raw) -> list[list[Raw]]:
    """The blocks of a message, each with the cache points that follow it; those before the first belong to it."""
    held: list[list[Raw]] = []
    leading: list[Raw] = []
    for block in raw.get("content") or ():
        if "cachePoint" not in block:
            held.append([*leading, block])
            leading = []
        elif held:
            held[-1].append(block)
        else:
            leading.append(block)
    return held


def _read(index: int, raw: Raw) -> Message:
    role = role_at(index, raw.get("role"), ROLES)
    content = raw.get("content")
    if not isinstance(content, (list, tuple)):
        what = f'expected a list of blocks such as [{{"text": "…"}}], got {kind_of_value(content)}'
        raise BadMessage(index, "content", what)
    blocks = blocks_at(index, "content", content)
    places = [at for at, block in enumerate(blocks) if "cachePoint" not in block]
    parts = tuple([_part(index, f"content[{at}]", blocks[at]) for at in places])
    for at, part in zip(places, parts, strict=True):
        if isinstance(part, ToolCall) and role != "assistant":
            raise BadMessage(
                index, f"content[{at}].toolUse", f"a call in a {role} message; only an assistant calls tools"
            )
        if isinstance(part, ToolResult) and role != "user":
            raise BadMessage(
                index, f"content[{at}].toolResult", f"a result in a {role} message; results are the user's"
            )
    return Message(role, parts, raw)


def _part(index: int, field: str, block: Raw) -> Part:
    kind = next((name for name in BLOCKS if name in block), "")
    if kind == "text":
        return Text(text_at(index, f"{field}.text", block["text"]))
    reader = READERS.get(kind)
    if reader is None:
        return Opaque(next(map(str, block), ""), json_text(block))
    return reader(index, f"{field}.{kind}", object_at(index, f"{field}.{kind}", block[kind]))


def _tool_use(index: int, field: str, call: Raw) -> ToolCall:
    name = text_at(index, f"{field}.name", call.get("name"))
    return ToolCall(id_at(index, f"{field}.toolUseId", call.get("toolUseId")), name, json_text(call.get("input", {})))


def _tool_result(index: int, field: str, result: Raw) -> ToolResult:
    call_id = id_at(index, f"{field}.toolUseId", result.get("toolUseId"))
    blocks = blocks_at(index, f"{field}.content", result.get("content") or [])
    parts: list[Part] = []
    for at, block in enumerate(blocks):
        is_json = "json" in block
        parts.append(Text(json_text(block["json"])) if is_json else _part(index, f"{field}.content[{at}]", block))
    text, media = text_and_media(parts)
    is_plain = len(blocks) == 1 and blocks[0].keys() == {"text"}
    return ToolResult(call_id, text, result.get("status") == "error", text if is_plain else blocks, media)


def _reasoning(index: int, field: str, held: Raw) -> Thinking:
    spoken = held.get("reasoningText")
    if spoken is None:
        return Thinking("", signed=True)
    thought = object_at(index, f"{field}.reasoningText", spoken)
    return Thinking(text_at(index, f"{field}.reasoningText.text", thought.get("text")), bool(thought.get("signature")))


def _media(kind: MediaKind, index: int, field: str, held: Raw) -> Media:
    source = object_at(index, f"{field}.source", held.get("source"))
    title, form = str(held.get("name") or ""), str(held.get("format") or "")
    media_type = f"image/{form}" if kind == "image" and form else form
    content = source.get("bytes")
    if isinstance(content, (bytes, bytearray, memoryview)):
        return unencoded_media(kind, media_type, bytes(content), title)
    if isinstance(content, str):
        return inline_media(kind, media_type, content, title)
    words = source.get("text")
    if isinstance(words, str):
        return Media(kind, media_type, len(words.encode(errors="replace")), title=title)
    return linked_media(kind, "", media_type, title)


def _guarded(index: int, field: str, held: Raw) -> Part:
    if held.get("text") is not None:
        words = object_at(index, f"{field}.text", held["text"])
        return Text(text_at(index, f"{field}.text.text", words.get("text")))
    if held.get("image") is not None:
        return _media("image", index, f"{field}.image", object_at(index, f"{field}.image", held["image"]))
    return Opaque("guardContent", json_text(held))


def _search_result(index: int, field: str, held: Raw) -> Part:
    words = [held.get("title"), held.get("source"), *_texts_in(index, field, held)]
    return Opaque("searchResult", "\n".join(word for word in words if isinstance(word, str)))


def _cited(index: int, field: str, held: Raw) -> Part:
    return Text("".join(_texts_in(index, field, held)))


def _texts_in(index: int, field: str, held: Raw) -> list[str]:
    nested = blocks_at(index, f"{field}.content", held.get("content") or [])
    return [block["text"] for block in nested if isinstance(block.get("text"), str)]


READERS: dict[str, Callable[[int, str, Raw], Part]] = {
    "toolUse": _tool_use,
    "toolResult": _tool_result,
    "reasoningContent": _reasoning,
    "guardContent": _guarded,
    "searchResult": _search_result,
    "citationsContent": _cited,
    **{name: partial(_media, kind) for name, kind in MEDIA.items()},
}


def _cache_points(messages: Sequence[Message], _pairing: object, _dialect: Dialect) -> Iterator[Violation]:
    """Cache points that are more than the provider takes: all but the last ones."""
    marked = [at for at, message in enumerate(messages) for block in blocks_in(message.raw) if "cachePoint" in block]
    for at in marked[:-MAX_CACHE_POINTS]:
        yield Violation(at, "cache-marks", f"one of {len(marked)} cache points; at most {MAX_CACHE_POINTS}")


def _drop_cache_points(steps: list[IndexedMessage], _dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Leave only the last cache points."""
    marked = sum("cachePoint" in block for _, message in steps for block in blocks_in(message.raw))
    kept: list[IndexedMessage] = []
    for index, message in steps:
        content: list[Raw] = []
        for block in message.raw["content"]:
            if "cachePoint" in block and marked > MAX_CACHE_POINTS:
                marked -= 1
                log.append(Repair(index, f"removed a cache point: at most {MAX_CACHE_POINTS} are taken"))
            else:
                content.append(block)
        is_same = len(content) == len(message.raw["content"])
        kept.append((index, message if is_same else _read(0, {**message.raw, "content": content})))
    return kept


def _lone_documents(messages: Sequence[Message], _pairing: object, _dialect: Dialect) -> Iterator[Violation]:
    """Messages with a document and no text beside it."""
    for at, message in enumerate(messages):
        if _lacks_words(message):
            yield Violation(at, "document", "a document without a text in the same message")


def _lacks_words(message: Message) -> bool:
    blocks = blocks_in(message.raw)
    return any("document" in block for block in blocks) and not any("text" in block for block in blocks)


def _name_documents(steps: list[IndexedMessage], _dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Put a text behind documents that have none beside them."""
    kept: list[IndexedMessage] = []
    for index, message in steps:
        is_lone = _lacks_words(message)
        content = [*message.raw["content"], {"text": DOCUMENT_WORDS}]
        kept.append((index, _read(0, {**message.raw, "content": content}) if is_lone else message))
        log += [Repair(index, "put a text beside a document")] if is_lone else []
    return kept


def _drop_blank_texts(steps: list[IndexedMessage], _dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Remove texts of nothing but spaces, from results too."""
    kept: list[IndexedMessage] = []
    for index, message in steps:
        if not _has_blank_text(message):
            kept.append((index, message))
            continue
        content = [_without_blank_texts(block) for block in message.raw["content"] if not _is_blank_text(block)]
        kept.append((index, _read(0, {**message.raw, "content": content})))
        log.append(Repair(index, "removed an empty block"))
    return kept


def _has_blank_text(message: Message) -> bool:
    nested = [inner for block in blocks_in(message.raw) for inner in _result_blocks(block)]
    return any(map(_is_blank_text, [*blocks_in(message.raw), *nested]))


def _is_blank_text(block: Raw) -> bool:
    text = block.get("text")
    return isinstance(text, str) and not text.strip()


def _result_blocks(block: Raw) -> list[Raw]:
    result = block.get("toolResult")
    return blocks_in(result) if isinstance(result, dict) else []


def _without_blank_texts(block: Raw) -> Raw:
    if not any(map(_is_blank_text, _result_blocks(block))):
        return block
    content = [inner for inner in _result_blocks(block) if not _is_blank_text(inner)]
    return {**block, "toolResult": {**block["toolResult"], "content": content}}


def _bad_media(messages: Sequence[Message], _pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    """Images and documents that are too many for a message, too large or too heavy, or the assistant's."""
    for at, message in enumerate(messages):
        held = [part for part in message.parts if isinstance(part, Media)]
        images = [media for media in held if media.kind == "image"]
        documents = [media for media in held if media.kind == "document"]
        if message.role == "assistant" and (images or documents):
            yield Violation(at, "media", "an image or a document in an assistant message; only the user's may have one")
        if len(images) > MAX_IMAGES:
            yield Violation(at, "media", f"{len(images)} images in a message; at most {MAX_IMAGES}")
        if len(documents) > MAX_DOCUMENTS:
            yield Violation(at, "media", f"{len(documents)} documents in a message; at most {MAX_DOCUMENTS}")
        for media in (*held, *(inner for result in message.results for inner in result.media)):
            if media.kind == "image" and max(media.width, media.height) > MAX_SIDE:
                size = f"{media.width}x{media.height} pixels"
                yield Violation(at, "media", f"an image of {size}; at most {MAX_SIDE} per side")
            most = {"image": MAX_IMAGE_BYTES, "document": MAX_DOCUMENT_BYTES}.get(media.kind)
            if most and media.byte_size > most:
                what = f"{media.kind} of {media.byte_size:,} bytes; at most {most:,}"
                yield Violation(at, "media", f"{'an' if media.kind == 'image' else 'a'} {what}")


def _is_marked(message: Message) -> bool:
    return any("cachePoint" in block for block in blocks_in(message.raw))


def _with_cache_point(message: Message, is_wanted: bool) -> Message:
    """The message with one cache point, at its end, or with none."""
    blocks = without_cache_marks(message.raw["content"])
    point: list[Raw] = [{"cachePoint": {"type": "default"}}] if is_wanted else []
    return _read(0, {**message.raw, "content": [*blocks, *point]})


class Bedrock:
    """Messages as `Converse` and `ConverseStream` take them. A leading `system` message is tolerated.

    Reasoning of the newest Claude models is rejected once anything before it has changed. `binds_reasoning` is False
    for a model that is known to take it all the same.
    """

    name = "bedrock"
    strict_alternation = True
    reply_is_one_message = True
    has_unique_call_ids = True
    can_clear_thinking = True
    summaries_are_readable = True
    compaction_note = ""
    overhead = Overhead(request=8, message=4, name=0, call=40, result=30, tool=12, tools=346, images="anthropic")
    request_bytes = 20 * 1024 * 1024
    media_blocks: tuple[str, ...] = tuple(MEDIA)
    native_models: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = (
        late_results,
        results_behind_blocks,
        blank_messages,
        late_systems,
        assistants_in_a_row,
        users_in_a_row,
        assistant_first,
        _cache_points,
        _lone_documents,
        _bad_media,
    )
    # Moving results may empty a message, and an emptied one may bring two of one role together: so some come twice.
    repairs: tuple[RepairRule, ...] = (
        _drop_blank_texts,
        drop_blanks,
        join_assistants,
        rename_repeated,
        place_results,
        drop_blanks,
        systems_to_words,
        join_assistants,
        join_users,
        start_with_user,
        _drop_cache_points,
        _name_documents,
    )

    def __init__(self, *, binds_reasoning: bool = True, layout: str = "tail") -> None:
        self.binds_reasoning = binds_reasoning
        self.recommended_layout = layout

    def for_model(self, model: str | None) -> Dialect:
        """Only the newest Claude models bind their reasoning to what was said before it."""
        if claude_version(model) is not None:
            is_bound = binds_reasoning(model)
            return Bedrock(binds_reasoning=is_bound, layout="record" if is_bound else "tail")
        return Bedrock(binds_reasoning=False) if OTHER_MODELS.search((model or "").lower()) else self

    def recognizes(self, item: Raw) -> bool:
        """By a block that has no type: only Bedrock says by a key what a block is."""
        return any("type" not in block and any(name in block for name in BLOCKS) for block in blocks_in(item))

    def recognizes_plain(self, items: Sequence[Raw]) -> bool:
        """Every message of it has blocks, so that none is plain."""
        return False

    def recognizes_request(self, body: Mapping[str, Any]) -> bool:
        """By its own fields, or a system prompt of blocks without a type."""
        blocks = blocks_in({"content": body.get("system")})
        is_own = any(field in body for field in REQUEST_FIELDS) or any("type" not in block for block in blocks)
        return "messages" in body and is_own

    def is_blank(self, message: Message, is_last: bool) -> bool:
        """Whether it has nothing but blank texts."""
        return all(isinstance(part, Text) and not part.text.strip() for part in message.parts)

    def has_blank_block(self, message: Message) -> bool:
        """Whether one of its texts, or one in a result, has nothing but spaces."""
        return _has_blank_text(message)

    def parse(self, items: Sequence[object]) -> list[Message]:
        return [_read(index, raw) for index, raw in enumerate(dicts_of(items))]

    def edit(self, message: Message, edits: Mapping[int, str | None]) -> Message | None:
        for index, text in edits.items():
            refuse_thinking(message.parts[index], text)
        content: list[Raw] = []
        for at, marked in enumerate(_blocks(message.raw)):
            text = edits.get(at)
            if at not in edits:
                content += marked
            elif text is not None:
                content += [block if "cachePoint" in block else _edited(block, text) for block in marked]
        return _read(0, {**message.raw, "content": content}) if content else None

    def user_text(self, text: str) -> Message:
        return _read(0, {"role": "user", "content": [{"text": text}] if text else []})

    def declare_tools(self, tools: Sequence[ToolDeclaration]) -> list[Raw]:
        return [
            {
                "toolSpec": {
                    "name": tool.name,
                    "description": tool.description,
                    "inputSchema": {"json": tool.parameters},
                }
            }
            for tool in tools
        ]

    def place_cache_marks(self, messages: Sequence[Message], stable: int) -> list[Message]:
        marked = [at for at, message in enumerate(messages) if _is_marked(message)]
        if not marked:
            return [*messages]
        newest = max(marked[-1], stable)
        return [
            _with_cache_point(message, at in (stable, newest)) if at in marked or at == stable else message
            for at, message in enumerate(messages)
        ]

    def can_join(self, first: Message, second: Message) -> bool:
        return True

    def join(self, first: Message, second: Message) -> Message:
        """All blocks of both, in order; reasoning stays as it is."""
        content = [*first.raw["content"], *second.raw["content"]]
        return _read(0, {**second.raw, **first.raw, "content": content})

    def pick(self, message: Message, order: Sequence[int]) -> Message:
        blocks = _blocks(message.raw)
        return _read(0, {**message.raw, "content": [block for at in order for block in blocks[at]]})

    def answer(self, message: Message, call: ToolCall, text: str) -> Message:
        """A user message with this text as the failed result of a call."""
        result = {"toolUseId": call.id, "content": [{"text": text}], "status": "error"}
        return _read(0, {"role": "user", "content": [{"toolResult": result}]})

    def as_user_message(self, result: ToolResult, frame: str) -> Message | None:
        """What a result held as blocks of a user message."""
        if not result.text.strip() and not result.media:
            return None
        if not result.media:
            return self.user_text(f"{frame}\n{result.text}")
        held = [{"text": json_text(block["json"])} if "json" in block else block for block in result.content]
        kept = [block for block in held if not _is_blank_text(block)]
        return _read(0, {"role": "user", "content": [{"text": frame}, *kept]})

    def rename(self, message: Message, ids: Mapping[int, str]) -> Message:
        content: list[Raw] = []
        for at, marked in enumerate(_blocks(message.raw)):
            content += [_renamed(block, ids[at]) if at in ids else block for block in marked]
        return _read(0, {**message.raw, "content": content})

    def detach(self, before: Sequence[Message], after: Sequence[Message]) -> list[Message | None]:
        """Without the reasoning behind the first change, which is bound to what stood before it."""
        return drop_reasoning(before, after, self) if self.binds_reasoning else [*after]


def _edited(block: Raw, text: str) -> Raw:
    if isinstance(block.get("toolResult"), dict):
        return {**block, "toolResult": {**block["toolResult"], "content": [{"text": text}]}}
    if isinstance(block.get("toolUse"), dict):
        return {**block, "toolUse": {**block["toolUse"], "input": _arguments(text)}}
    guarded = block.get("guardContent")
    if isinstance(guarded, dict) and isinstance(guarded.get("text"), dict):
        return {"guardContent": {"text": {**guarded["text"], "text": text}}}
    return {"text": text}


def _arguments(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": text}


def _renamed(block: Raw, new_id: str) -> Raw:
    kind = next((name for name in ("toolUse", "toolResult") if isinstance(block.get(name), dict)), None)
    return {**block, kind: {**block[kind], "toolUseId": new_id}} if kind else block
