"""What a provider's message format must be able to do, and the checks that all formats share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from context_compactor.dialects.messages import Media, Message, Part, Thinking, ToolCall, ToolResult
from context_compactor.errors import BadMessage
from context_compactor.json_values import is_dumpable, plain_value

if TYPE_CHECKING:
    from context_compactor.dialects.legality import Rule
    from context_compactor.dialects.repair import RepairRule

Raw = dict[str, Any]


class Overhead(Struct, frozen=True):
    """What a provider counts around the texts: tokens per request, message, name, call, result, tool and list of tools.

    `images` names the way in which its models count images; the rest is set by the model, where that is known.
    """

    request: int
    message: int
    name: int
    call: int
    result: int
    tool: int
    tools: int
    images: str
    thinking: float = 1.0
    drops_thinking: bool = False
    unescapes: bool = False


DEFAULT_REQUEST_BYTES = 50 * 1024 * 1024


class ToolDeclaration(Struct, frozen=True):
    """A function tool before it is written for a provider; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class Dialect(Protocol):
    """One provider's message format: how it is read and written, and what its provider accepts.

    Implementations hold no state. Every member is needed: nothing else in the package knows what a provider accepts.
    """

    name: str
    strict_alternation: bool
    """The provider wants user and assistant to take turns, so the engine never writes two users in a row."""
    reply_is_one_message: bool
    """One assistant message holds a whole reply. If not, all assistant messages in a row are one reply."""
    has_unique_call_ids: bool
    """The id of a call may be used once in a history; if not, once in a message."""
    can_clear_thinking: bool
    """Thinking of earlier replies may be left out while the rest of the reply stays."""
    recommended_layout: str
    """How the provider wants a compacted context: `tail`, or `record` where turns that are sent again lose much."""
    summaries_are_readable: bool
    """The provider's own summaries, its compaction blocks, hold text; if not, they are sealed."""
    compaction_note: str
    """What a caller must know who sends a compacted context; empty when there is nothing."""
    overhead: Overhead
    request_bytes: int
    """The largest request that the provider accepts, where nothing is known about the model."""
    media_blocks: tuple[str, ...]
    """The types of the blocks that hold images, documents and sounds in a message."""
    native_models: tuple[str, ...]
    """How the names of the models begin whose client sends messages of this dialect as they are."""
    rules: tuple[Rule, ...]
    """What the provider rejects beside results that do not match their calls, which `legality` finds for all."""
    repairs: tuple[RepairRule, ...]
    """What makes a history legal, in this order: for the rules above, and for calls and results."""

    def for_model(self, model: str | None) -> Dialect:
        """The dialect with the rules of this model; for a model that is not known the strictest, which is itself."""
        ...

    def recognizes(self, item: Raw) -> bool:
        """Whether only this dialect has such a message. One that others have as well is typical at most."""
        ...

    def recognizes_plain(self, items: Sequence[Raw]) -> bool:
        """Whether messages of which no dialect recognizes one are more likely of this dialect than OpenAI chat."""
        ...

    def recognizes_request(self, body: Mapping[str, Any]) -> bool:
        """Whether only this dialect has a request with such fields beside its messages."""
        ...

    def is_blank(self, message: Message, is_last: bool) -> bool:
        """Whether a message holds nothing that the provider takes as content."""
        ...

    def has_blank_block(self, message: Message) -> bool:
        """Whether a message has an empty block or list that the provider rejects."""
        ...

    def parse(self, items: Sequence[object]) -> list[Message]:
        """One message for each item, with `raw` the very item. Raises `BadMessage` for what is not a message."""
        ...

    def edit(self, message: Message, edits: Mapping[int, str | None]) -> Message | None:
        """The message with part `i` replaced by a text, or removed where the text is None.

        A result keeps its id and marks and gets the text as its content; a call gets it as its arguments;
        words, media and unknown blocks become a text. Thinking can only be removed. None when nothing is left.
        """
        ...

    def user_text(self, text: str) -> Message:
        """A new user message that says this."""
        ...

    def declare_tools(self, tools: Sequence[ToolDeclaration]) -> list[Raw]:
        """The value of `tools` in a request that declares these."""
        ...

    def place_cache_marks(self, messages: Sequence[Message], stable: int) -> list[Message]:
        """The messages with cache marks where they pay: at the end of message `stable`, up to which nothing changes
        until the next compaction, and where the newest mark was. The same where there are none.
        """
        ...

    def can_join(self, first: Message, second: Message) -> bool:
        """Whether two assistant messages in a row may become one."""
        ...

    def join(self, first: Message, second: Message) -> Message:
        """Two messages of one role as one, the first one's content before the second one's."""
        ...

    def pick(self, message: Message, order: Sequence[int]) -> Message:
        """The message with only these parts, in this order."""
        ...

    def answer(self, message: Message, call: ToolCall, text: str) -> Message | None:
        """A message with this text as the failed result of a call; None when its result cannot be a text."""
        ...

    def as_user_message(self, result: ToolResult, frame: str) -> Message | None:
        """A user message that shows a result which may no longer be one. None when it holds nothing."""
        ...

    def rename(self, message: Message, ids: Mapping[int, str]) -> Message:
        """The message with another id for the calls and results at these parts."""
        ...

    def detach(self, before: Sequence[Message], after: Sequence[Message]) -> list[Message | None]:
        """The messages `after` a change without what the provider no longer accepts, since `before` they had others
        in front of them: reasoning, ids. One for each of `after`; None where nothing is left of it.
        """
        ...


