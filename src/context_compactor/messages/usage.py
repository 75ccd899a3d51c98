"""What a provider says a request used, in one shape whatever the provider calls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

_MOST = 10**12
_CACHED_OF_PROMPT = ("cached_tokens", "cached_input_tokens", "prompt_cache_hit_tokens")


class ReportedUsage(Struct, frozen=True):
    """Tokens of one request and its reply. `input` is what was neither read from nor written to a cache."""

    input: int
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0

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

    Known are Anthropic, OpenAI chat and Responses, DeepSeek, Codex and pi, and a `ReportedUsage` written as JSON.
    """
    if not isinstance(value, Mapping):
        return None
    read = _Reader(value)
    cached = read.cached_of_prompt()
    usage = ReportedUsage(
        input=read("input", "input_tokens", "prompt_tokens") - cached,
        cache_write=read("cache_write", "cacheWrite", "cache_creation_input_tokens"),
        cache_read=read("cache_read", "cacheRead", "cache_read_input_tokens") + cached,
        output=read("output", "output_tokens", "completion_tokens"),
    )
    return usage if read.is_sound and usage.input >= 0 and usage.prompt > 0 else None


class _Reader:
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

    def _count(self, record: Mapping[str, Any], names: tuple[str, ...]) -> int:
        value = next((record[name] for name in names if record.get(name) is not None), 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
            self.is_sound = False
            return 0
        return int(value)
