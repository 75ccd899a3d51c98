"""The OpenAI chat format: role messages, calls beside the content, one message for each result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from context_compactor.dialects.dialect import (
    DEFAULT_REQUEST_BYTES,
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
    text_like,
)
from context_compactor.dialects.legality import (
    Rule,
    Violation,
    assistant_first,
    assistants_in_a_row,
    blank_messages,
    late_results,
)
from context_compactor.dialects.media import inline_media, linked_media
from context_compactor.dialects.messages import Media, Message, Opaque, Part, Role, Text, Thinking, ToolCall, ToolResult
from context_compactor.dialects.reasoning import binds_reasoning, drop_reasoning
from context_compactor.dialects.repair import (
    IndexedMessage,
    Repair,
    RepairRule,
    drop_blanks,
    join_assistants,
    rename_repeated,
    results_behind_calls,
    start_with_user,
    without_indexes,
)
from context_compactor.errors import BadMessage
from context_compactor.json_values import json_text

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
"""Where OpenAI-compatible providers and routers put a model's reasoning, if not into blocks of the content."""
THINKING_BLOCKS = ("thinking", "redacted_thinking")
REASONING_MODELS = re.compile(r"deepseek|kimi")
"""Models that reject calls without the `reasoning_content` that they came with."""
OWN_FIELDS = frozenset(
    {
        "tool_calls",
        "function_call",
        "tool_call_id",
        "refusal",
        "reasoning_content",
        "reasoning_details",
        "thinking_blocks",
    }
)

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
    if isinstance(text, list):  # Mistral's are lists of text blocks
        return "\n".join(map(_thought, _dicts(text)))
    return text if isinstance(text, str) else ""


def _thinking(block: Raw) -> Thinking:
    """A block of thinking in the content, as routers and frameworks pass it on."""
    return Thinking(_thought(block), bool(block.get("signature") or block.get("data")))


def _read_content(index: int, raw: Raw, parts: list[Part], slots: list[Slot]) -> None:
    content = raw.get("content")
    if isinstance(content, str):
        if content:
            parts.append(Text(content))
            slots.append(("content", WHOLE))
    elif content is not None:
        for at, block in enumerate(blocks_at(index, "content", content)):
            is_thinking = raw["role"] == "assistant" and block.get("type") in THINKING_BLOCKS
            parts.append(_thinking(block) if is_thinking else _part(index, f"content[{at}]", block))
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


def _unreasoned_calls(messages: Sequence[Message], _pairing: object, dialect: Dialect) -> Iterator[Violation]:
    """Calls without the field of their reasoning, in a history in which the model has thought."""
    is_wanted = isinstance(dialect, OpenAIChat) and dialect.wants_reasoning_back
    if is_wanted and any("reasoning_content" in message.raw for message in messages):
        for at, message in enumerate(messages):
            if message.raw.get("tool_calls") and "reasoning_content" not in message.raw:
                yield Violation(at, "reasoning-content", "calls without the reasoning_content that they came with")