def dicts_of(items: object) -> list[Raw]:
    """The items as dictionaries, or the reason why they are not messages."""
    if not isinstance(items, (list, tuple)):
        raise BadMessage(0, "messages", f"expected a list of messages, got {kind_of_value(items)}")
    for index, item in enumerate(items):
        object_at(index, "message", item)
    return list(items)


def plain_messages(items: object) -> list[Raw]:
    """The messages as plain dictionaries: those that are given, and what an SDK would send for its objects.

    A whole response stands for the messages in it. Raises `BadMessage` for what is not a message, or nested too deep.
    """
    return indexed_messages(items)[0]


def indexed_messages(items: object, first: int = 0) -> tuple[list[Raw], list[int]]:
    """The same from the item `first` on, and for each message the index of the item that it comes from."""
    if not isinstance(items, (list, tuple)):
        raise BadMessage(0, "messages", f"expected a list of messages, got {kind_of_value(items)}")
    plain: list[Raw] = []
    indexes: list[int] = []
    for index, item in enumerate(items[first:], first):
        try:
            if isinstance(item, dict):
                refuse_depth(index, item)
                plain.append(plain_value(item))
            else:
                plain += [object_at(index, "message", each) for each in map(plain_value, _messages_in(item))]
        except ValueError as problem:
            raise BadMessage(index, "message", f"{problem}. Try: a dictionary") from problem
        indexes += [index] * (len(plain) - len(indexes))
    return plain, indexes


def one_or_several(message: object) -> object:
    """A list of the message, where it is one."""
    return [message] if isinstance(message, Mapping) or is_dumpable(message) else message


def _messages_in(item: Any) -> Sequence[Any]:
    """The messages of a response of OpenAI, Anthropic or Google; any other item is one."""
    if not is_dumpable(item):
        return [item]
    if choices := getattr(item, "choices", None):
        return [choices[0].message]
    if candidates := getattr(item, "candidates", None):
        return [candidates[0].content]
    if getattr(item, "object", None) == "response":
        return list(item.output)
    if hasattr(item, "stop_reason") and hasattr(item, "content"):
        return [{"role": item.role, "content": item.content}]
    return [item]


