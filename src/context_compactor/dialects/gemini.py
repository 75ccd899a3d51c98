"""Google's `generateContent` format: how it is read and written, and what the provider rejects.

The names of the REST API (`functionCall`) and of the Python SDK (`function_call`) are both read, and come out as they
came in. A call without an id is answered by the first response of its name; both are given an id here by name and
order, which is never written.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import structs

from context_compactor.dialects.dialect import (
    Dialect,
    Overhead,
    Raw,
    ToolDeclaration,
    blocks_at,
    dicts_of,
    kind_of_value,
    object_at,
    refuse_thinking,
    role_at,
    text_at,
)
from context_compactor.dialects.legality import (
    Pairing,
    PartPosition,
    Rule,
    Violation,
    assistant_first,
    assistants_in_a_row,
    blank_messages,
    late_results,
    pair_results,
)
from context_compactor.dialects.media import inline_media, unencoded_media
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
from context_compactor.dialects.repair import (
    IndexedMessage,
    Repair,
    RepairRule,
    drop_blanks,
    join_assistants,
    rename_repeated,
    start_with_user,
    without_indexes,
)
from context_compactor.dialects.strict_order import (
    late_systems,
    place_results,
    results_behind_blocks,
    systems_to_words,
)
from context_compactor.errors import BadMessage
from context_compactor.json_values import json_text

ROLES: dict[str, Role] = {
    "user": "user",
    "model": "assistant",
    "function": "user",
    "tool": "user",
    "system": "system",
}
# Each field by its name in the REST API and in the Python SDK.
CALL = ("functionCall", "function_call")
RESPONSE = ("functionResponse", "function_response")
SIGNATURE = ("thoughtSignature", "thought_signature")
INLINE = ("inlineData", "inline_data")
FILE = ("fileData", "file_data")
MIME_TYPE = ("mimeType", "mime_type")
FILE_URI = ("fileUri", "file_uri")
CODE = ("executableCode", "executable_code")
CODE_RESULT = ("codeExecutionResult", "code_execution_result")
# What stands beside a part's content and is none.
ABOUT_PART = frozenset({"text", "thought", *SIGNATURE, "videoMetadata", "video_metadata", "mediaResolution"})

ANY_SIGNATURE = "skip_thought_signature_validator"
"""What Google documents for a call whose signature there is none of, as in a history that was edited."""

SIGNING_MODEL = re.compile(r"gemini-(?:[3-9]|[1-9]\d)\b")
UNSIGNED_MODEL = re.compile(r"gemini-(?:[12](?:\.\d)?|pro|flash)\b|gemma")

OUTPUT_FIELDS = ("output", "result", "error", "content")
"""Under which names clients put a result that is a text. The provider knows `output` and `error`."""


def _value(block: Raw, names: tuple[str, str]) -> Any:
    """The field under one of its two names; the SDK writes None for what is not there."""
    return next((block[name] for name in names if block.get(name) is not None), None)


def _name_in(block: Raw, names: tuple[str, str]) -> str:
    """The name that the field has in this block, or would have beside the other names in it."""
    present = next((name for name in names if block.get(name) is not None), None)
    return present or names[any("_" in key for key in block)]


def _read(index: int, raw: Raw) -> Message:
    role: Role = "user" if raw.get("role") is None and "parts" in raw else role_at(index, raw.get("role"), ROLES)
    blocks = _blocks_at(index, raw)
    parts = tuple([_part(index, f"parts[{at}]", block) for at, block in enumerate(blocks)])
    for at, part in enumerate(parts):
        if isinstance(part, ToolCall) and role != "assistant":
            what = f"a call in a {raw.get('role')} message; only the model calls functions"
            raise BadMessage(index, f"parts[{at}].{_name_in(blocks[at], CALL)}", what)
        if isinstance(part, ToolResult) and role != "user":
            what = f"a response in a {raw.get('role')} message; responses are the user's"
            raise BadMessage(index, f"parts[{at}].{_name_in(blocks[at], RESPONSE)}", what)
    return Message(role, _numbered(parts, blocks), raw)


def _blocks_at(index: int, raw: Raw) -> list[Raw]:
    parts = raw.get("parts")
    if parts is None and "parts" in raw:
        return []
    if not isinstance(parts, (list, tuple)):
        what = f'expected a list of parts such as [{{"text": "…"}}], got {kind_of_value(parts)}'
        raise BadMessage(index, "parts", what)
    return blocks_at(index, "parts", parts)


def _part(index: int, field: str, block: Raw) -> Part:
    signed = bool(_value(block, SIGNATURE))
    for names, read in READERS:
        held = _value(block, names)
        if held is not None:
            field = f"{field}.{_name_in(block, names)}"
            return read(index, field, object_at(index, field, held))
    text = block.get("text")
    if text is not None or all(value is None or key in ABOUT_PART for key, value in block.items()):
        words = text_at(index, f"{field}.text", "" if text is None else text)
        is_thought = (words and block.get("thought") is True) or (signed and not words)
        return Thinking(words, signed) if is_thought else Text(words)
    return Opaque(next(str(key) for key, value in block.items() if value is not None), json_text(block))


def _call(index: int, field: str, call: Raw) -> ToolCall:
    name = text_at(index, f"{field}.name", call.get("name"))
    args = call.get("args")
    return ToolCall(_id_at(index, field, call), name, json_text({} if args is None else args))


def _response(index: int, field: str, response: Raw) -> ToolResult:
    text_at(index, f"{field}.name", response.get("name"))
    held = response.get("response")
    content = object_at(index, f"{field}.response", {} if held is None else held)
    blocks = blocks_at(index, f"{field}.parts", response.get("parts") or [])
    parts = [_part(index, f"{field}.parts[{at}]", block) for at, block in enumerate(blocks)]
    media = tuple(part for part in parts if isinstance(part, Media))
    text = _response_text(content)
    is_plain = not blocks and content == dict.fromkeys(content, text) and len(content) == 1
    call_id = _id_at(index, field, response)
    return ToolResult(call_id, text, bool(content.get("error")), text if is_plain else response, media)


def _id_at(index: int, field: str, held: Raw) -> str:
    given = held.get("id")
    return "" if given is None else text_at(index, f"{field}.id", given)


def _response_text(content: Raw) -> str:
    if not content:
        return ""
    only = next(iter(content.values())) if len(content) == 1 and next(iter(content)) in OUTPUT_FIELDS else None
    return only if isinstance(only, str) else json_text(content)


def _inline(index: int, field: str, held: Raw) -> Media:
    media_type = str(_value(held, MIME_TYPE) or "")
    title = str(held.get("displayName") or held.get("display_name") or "")
    content = held.get("data")
    if isinstance(content, (bytes, bytearray, memoryview)):
        return unencoded_media(_kind(media_type), media_type, bytes(content), title)
    return inline_media(_kind(media_type), media_type, text_at(index, f"{field}.data", content), title)


def _file(_index: int, _field: str, held: Raw) -> Media:
    media_type = str(_value(held, MIME_TYPE) or "")
    return Media(_kind(media_type), media_type, title=str(_value(held, FILE_URI) or ""))


def _kind(media_type: str) -> MediaKind:
    if media_type.startswith("image/"):
        return "image"
    if media_type.startswith("audio/"):
        return "audio"
    return "document" if media_type.startswith(("application/pdf", "text/")) else "file"


def _run(kind: str, key: str, _index: int, _field: str, held: Raw) -> Opaque:
    words = held.get(key)
    return Opaque(kind, words if isinstance(words, str) else json_text(held))


READERS: tuple[tuple[tuple[str, str], Callable[[int, str, Raw], Part]], ...] = (
    (CALL, _call),
    (RESPONSE, _response),
    (INLINE, _inline),
    (FILE, _file),
    (CODE, partial(_run, CODE[0], "code")),
    (CODE_RESULT, partial(_run, CODE_RESULT[0], "output")),
)


def _numbered(parts: tuple[Part, ...], blocks: Sequence[Raw]) -> tuple[Part, ...]:
    """The parts with an id for calls and responses that have none: by name, and by number from the second one on."""
    seen: Counter[str] = Counter()
    found: list[Part] = []
    for part, block in zip(parts, blocks, strict=True):
        if isinstance(part, (ToolCall, ToolResult)) and not _id_of(part):
            name = _function_name(block)
            seen[name] += 1
            found.append(_with_id(part, f"function:{name}" if seen[name] == 1 else f"function:{name}:{seen[name]}"))
        else:
            found.append(part)
    return tuple(found)


def _function_name(block: Raw) -> str:
    held = _value(block, CALL) or _value(block, RESPONSE)
    return str(held["name"])


def _has_own_id(block: Raw) -> bool:
    return bool((_value(block, CALL) or _value(block, RESPONSE)).get("id"))


def _id_of(part: Part) -> str | None:
    if isinstance(part, ToolCall):
        return part.id
    return part.call_id if isinstance(part, ToolResult) else None


def _with_id(part: Part, known: str | None) -> Part:
    if known is not None and isinstance(part, ToolCall):
        return structs.replace(part, id=known)
    return structs.replace(part, call_id=known) if known is not None and isinstance(part, ToolResult) else part


def _with_ids(message: Message, ids: Sequence[str | None]) -> Message:
    parts = [_with_id(part, known) for part, known in zip(message.parts, ids, strict=True)]
    return structs.replace(message, parts=tuple(parts))


class _UnansweredCalls:
    """The calls that no response was found for yet, by name and by id."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[deque[PartPosition]]] = {}
        self.by_id: dict[str, list[deque[PartPosition]]] = {}
        self.answered: set[PartPosition] = set()
        self.ids: dict[PartPosition, str] = {}

    def add(self, at: int, message: Message) -> None:
        names: dict[str, deque[PartPosition]] = {}
        ids: dict[str, deque[PartPosition]] = {}
        for number, part in enumerate(message.parts):
            if isinstance(part, ToolCall):
                place = PartPosition(at, number)
                self.ids[place] = part.id
                names.setdefault(part.name, deque()).append(place)
                ids.setdefault(part.id, deque()).append(place)
        for held, found in ((self.by_name, names), (self.by_id, ids)):
            for key, places in found.items():
                held.setdefault(key, []).append(places)

    def take(self, held: dict[str, list[deque[PartPosition]]], key: str) -> str | None:
        """The id of the first open call of the nearest message that has one of this name or id."""
        groups = held.get(key, [])
        while groups:
            while groups[-1]:
                place = groups[-1].popleft()
                if place not in self.answered:
                    self.answered.add(place)
                    return self.ids[place]
            groups.pop()
        return None


