"""Tokens and bytes of messages: the texts of every part, and what a provider's wire format adds around them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from context_compactor.errors import BadSetting
from context_compactor.measure.families import family_of
from context_compactor.measure.media import media_tokens
from context_compactor.measure.tokens import FunctionCounter, counter_for
from context_compactor.messages.message import Media, Message, Part, Thinking, ToolCall, ToolResult
from context_compactor.protocols import TokenCounter


class Overhead(Struct, frozen=True):
    """What stands around the texts: tokens per request, message, name, call, result, tool and list of tools."""

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


# Chat numbers are OpenAI's own counting recipe; the others are fitted to reported usage.
OVERHEADS = {
    "openai-chat": Overhead(request=3, message=3, name=1, call=8, result=4, tool=8, tools=12, images="openai"),
    "openai-responses": Overhead(request=3, message=3, name=1, call=8, result=4, tool=8, tools=12, images="openai"),
    "anthropic": Overhead(request=8, message=4, name=0, call=40, result=30, tool=12, tools=346, images="anthropic"),
}

# Texts are known by hash and length, so that asking again costs a look-up and no text is kept alive.
_MOST_TEXTS = 20_000


class MessageCounter:
    """Counts messages of one dialect with one counter, each text once."""

    def __init__(
        self, counter: TokenCounter, dialect_name: str = "openai-chat", overhead: Overhead | None = None
    ) -> None:
        if dialect_name not in OVERHEADS:
            raise BadSetting(f"dialect {dialect_name!r} is not known; use one of {', '.join(OVERHEADS)}")
        self.counter = counter
        self.dialect_name = dialect_name
        self.overhead = overhead or OVERHEADS[dialect_name]
        self._known: dict[tuple[int, int], int] = {}

    @property
    def margin(self) -> float:
        """The share by which the truth may be higher than our counts."""
        return self.counter.margin

    def count(self, message: Message) -> int:
        """The tokens of one message, with what stands around it on the wire."""
        return self.frame_tokens(message) + sum(self.part_tokens(message))

    def count_many(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of each message; texts not seen before are tokenised in one batch."""
        self.learn(messages)
        return [self.count(message) for message in messages]

    def request_tokens(self, messages: Sequence[Message]) -> int:
        """The tokens of a request made of these messages, without what the provider leaves out and without tools."""
        sent = sum(self.count_many(messages)) + self.overhead.request
        return sent - sum(self.dropped_thinking(messages)) if self.overhead.drops_thinking else sent

    def dropped_thinking(self, messages: Sequence[Message]) -> Iterator[int]:
        """The tokens of each thinking part that some providers leave out: those before the last user's words."""
        for message in messages[: last_question(messages)]:
            if any(isinstance(part, Thinking) for part in message.parts):
                tokens = self.part_tokens(message)
                yield sum(n for n, part in zip(tokens, message.parts, strict=True) if isinstance(part, Thinking))

    def part_tokens(self, message: Message) -> tuple[int, ...]:
        """The tokens of each part of a message."""
        details = _image_details(message)
        return tuple([self._part(part, message, details) for part in message.parts])

    def frame_tokens(self, message: Message) -> int:
        """What the wire format adds around a message, whatever is in it."""
        raw = message.raw if isinstance(message.raw, dict) and "role" in message.raw else {}
        name = raw.get("name")
        return self.overhead.message + (self.overhead.name + self.text(name) if isinstance(name, str) else 0)

    def text(self, text: str) -> int:
        """The tokens of one text."""
        known = self._known.get((hash(text), len(text)))
        return self.texts((text,))[0] if known is None else known

    def texts(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text; those not seen before are tokenised in one batch."""
        known = self._known
        keys = [(hash(text), len(text)) for text in texts]
        fresh = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if not fresh:
            return [known[key] for key in keys]
        counted = dict(zip(fresh, self.counter.count_many(list(fresh.values())), strict=True))
        counts = [counted[key] if key in counted else known[key] for key in keys]
        self._remember(counted)
        return counts

    def learn(self, messages: Iterable[Message]) -> None:
        """Tokenise in one batch every text of these messages that was not seen before."""
        self.texts([text for message in messages for part in message.parts for text in self._texts_of(part)])

    def count_tools(self, tools: Sequence[Any] | None) -> int:
        """The tokens of tool definitions as they stand in front of a request."""
        if not tools:
            return 0
        counts = self.texts([json_text(tool) for tool in tools])
        return self.overhead.tools + sum(counts) + self.overhead.tool * len(counts)

    def _part(self, part: Part, message: Message, details: Iterator[str]) -> int:
        if isinstance(part, ToolResult):
            return self.text(part.text) + self.overhead.result + sum(self._media(m, details) for m in part.media)
        if isinstance(part, ToolCall):
            return sum(map(self.text, self._texts_of(part))) + self.overhead.call
        if isinstance(part, Media):
            return self._media(part, details)
        if isinstance(part, Thinking):
            return round(self.text(part.text) * self.overhead.thinking) if part.text else sealed_tokens(message)
        return self.text(part.text)

    def _texts_of(self, part: Part) -> tuple[str, ...]:
        if isinstance(part, ToolCall):
            arguments = part.arguments
            if self.overhead.unescapes:
                arguments = arguments.replace("\\n", "\n").replace('\\"', '"')
            return (part.name, arguments)
        return () if isinstance(part, Media) else (part.text,)

    def _media(self, media: Media, details: Iterator[str]) -> int:
        detail = next(details, "auto") if media.kind == "image" else "auto"
        title = self.text(media.title) if media.title else 0
        return title + media_tokens(media, self.overhead.images, detail)

    def _remember(self, counted: dict[tuple[int, int], int]) -> None:
        if len(self._known) + len(counted) > _MOST_TEXTS:
            self._known.clear()
        self._known.update(counted)


def message_counter_for(
    model: str | None, dialect_name: str = "openai-chat", count_tokens: Callable[[str], int] | None = None
) -> MessageCounter:
    """The counter for a model's messages in a dialect; `count_tokens` replaces the tokenizer and nothing else."""
    counter = FunctionCounter(count_tokens) if count_tokens else counter_for(model)
    plain = MessageCounter(counter, dialect_name)
    family = family_of(model)
    if family.pattern:
        plain.overhead = replace(
            plain.overhead,
            call=family.call,
            result=family.result,
            images=family.images,
            thinking=family.thinking,
            drops_thinking=family.drops_thinking,
            unescapes=family.unescapes,
        )
    return plain


def count_message(message: Message, counter: TokenCounter, dialect_name: str) -> int:
    """The tokens of one message. Make a `MessageCounter` to count more than one."""
    return MessageCounter(counter, dialect_name).count(message)


def last_question(messages: Sequence[Message]) -> int:
    """The index of the last message in which the user says something, or 0."""
    return next((at for at in range(len(messages) - 1, -1, -1) if is_question(messages[at])), 0)


def is_question(message: Message) -> bool:
    """Whether the user speaks in a message, and not a tool."""
    return message.role == "user" and not message.results


def message_bytes(message: Message) -> int:
    """The length of the message in a request body: UTF-8 JSON of its raw form."""
    return len(_json_bytes(message.raw if message.raw is not None else message))


def json_text(value: Any) -> str:
    """A value as compact JSON text, whatever strange things are in it."""
    return _json_bytes(value).decode("utf-8", "replace")


def sealed_tokens(message: Message) -> int:
    """A careful guess for a thinking part that only its provider can read, from the length of its seal."""
    raw = message.raw if isinstance(message.raw, dict) else {}
    content = raw.get("content")
    blocks = [raw, *(content if isinstance(content, list) else ())]
    length = sum(_seal_length(block) for block in blocks if isinstance(block, dict))
    parts = sum(isinstance(part, Thinking) and not part.text for part in message.parts)
    # Base64 of an encrypted text of about four bytes a token, behind a header of some 650 bytes.
    return max(0, length * 3 // 4 // max(1, parts) - 650) // 4


def _seal_length(block: dict[str, Any]) -> int:
    keys = ["data", "encrypted_content"] if block.get("thinking") else ["data", "encrypted_content", "signature"]
    return sum(len(seal) for key in keys if isinstance(seal := block.get(key), str))


def _json_bytes(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError):
        return json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":")).encode("utf-8", "replace")


def _image_details(message: Message) -> Iterator[str]:
    """The `detail` of each image of a message, in order."""
    content = message.raw.get("content") if isinstance(message.raw, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") in ("image_url", "input_image"):
            inner = block.get("image_url")
            holder = inner if isinstance(inner, dict) else block
            yield str(holder.get("detail", "auto"))