def blocks_in(item: Raw) -> list[Raw]:
    """The blocks of an item's content; of one that is a text, or anything else, none."""
    content = item.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def kind_of_value(value: object) -> str:
    """What a JSON value is, in the words of JSON."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, str):
        return "a text"
    return type(value).__name__


def text_at(index: int, field: str, value: object) -> str:
    """The value when it is a text; an error that names the place when not."""
    if isinstance(value, str):
        return value
    raise BadMessage(index, field, f"expected a text, got {kind_of_value(value)}")


def id_at(index: int, field: str, value: object) -> str:
    """The value when it can be an id; an error that names the place when not."""
    if isinstance(value, str) and value:
        return value
    problem = "missing" if value is None or value == "" else f"expected a text, got {kind_of_value(value)}"
    raise BadMessage(index, field, f"{problem}; a call and its result are matched by this id")


def object_at(index: int, field: str, value: object) -> Raw:
    """The value when it is an object; an error that names the place when not."""
    if isinstance(value, dict):
        return value
    raise BadMessage(index, field, f"expected an object, got {kind_of_value(value)}{_hint_for(value)}")


def _hint_for(value: object) -> str:
    """What to do with a value that is not JSON, where a dictionary is needed."""
    if value is None or isinstance(value, (str, int, float, list, tuple)):
        return ""
    return ". Try: a dictionary, or an object with model_dump() or to_dict()"


def blocks_at(index: int, field: str, value: object) -> list[Raw]:
    """The value when it is a list of objects; an error that names the place when not."""
    if not isinstance(value, (list, tuple)):
        raise BadMessage(index, field, f"expected a text or a list of blocks, got {kind_of_value(value)}")
    return [object_at(index, f"{field}[{number}]", block) for number, block in enumerate(value)]


def role_at(index: int, value: object, known: Mapping[str, Any]) -> Any:
    """Our role for the provider's, or an error that lists the roles there are."""
    role = known.get(value) if isinstance(value, str) else None
    if role is None:
        said = "missing" if value is None else f"unknown role {value!r:.40}"
        raise BadMessage(index, "role", f"{said}; known roles: {', '.join(known)}")
    return role


def text_and_media(parts: Sequence[Part]) -> tuple[str, tuple[Media, ...]]:
    """The words of a result's parts, a line each, and its media."""
    words = [part.text for part in parts if not isinstance(part, (Media, ToolCall)) and part.text]
    return "\n".join(words), tuple(part for part in parts if isinstance(part, Media))


def text_like(block: Raw, text: str, kind: str = "text") -> Raw:
    """A text block in the place of another one, with its cache mark."""
    marked = {"cache_control": block["cache_control"]} if "cache_control" in block else {}
    return {"type": kind, "text": text, **marked}


def refuse_thinking(part: Part, text: str | None) -> None:
    """Thinking is kept or left out; an edited one would be rejected by its provider for ever."""
    if text is not None and isinstance(part, Thinking):
        raise ValueError("thinking may be removed, never edited")


MAX_DEPTH = 200
"""Lists and objects within each other. No provider takes half as many."""


def refuse_depth(index: int, item: Raw) -> None:
    """`BadMessage` for a message that is nested too deep, or holds itself."""
    for field, value in item.items():
        if is_deeper(value, MAX_DEPTH - 1):
            problem = f"lists and objects are nested more than {MAX_DEPTH} deep, which is the most. Try: as a JSON text"
            raise BadMessage(index, str(field), problem)


def is_deeper(value: object, most: int) -> bool:
    """Whether lists and objects are nested deeper than that, or hold themselves.

    Level by level, and each list or object once, however often it is held.
    """
    level = [value] if isinstance(value, (dict, list, tuple)) else []
    for _ in range(most):
        level = list({id(inner): inner for outer in level for inner in _held_by(outer)}.values())
        if not level:
            return False
    return True


def _held_by(outer: Any) -> Iterable[Any]:
    values = outer.values() if isinstance(outer, dict) else outer
    return (inner for inner in values if isinstance(inner, (dict, list, tuple)))