def _add_reasoning(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Give calls an empty reasoning, which the provider takes."""
    bare = {problem.index for problem in _unreasoned_calls(without_indexes(steps), None, dialect)}
    log += [Repair(steps[at][0], "gave calls without their reasoning_content an empty one") for at in sorted(bare)]
    return [
        (index, read_message(0, {**message.raw, "reasoning_content": ""}) if at in bare else message)
        for at, (index, message) in enumerate(steps)
    ]


class OpenAIChat:
    """Messages as `POST /v1/chat/completions` takes them, legacy functions included."""

    name = "openai-chat"
    strict_alternation = False
    reply_is_one_message = True
    has_unique_call_ids = False
    can_clear_thinking = True
    recommended_layout = "tail"
    summaries_are_readable = True
    compaction_note = ""
    # OpenAI's own counting recipe
    overhead = Overhead(request=3, message=3, name=1, call=8, result=4, tool=8, tools=12, images="openai")
    request_bytes = DEFAULT_REQUEST_BYTES
    media_blocks: tuple[str, ...] = ("image_url", "input_audio", "file")
    native_models: tuple[str, ...] = ("openai/", "http://", "https://")
    rules: tuple[Rule, ...] = (late_results, blank_messages, assistants_in_a_row, assistant_first, _unreasoned_calls)
    # Moving results may bring two assistants together: so some come twice.
    repairs: tuple[RepairRule, ...] = (
        drop_blanks,
        join_assistants,
        rename_repeated,
        results_behind_calls,
        drop_blanks,
        join_assistants,
        start_with_user,
        _add_reasoning,
    )

    def __init__(self, binds_reasoning: bool = True, wants_reasoning_back: bool = False) -> None:
        self.binds_reasoning = binds_reasoning
        self.wants_reasoning_back = wants_reasoning_back

    def for_model(self, model: str | None) -> Dialect:
        """Only Claude models check what stands before their reasoning, DeepSeek and Kimi that calls come with it."""
        if model is None or "claude" in model.lower():
            return self if binds_reasoning(model) else OpenAIChat(binds_reasoning=False)
        return OpenAIChat(binds_reasoning=False, wants_reasoning_back=bool(REASONING_MODELS.search(model.lower())))

    def recognizes(self, item: Raw) -> bool:
        """By a role, a field or a block that only chat has."""
        if not OWN_FIELDS.isdisjoint(item) or (item.get("role") in ("tool", "function") and "content" in item):
            return True
        return any(block.get("type") in ("image_url", "file") for block in blocks_in(item))

    def recognizes_plain(self, items: Sequence[Raw]) -> bool:
        """Plain messages are chat unless another dialect is more likely."""
        return False

    def recognizes_request(self, body: Mapping[str, Any]) -> bool:
        """Others have the same fields."""
        return False

    def is_blank(self, message: Message, is_last: bool) -> bool:
        """Whether it has neither content nor calls; an empty text is content."""
        return not message.parts and not isinstance(message.raw.get("content"), str)

    def has_blank_block(self, message: Message) -> bool:
        """Whether it has an empty list of calls or blocks, or is a result without a content."""
        content = message.raw.get("content")
        return message.raw.get("tool_calls") == [] or content == [] or (message.role == "tool" and content is None)

    def parse(self, items: Sequence[object]) -> list[Message]:
        return [read_message(index, raw) for index, raw in enumerate(dicts_of(items))]

    def edit(self, message: Message, edits: Mapping[int, str | None]) -> Message | None:
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
        return read_message(0, {"role": "user", "content": text})

    def declare_tools(self, tools: Sequence[ToolDeclaration]) -> list[Raw]:
        return [{"type": "function", "function": structs.asdict(tool)} for tool in tools]

    def place_cache_marks(self, messages: Sequence[Message], stable: int) -> list[Message]:
        return [*messages]

    def can_join(self, first: Message, second: Message) -> bool:
        """A legacy function call must be the only call of its message."""
        if not first.calls or not second.calls:
            return True
        return not first.raw.get("function_call") and not second.raw.get("function_call")

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
                raw[field] = two.get(field, raw[field])
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
        if isinstance(message.raw.get("function_call"), dict):
            return read_message(0, {"role": "function", "name": call.name, "content": text})
        return read_message(0, {"role": "tool", "tool_call_id": call.id, "content": text})

    def as_user_message(self, result: ToolResult, frame: str) -> Message | None:
        if not result.text and not result.media:
            return None
        if not result.media:
            return self.user_text(f"{frame}\n{result.text}")
        return read_message(0, {"role": "user", "content": [{"type": "text", "text": frame}, *result.content]})

    def rename(self, message: Message, ids: Mapping[int, str]) -> Message:
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

    def detach(self, before: Sequence[Message], after: Sequence[Message]) -> list[Message | None]:
        """Without signed reasoning behind the first change: routers pass it on to models that check it."""
        return drop_reasoning(before, after, self, only_signed=True) if self.binds_reasoning else [*after]


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
        removed = {name: raw.pop(name, None) for name in THINKING_FIELDS}
        if removed["reasoning_content"] is not None and raw.get("tool_calls"):
            raw["reasoning_content"] = ""  # DeepSeek and Kimi reject calls without the field
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
