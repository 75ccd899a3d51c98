"""Tokens and bytes of texts, media and messages, with what a provider's wire format adds around them."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from math import ceil
from operator import index
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from context_compactor.dialects.detection import dialect_named
from context_compactor.dialects.dialect import MAX_DEPTH, Overhead, is_deeper, kind_of_value
from context_compactor.dialects.messages import Media, Message, Part, Thinking, ToolCall, ToolResult
from context_compactor.errors import BadSetting
from context_compactor.json_values import plain_value
from context_compactor.protocols import TokenCounter
from context_compactor.tokens.models import family_of

if TYPE_CHECKING:
    from splintr import AnyTokenizer


_CONTROL_TOKEN = "<|"
_BATCH_CHARACTERS = 500_000
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """The text with lone surrogates replaced, since no tokenizer and no UTF-8 encoder takes them."""
    if text.isascii() or not _LONE_SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class VocabularyCounter:
    """Counts with a bundled vocabulary, times `scale` where it stands in for one that is not public."""

    def __init__(self, vocabulary: str, *, scale: float = 1.0, margin: float = 0.0) -> None:
        self.vocabulary = vocabulary
        self.scale = scale
        self.margin = margin
        self.name = vocabulary if scale == 1.0 else f"{vocabulary} x {scale:g}"

    def count(self, text: str) -> int:
        """The tokens of one text."""
        return self.count_many((text,))[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text; one call is cheaper than many."""
        try:
            counts = _load_counter(self.vocabulary)(texts)
        except UnicodeEncodeError:
            counts = _load_counter(self.vocabulary)([replace_surrogates(text) for text in texts])
        return counts if self.scale == 1.0 else [int(n * self.scale + 0.5) for n in counts]


class FunctionCounter:
    """Counts with any function from a text to a number of tokens."""

    def __init__(self, function: Callable[[str], int], *, margin: float = 0.0) -> None:
        self._function = function
        self.margin = margin
        self.name = getattr(function, "__name__", type(function).__name__)

    def count(self, text: str) -> int:
        """The tokens of one text."""
        try:
            tokens = self._function(text)
        except Exception as problem:  # whatever a user's function raises, the user must learn which function it was
            raise BadSetting(
                f"count_tokens: {self.name} failed on a text of {len(text):,} characters with "
                f"{type(problem).__name__}: {problem}"
            ) from problem
        return self._checked(tokens)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text."""
        return [self.count(text) for text in texts]

    def _checked(self, tokens: object) -> int:
        wrong = BadSetting(
            f"count_tokens: {self.name} must return a whole number of tokens, 0 or more; it returned {tokens!r}"
        )
        if isinstance(tokens, bool) or not hasattr(tokens, "__index__"):
            raise wrong
        number = index(tokens)
        if number < 0:
            raise wrong
        return number


def counter_for(model: str | None) -> TokenCounter:
    """The counter that fits a model's name best; its `margin` says how far to trust it."""
    family = family_of(model)
    return VocabularyCounter(family.vocabulary, scale=family.scale, margin=family.margin)


@cache
def _load_counter(vocabulary: str) -> Callable[[Sequence[str]], list[int]]:
    from splintr import Tokenizer

    tokenizer = Tokenizer.from_pretrained(vocabulary)
    controls = tuple(tokenizer.special_tokens())
    if all(token.startswith(_CONTROL_TOKEN) for token in controls):
        return lambda texts: _count_flat(tokenizer, controls, texts)
    return lambda texts: [len(tokenizer.encode_ordinary(text)) for text in texts]


def _count_flat(tokenizer: AnyTokenizer, controls: Sequence[str], texts: Sequence[str]) -> list[int]:
    """The fastest way to count a batch; it reads control tokens in the text as such, so those texts go again.

    That is slow, and makes a list of all tokens: not for every text in which two signs look like the start of one.
    """
    counts: list[int] = []
    for batch in _batches(texts):
        ends = array("Q")
        ends.frombytes(tokenizer.encode_batch_flat(batch)[1])
        counts += [end - start for start, end in pairwise(ends)]
    for at, text in enumerate(texts):
        if _CONTROL_TOKEN in text and any(control in text for control in controls):
            counts[at] = len(tokenizer.encode_ordinary(_copied(text)))
    return counts