def _matched(messages: Sequence[Message]) -> list[Message]:
    """The messages with each response that has no id of its own given to the first open call of its name."""
    calls = _UnansweredCalls()
    found: list[Message] = []
    for at, message in enumerate(messages):
        calls.add(at, message)
        if not message.results:
            found.append(message)
            continue
        parts, blocks = list(message.parts), message.raw["parts"]
        results = [number for number, part in enumerate(parts) if isinstance(part, ToolResult)]
        for number in results:
            if _has_own_id(blocks[number]):
                calls.take(calls.by_id, _id_of(parts[number]) or "")
        for number in results:
            if not _has_own_id(blocks[number]):
                call_id = calls.take(calls.by_name, _function_name(blocks[number]))
                parts[number] = _with_id(parts[number], call_id)
        found.append(message if tuple(parts) == message.parts else structs.replace(message, parts=tuple(parts)))
    return found


def _match_again(steps: list[IndexedMessage], dialect: Dialect, _log: list[Repair]) -> list[IndexedMessage]:
    """Give responses to calls anew after messages were joined or moved."""
    matched = dialect.parse([message.raw for _, message in steps])
    return [(index, old if old.parts == new.parts else new) for (index, old), new in zip(steps, matched, strict=True)]


def _unordered_responses(messages: Sequence[Message], pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    """Responses in another order than their calls, where one has no id: then they are matched by their order."""
    for at, order in _order_of_calls(pairing).items():
        results = [number for number, part in enumerate(messages[at].parts) if isinstance(part, ToolResult)]
        is_matched_by_order = not all(_has_own_id(messages[at].raw["parts"][number]) for number in results)
        if is_matched_by_order and order != sorted(order):
            yield Violation(at, "result-order", "responses in another order than their calls")


def _order_of_calls(pairing: Pairing) -> dict[int, list[int]]:
    """For each message with responses their numbers in it, in the order of the calls that they answer."""
    orders: dict[int, list[int]] = {}
    for call in sorted(pairing.answers):
        result = pairing.answers[call]
        orders.setdefault(result.message, []).append(result.part)
    return orders


def _order_responses(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Put responses into the order of their calls."""
    messages = without_indexes(steps)
    pairing = pair_results(messages)
    unordered = {problem.index for problem in _unordered_responses(messages, pairing, dialect)}
    orders = _order_of_calls(pairing)
    log += [Repair(steps[at][0], "put responses into the order of their calls") for at in sorted(unordered)]
    return [
        (index, _in_order(message, orders[at], dialect) if at in unordered else message)
        for at, (index, message) in enumerate(steps)
    ]


def _in_order(message: Message, order: list[int], dialect: Dialect) -> Message:
    others = [number for number in range(len(message.parts)) if number not in order]
    return dialect.pick(message, [*order, *others])


def _unsigned_calls(messages: Sequence[Message], _pairing: Pairing, dialect: Dialect) -> Iterator[Violation]:
    """First calls of a step without their thought signature, since the user last spoke."""
    for at in _unsigned_steps(messages, dialect):
        yield Violation(at, "thought-signature", "the first call of a step without its thought signature")


def _unsigned_steps(messages: Sequence[Message], dialect: Dialect) -> list[int]:
    """Where a model's rules are not known they hold when a call of the history has a signature."""
    needs = getattr(dialect, "needs_signatures", None)
    if needs is False or (needs is None and not any(map(_has_signed_call, messages))):
        return []
    spoken = [at for at, message in enumerate(messages) if message.role == "user" and not message.results]
    start = spoken[-1] if spoken else 0
    return [at for at in range(start, len(messages)) if messages[at].calls and not _is_first_call_signed(messages[at])]


def _signed_calls(message: Message) -> Iterator[bool]:
    for block, part in zip(message.raw.get("parts") or (), message.parts, strict=True):
        if isinstance(part, ToolCall):
            yield bool(_value(block, SIGNATURE))


def _has_signed_call(message: Message) -> bool:
    return any(_signed_calls(message))


def _is_first_call_signed(message: Message) -> bool:
    return next(_signed_calls(message), False)


def _sign_calls(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Give calls that lost their signature the one that Google documents for such calls."""
    unsigned = set(_unsigned_steps(without_indexes(steps), dialect))
    for at in sorted(unsigned):
        log.append(Repair(steps[at][0], "gave a call without its thought signature the one that is always taken"))
    return [(index, _signed(message) if at in unsigned else message) for at, (index, message) in enumerate(steps)]


def _signed(message: Message) -> Message:
    first = next(at for at, part in enumerate(message.parts) if isinstance(part, ToolCall))
    blocks = list(message.raw["parts"])
    blocks[first] = {**blocks[first], _name_in(blocks[first], SIGNATURE): ANY_SIGNATURE}
    return structs.replace(message, raw={**message.raw, "parts": blocks})


class Gemini:
    """Messages as `generateContent` takes them as `contents`. A leading `system` message is tolerated.

    `needs_signatures` tells whether the model rejects a call without its thought signature; None where that is not
    known.
    """

    name = "gemini"
    strict_alternation = True
    reply_is_one_message = True
    has_unique_call_ids = False
    can_clear_thinking = True
    recommended_layout = "tail"
    summaries_are_readable = True
    compaction_note = ""
    overhead = Overhead(request=3, message=3, name=0, call=8, result=4, tool=8, tools=12, images="gemini")
    request_bytes = 20 * 1024 * 1024
    media_blocks: tuple[str, ...] = (*INLINE, *FILE)
    native_models: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = (
        late_results,
        results_behind_blocks,
        _unordered_responses,
        blank_messages,
        late_systems,
        assistants_in_a_row,
        assistant_first,
        _unsigned_calls,
    )
    # Moving results may empty a message, and an emptied one may bring two assistants together: so some come twice.
    repairs: tuple[RepairRule, ...] = (
        drop_blanks,
        join_assistants,
        _match_again,
        rename_repeated,
        place_results,
        drop_blanks,
        systems_to_words,
        join_assistants,
        _match_again,
        _order_responses,
        start_with_user,
        _sign_calls,
    )

    def __init__(self, *, needs_signatures: bool | None = None) -> None:
        self.needs_signatures = needs_signatures

    def for_model(self, model: str | None) -> Dialect:
        """Gemini 3 and later reject calls without their signature, earlier models do not."""
        name = (model or "").lower().replace("_", "-")
        if SIGNING_MODEL.search(name):
            return Gemini(needs_signatures=True)
        return Gemini(needs_signatures=False) if UNSIGNED_MODEL.search(name) else self

    def recognizes(self, item: Raw) -> bool:
        """By parts that have no type."""
        parts = item.get("parts")
        if not isinstance(parts, list) or "content" in item or "kind" in item:
            return False
        return item.get("role") in (None, *ROLES) and all(isinstance(it, dict) and "type" not in it for it in parts)

    def recognizes_plain(self, items: Sequence[Raw]) -> bool:
        """Every message of it has parts, so that none is plain."""
        return False

    def recognizes_request(self, body: Mapping[str, Any]) -> bool:
        """By `contents` in the place of messages."""
        return "contents" in body and "messages" not in body

    def is_blank(self, message: Message, is_last: bool) -> bool:
        """Whether it has nothing but blank texts."""
        return all(isinstance(part, Text) and not part.text.strip() for part in message.parts)

    def has_blank_block(self, message: Message) -> bool:
        """Whether one of its parts holds nothing."""
        return any(isinstance(part, Text) and not part.text for part in message.parts)

    def parse(self, items: Sequence[object]) -> list[Message]:
        return _matched([_read(index, raw) for index, raw in enumerate(dicts_of(items))])

    def edit(self, message: Message, edits: Mapping[int, str | None]) -> Message | None:
        for index, text in edits.items():
            refuse_thinking(message.parts[index], text)
        kept: list[int] = []
        blocks: list[Raw] = []
        for at, block in enumerate(message.raw.get("parts") or ()):
            text = edits.get(at)
            if at not in edits or text is not None:
                kept.append(at)
                blocks.append(block if text is None else _edited(block, text))
        return self._rebuilt(message, kept, blocks) if blocks else None

    def user_text(self, text: str) -> Message:
        return _read(0, {"role": "user", "parts": [{"text": text}] if text else []})

    def declare_tools(self, tools: Sequence[ToolDeclaration]) -> list[Raw]:
        declared = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
            for tool in tools
        ]
        return [{"functionDeclarations": declared}]

    def place_cache_marks(self, messages: Sequence[Message], stable: int) -> list[Message]:
        return [*messages]

    def can_join(self, first: Message, second: Message) -> bool:
        return True

    def join(self, first: Message, second: Message) -> Message:
        """All parts of both, in order. Responses keep their calls, and calls without an id are numbered anew."""
        blocks = [*(first.raw.get("parts") or ()), *(second.raw.get("parts") or ())]
        raw = {**second.raw, **first.raw, "parts": blocks}
        if first.role == "user" and second.raw.get("role") == "user":
            raw["role"] = "user"
        joined = _read(0, raw)
        parts = zip(joined.parts, (*first.parts, *second.parts), strict=True)
        return structs.replace(joined, parts=tuple([old if isinstance(old, ToolResult) else new for new, old in parts]))

    def pick(self, message: Message, order: Sequence[int]) -> Message:
        blocks = message.raw.get("parts") or ()
        return self._rebuilt(message, order, [blocks[at] for at in order])

    def answer(self, message: Message, call: ToolCall, text: str) -> Message:
        """A user message with this text as the failed response to a call."""
        at = next(at for at, part in enumerate(message.parts) if isinstance(part, ToolCall) and part.id == call.id)
        block = message.raw["parts"][at]
        given = _value(block, CALL).get("id")
        response = {**({"id": given} if given else {}), "name": call.name, "response": {"error": text}}
        key = RESPONSE[_name_in(block, CALL) == CALL[1]]
        answer = _read(0, {"role": "user", "parts": [{key: response}]})
        return _with_ids(answer, [call.id])

    def as_user_message(self, result: ToolResult, frame: str) -> Message | None:
        """What a response held as parts of a user message."""
        if not result.text and not result.media:
            return None
        words = f"{frame}\n{result.text}" if result.text else frame
        media = result.content.get("parts") or () if isinstance(result.content, dict) else ()
        return _read(0, {"role": "user", "parts": [{"text": words}, *media]})

    def rename(self, message: Message, ids: Mapping[int, str]) -> Message:
        blocks = list(message.raw["parts"])
        for at, new_id in ids.items():
            names = CALL if isinstance(message.parts[at], ToolCall) else RESPONSE
            key = _name_in(blocks[at], names)
            signed = {name: ANY_SIGNATURE for name in SIGNATURE if blocks[at].get(name) is not None}
            blocks[at] = {**blocks[at], **signed, key: {**blocks[at][key], "id": new_id}}
        old = [ids.get(at) or _id_of(part) for at, part in enumerate(message.parts)]
        return _with_ids(_read(0, {**message.raw, "parts": blocks}), old)

    def detach(self, before: Sequence[Message], after: Sequence[Message]) -> list[Message | None]:
        """A thought signature is bound to its part alone, and leaves with it."""
        return [*after]

    def _rebuilt(self, message: Message, order: Sequence[int], blocks: list[Raw]) -> Message:
        """The message with these blocks, which were at these places; a first call is signed if it was before."""
        rebuilt = _read(0, {**message.raw, "parts": blocks})
        rebuilt = _with_ids(rebuilt, [_id_of(message.parts[at]) for at in order])
        if self.needs_signatures is False or not rebuilt.calls or not _is_first_call_signed(message):
            return rebuilt
        return rebuilt if _is_first_call_signed(rebuilt) else _signed(rebuilt)


def _edited(block: Raw, text: str) -> Raw:
    """A call or response with another content, anything else as a text; a signature belongs to what is gone."""
    call, response = _value(block, CALL), _value(block, RESPONSE)
    if call is not None:
        bare = {key: value for key, value in block.items() if key not in SIGNATURE}
        return {**bare, _name_in(block, CALL): {**call, "args": _arguments(text)}}
    if response is not None:
        kept = {key: value for key, value in response.items() if key != "parts"}
        return {**block, _name_in(block, RESPONSE): {**kept, "response": _new_response(response, text)}}
    return {"text": text}


def _new_response(response: Raw, text: str) -> Raw:
    held = response.get("response") or {}
    if held.get("error"):
        return {"error": text}
    only = next(iter(held), "") if len(held) == 1 else ""
    return {only if only in OUTPUT_FIELDS and only != "error" else "output": text}


def _arguments(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": text}
