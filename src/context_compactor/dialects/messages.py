"""The values every dialect is read into: messages and their parts, the usage a provider reports, and the labels a
repair writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

Role = Literal["system", "developer", "user", "assistant", "tool"]
MediaKind = Literal["image", "document", "audio", "file"]


class Text(Struct, frozen=True, tag_field="part", tag="text"):
    """Words of whoever has the message's role. A refusal is text too."""

    text: str


class Thinking(Struct, frozen=True, tag_field="part", tag="thinking"):
    """A model's reasoning. A signed or sealed one may be kept or left out, never edited."""

    text: str
    signed: bool = False


class ToolCall(Struct, frozen=True, tag_field="part", tag="call"):
    """A request by the model to run a tool. `arguments` is JSON text, or plain text for custom tools."""

    id: str
    name: str
    arguments: str


class ToolResult(Struct, frozen=True, tag_field="part", tag="result"):
    """What a tool answered. `text` joins its text blocks; `content` is the provider's own value."""

    call_id: str
    text: str
    is_error: bool = False
    content: Any = None
    media: tuple[Media, ...] = ()


class Media(Struct, frozen=True, tag_field="part", tag="media"):
    """An image, document or sound. `width` and `height` are 0 when the data does not tell."""

    kind: MediaKind
    media_type: str = ""
    byte_size: int = 0
    width: int = 0
    height: int = 0
    title: str = ""


class Opaque(Struct, frozen=True, tag_field="part", tag="opaque"):
    """A block this version does not know. It is counted and carried, never looked into."""

    type: str
    text: str = ""


PROVIDER_SUMMARY = "compaction"
"""The type of a block or item in which a provider has summarized, readable or sealed, everything before it."""

Part = Text | Thinking | ToolCall | ToolResult | Media | Opaque


class Message(Struct, frozen=True):
    """One message of one role. `parts` follow the order in which a model reads them."""

    role: Role
    parts: tuple[Part, ...]
    raw: Any = None

    @property
    def text(self) -> str:
        """The message's own words, without calls, results and thinking."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def begins_with_summary(self) -> bool:
        """Whether its first block is a summary by the provider of everything before it."""
        return bool(self.parts) and isinstance(self.parts[0], Opaque) and self.parts[0].type == PROVIDER_SUMMARY

    @property
    def is_provider_summary(self) -> bool:
        """Whether it is a summary by the provider of everything before it, and nothing else."""
        return len(self.parts) == 1 and self.begins_with_summary

    @property
    def provider_summary(self) -> str:
        """What a summary by the provider says that it begins with; nothing of one that is sealed."""
        first = self.parts[0] if self.begins_with_summary else None
        text = first.text if isinstance(first, Opaque) else ""
        return "" if text.startswith("{") else text

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls this message makes."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results this message carries."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


NO_RESULT = "[no result was recorded]"
"""The text of a result that stands in for one that never came."""

LOST_CALL = "[result of a call that is not in the history]"
FURTHER_RESULT = "[a further result of the same call]"
LOST_RESULT = "[a call without a result]"
SERVER_TOOL = "[a server tool's call without its result, or the other way round]"
SYSTEM_MESSAGE = "[system message]"
MISSING_HISTORY = "[The history before this point is not available.]"

REPAIR_LABELS = (LOST_CALL, FURTHER_RESULT, LOST_RESULT, SERVER_TOOL, SYSTEM_MESSAGE, MISSING_HISTORY)


def is_repair_text(text: str) -> bool:
    """Whether a text was put into its message by a repair, and not by whoever has the message's role."""
    return text.startswith(REPAIR_LABELS)


_MAX_REPORTED = 10**12
_CACHED_OF_PROMPT = (
    "cached_tokens",
    "cached_input_tokens",
    "prompt_cache_hit_tokens",
    "cachedContentTokenCount",
    "cached_content_token_count",
)


class ReportedUsage(Struct, frozen=True):
    """Tokens of one request and its reply. `input` is what was neither read from nor written to a cache.

    `cache_write_hour` is the part of `cache_write` that is kept for an hour, where the provider reports that.
    """

    input: int
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    cache_write_hour: int = 0

    @property
    def prompt(self) -> int:
        """Everything the model was shown."""
        return self.input + self.cache_write + self.cache_read

    @property
    def total(self) -> int:
        """The prompt and the reply: what the context holds after it."""
        return self.prompt + self.output


def read_usage(value: object) -> ReportedUsage | None:
    """A provider's usage record, or None when there is none or its numbers cannot be true.

    Known are Anthropic, OpenAI chat and Responses, Gemini (REST and SDK), Bedrock, DeepSeek, Codex and pi, and a
    `ReportedUsage` written as JSON.
    """
    if not isinstance(value, Mapping):
        return None
    read = _UsageReader(value)
    cached = read.cached_of_prompt()
    prompt = read("input", "input_tokens", "prompt_tokens", "inputTokens", "promptTokenCount", "prompt_token_count")
    # Gemini counts the results of its own tools apart from the prompt, and thoughts apart from the answer.
    own_tools = read("toolUsePromptTokenCount", "tool_use_prompt_token_count")
    thoughts = read("thoughtsTokenCount", "thoughts_token_count")
    written = read(
        "output", "output_tokens", "completion_tokens", "outputTokens", "candidatesTokenCount", "candidates_token_count"
    )
    usage = ReportedUsage(
        input=prompt + own_tools - cached,
        cache_write=read("cache_write", "cacheWrite", "cache_creation_input_tokens", "cacheWriteInputTokens"),
        cache_read=read("cache_read", "cacheRead", "cache_read_input_tokens", "cacheReadInputTokens") + cached,
        output=written + thoughts,
        cache_write_hour=read("cache_write_hour") or read.kept_for_an_hour(),
    )
    return usage if read.is_sound and usage.input >= 0 and usage.prompt > 0 else None


class _UsageReader:
    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.is_sound = True

    def __call__(self, *names: str) -> int:
        return self._count(self.record, names)

    def cached_of_prompt(self) -> int:
        """Cached tokens that the provider counts inside of its prompt tokens; Anthropic and pi count them apart."""
        for details in (self.record.get("prompt_tokens_details"), self.record.get("input_tokens_details"), self.record):
            if isinstance(details, Mapping) and (cached := self._count(details, _CACHED_OF_PROMPT)):
                return cached
        return 0

    def kept_for_an_hour(self) -> int:
        """Tokens that Anthropic has written to its cache for an hour, and not for five minutes."""
        details = self.record.get("cache_creation")
        return self._count(details, ("ephemeral_1h_input_tokens",)) if isinstance(details, Mapping) else 0

    def _count(self, record: Mapping[str, Any], names: tuple[str, ...]) -> int:
        value = next((record[name] for name in names if record.get(name) is not None), 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_REPORTED:
            self.is_sound = False
            return 0
        return int(value)