def _copied(value: Any) -> Any:
    """A JSON value with copies of the texts that are not ASCII.

    Python keeps the UTF-8 of a text beside it from when it is first asked for, as long as the text lives, and these
    texts are the caller's.
    """
    if isinstance(value, str):
        return value if value.isascii() else "".join((value, ""))
    if isinstance(value, dict):
        return {_copied(key): _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Texts to count together, as copies that are gone when they are counted."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(_copied(text))
        size += len(text)
        if size > _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# A size nobody told us is taken as a full screenshot: too high is safe, too low overflows.
_UNKNOWN_IMAGE = {
    "anthropic": 1_600,
    "anthropic-large": 2_800,
    "openai": 1_105,
    "openai-patches": 2_500,
    "gemini": 1_120,
}

# Longest edge in pixels and most tokens of one image, before which it is scaled down.
_ANTHROPIC_LIMITS = {"anthropic": (1_568, 1_600), "anthropic-large": (2_576, 4_784)}
_ANTHROPIC_PIXELS_PER_TOKEN = 750

_OPENAI_FIT, _OPENAI_SHORT_EDGE, _OPENAI_TILE = 2_048, 768, 512
_OPENAI_BASE, _OPENAI_PER_TILE = 85, 170
_OPENAI_PATCH, _OPENAI_PER_PATCH, _OPENAI_MOST_PATCHES = 32, 1.2, 10_000

# A page of a document is read as text and as a picture: 1,500 to 3,000 tokens in some 50 KB of PDF.
_BYTES_PER_DOCUMENT_TOKEN = 20
_BYTES_PER_AUDIO_TOKEN = 400
_SMALLEST_DOCUMENT = 500


def media_tokens(media: Media, rule: str, detail: str = "auto") -> int:
    """The tokens one picture, document or sound costs; `rule` names a provider's way to count images."""
    if media.kind == "image":
        return image_tokens(media.width, media.height, rule, detail)
    per_token = _BYTES_PER_AUDIO_TOKEN if media.kind == "audio" else _BYTES_PER_DOCUMENT_TOKEN
    return max(_SMALLEST_DOCUMENT, media.byte_size // per_token)


def image_tokens(width: int, height: int, rule: str, detail: str = "auto") -> int:
    """The tokens of an image of this size; a size that is not known counts as a large one."""
    if detail == "low" and rule.startswith("openai"):
        return _OPENAI_BASE
    if width <= 0 or height <= 0 or rule == "gemini":
        return _UNKNOWN_IMAGE[rule]
    if rule in _ANTHROPIC_LIMITS:
        return _anthropic_image(width, height, *_ANTHROPIC_LIMITS[rule])
    return _openai_patches(width, height) if rule == "openai-patches" else _openai_tiles(width, height)


def _anthropic_image(width: int, height: int, long_edge: int, most: int) -> int:
    shrink = min(1.0, long_edge / max(width, height))
    pixels = width * shrink * height * shrink
    return max(1, min(most, ceil(pixels / _ANTHROPIC_PIXELS_PER_TOKEN)))


def _openai_tiles(width: int, height: int) -> int:
    shrink = min(1.0, _OPENAI_FIT / max(width, height))
    shrink *= min(1.0, _OPENAI_SHORT_EDGE / (min(width, height) * shrink))
    tiles = ceil(width * shrink / _OPENAI_TILE) * ceil(height * shrink / _OPENAI_TILE)
    return _OPENAI_BASE + _OPENAI_PER_TILE * tiles


def _openai_patches(width: int, height: int) -> int:
    patches = ceil(width / _OPENAI_PATCH) * ceil(height / _OPENAI_PATCH)
    return ceil(min(patches, _OPENAI_MOST_PATCHES) * _OPENAI_PER_PATCH)


class PromptSize(Struct, frozen=True):
    """What is sent with every request beside the messages: how many tools, and the tokens of their definitions and of
    the system prompt, without what the wire format adds."""

    tools: int = 0
    tool_tokens: int = 0
    system_tokens: int = 0


class FixedTokens(Struct, frozen=True):
    """Tokens of what is sent with every request beside the messages. `other` is what is only known as a number."""

    tools: int = 0
    system: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """All of them together."""
        return self.tools + self.system + self.other

    def __str__(self) -> str:
        named = {"tools": self.tools, "system": self.system, "overhead_tokens": self.other}
        return ", ".join(f"{name} {tokens:,} tokens" for name, tokens in named.items() if tokens)


# Texts are known by hash and length in one number, so that asking again costs a look-up and no text is kept alive.
_MAX_CACHED_TEXTS = 20_000


class MessageCounter:
    """Counts messages of one dialect with one counter, each text once."""

    def __init__(
        self, counter: TokenCounter, dialect_name: str = "openai-chat", overhead: Overhead | None = None
    ) -> None:
        self.counter = counter
        self.dialect = dialect_named(dialect_name)
        self.overhead = overhead or self.dialect.overhead
        self._known: dict[int, int] = {}

    @property
    def dialect_name(self) -> str:
        """The dialect of the messages."""
        return self.dialect.name

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
        known = self._known.get(hash(text) << 32 | len(text))
        return self.texts((text,))[0] if known is None else known

    def texts(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text; those not seen before are tokenised in one batch."""
        known = self._known
        keys = [hash(text) << 32 | len(text) for text in texts]
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

    def prompt_size(self, tools: object, system: object, known: PromptSize | None = None) -> PromptSize:
        """The size of tool definitions and a system prompt, in the form of any provider; what is None is as `known`.

        Raises `BadSetting` for what is neither.
        """
        known = known or PromptSize()
        if tools is not None:
            counts = self.texts([_json_bytes(tool).decode("utf-8", "replace") for tool in read_tools(tools)])
            known = replace(known, tools=len(counts), tool_tokens=sum(counts))
        if system is not None:
            known = replace(known, system_tokens=self.text(read_system(system)))
        return known

    def fixed_tokens(self, prompt: PromptSize, other: int = 0) -> FixedTokens:
        """The tokens of tools and a system prompt of this size as they stand in front of a request."""
        tools = prompt.tool_tokens + self.overhead.tool * prompt.tools
        return FixedTokens(tools + self.overhead.tools if prompt.tools else 0, prompt.system_tokens, max(0, other))

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

    def _remember(self, counted: dict[int, int]) -> None:
        if len(self._known) + len(counted) > _MAX_CACHED_TEXTS:
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


def last_question(messages: Sequence[Message]) -> int:
    """The index of the last message in which the user says something, or 0."""
    return next((at for at in range(len(messages) - 1, -1, -1) if is_question(messages[at])), 0)


def is_question(message: Message) -> bool:
    """Whether the user speaks in a message, and not a tool."""
    return message.role == "user" and not message.results


_TOOL_LISTS = ("functionDeclarations", "function_declarations")


def read_tools(tools: object) -> list[dict[str, Any]]:
    """The definition of each tool, from a request's list of tools in any dialect or a `toolConfig`.

    Raises `BadSetting` for anything else.
    """
    _refuse_depth("tools", tools)
    plain = _read_plain("tools", tools)
    if isinstance(plain, dict):
        plain = plain.get("tools", [plain] if any(name in plain for name in _TOOL_LISTS) else plain)
    if not isinstance(plain, (list, tuple)):
        raise BadSetting(
            f"tools: expected a list of tool definitions, got {kind_of_value(plain)}. "
            "Try: the value that is sent as `tools` (or `toolConfig`) in the request."
        )
    for number, tool in enumerate(plain):
        if not isinstance(tool, dict):
            raise BadSetting(
                f"tools[{number}]: expected a tool definition, got {kind_of_value(tool)}. "
                "Try: a dictionary, or an object with model_dump() or to_dict()."
            )
    return [each for tool in plain for each in _declarations(tool)]


def declares_recall(tools: object) -> bool:
    """Whether one of these tools is named `recall`, as ours is, or as clients name it behind the name of its server."""
    return any(name == "recall" or name.endswith(("__recall", ".recall")) for name in tool_names(tools))


def tool_names(tools: object) -> Iterator[str]:
    """The names of tools in the form of any provider."""
    return (str((tool.get("function") or tool.get("toolSpec") or tool).get("name")) for tool in read_tools(tools))


def _declarations(tool: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The functions that a tool of Gemini holds, and what else it is; any other tool is one."""
    lists = [tool[name] for name in _TOOL_LISTS if isinstance(tool.get(name), list)]
    yield from (each for declared in lists for each in declared)
    rest = {name: value for name, value in tool.items() if name not in _TOOL_LISTS}
    if rest or not lists:
        yield rest if lists else tool


def read_system(system: object) -> str:
    """The words of a system prompt: a text, blocks with texts, or a message or content that holds them.

    Raises `BadSetting` for anything else.
    """
    _refuse_depth("system", system)
    return _system_text(_read_plain("system", system))


def _system_text(plain: Any) -> str:
    if isinstance(plain, str):
        return plain
    if isinstance(plain, (list, tuple)):
        return "\n".join(filter(None, map(_system_text, plain)))
    if isinstance(plain, dict):
        return _system_text(next((plain[name] for name in ("text", "content", "parts") if plain.get(name)), ""))
    raise BadSetting(
        f"system: expected a text or a list of blocks with texts, got {kind_of_value(plain)}. "
        "Try: the value that is sent as the system prompt in the request."
    )


def _read_plain(name: str, value: object) -> Any:
    try:
        return plain_value(value)
    except ValueError as problem:
        raise BadSetting(f"{name}: {problem}. Try: a dictionary.") from problem


def _refuse_depth(name: str, value: object) -> None:
    if is_deeper(value, MAX_DEPTH):
        raise BadSetting(f"{name}: lists and objects are nested more than {MAX_DEPTH} deep, which is the most")


def message_bytes(message: Message) -> int:
    """The length of the message in a request body: UTF-8 JSON of its raw form."""
    return len(_json_bytes(message.raw if message.raw is not None else message))


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
        return msgspec.json.encode(_copied(value))
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
