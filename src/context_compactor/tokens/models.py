"""What is known about models: how each family counts tokens, and one table of windows, prices and cache lives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from context_compactor.dialects.detection import dialect_named
from context_compactor.errors import BadSetting
from context_compactor.settings import ModelEntry, is_address


class ModelFamily(Struct, frozen=True):
    """Models that share a tokenizer and a way to write messages down.

    `scale` is how many of their tokens one token of `vocabulary` makes; `margin` the share by which the truth may be
    higher; `call` and `result` what stands around a tool call and its result; `thinking` what a token of visible
    thinking weighs; `drops_thinking` says that thinking of earlier turns is not sent again; `unescapes` that a call's
    arguments are shown to the model without the escapes of JSON.
    """

    name: str
    pattern: str
    vocabulary: str
    scale: float = 1.0
    margin: float = 0.0
    call: int = 8
    result: int = 4
    thinking: float = 1.0
    drops_thinking: bool = False
    unescapes: bool = False
    images: str = "openai"


UNKNOWN_FAMILY = ModelFamily("unknown", "", "o200k_base", margin=0.10)

# Claude's tokenizer is not public. The scales are fitted to 7,000 reported prompts (the newer tokenizer's to its
# maker's statement of a third more); the wrapping of calls and the weight of thinking are fitted to the same prompts.
_CLAUDE = "o200k_base"

# The first pattern found in the name wins, so the narrow ones stand first.
MODEL_FAMILIES = (
    ModelFamily(
        "claude 4.7 and later", r"claude-(?:[a-z]+-)?(?:4[-.][7-9]\b|[5-9]\b)", _CLAUDE, scale=1.5, margin=0.15,
        call=40, result=30, thinking=1.2, images="anthropic-large",
    ),
    ModelFamily(
        "claude 4.5 and 4.6", r"claude-(?:opus-4[-.][56]|sonnet-4[-.]6)\b", _CLAUDE, scale=1.15, margin=0.15,
        call=40, result=30, thinking=1.2, images="anthropic",
    ),
    ModelFamily(
        "claude to 4.5", r"claude-(?:[a-z]+-)?[1-4]\b", _CLAUDE, scale=1.15, margin=0.15,
        call=40, result=30, thinking=1.2, drops_thinking=True, images="anthropic",
    ),
    ModelFamily(
        "claude", r"claude", _CLAUDE, scale=1.2, margin=0.25,
        call=40, result=30, thinking=1.2, images="anthropic-large",
    ),
    ModelFamily("gemini", r"gemini|gemma", "gemma3", margin=0.05, images="gemini"),
    ModelFamily("deepseek", r"deepseek", "deepseek_v3", margin=0.05, call=22, result=21, unescapes=True),
    ModelFamily("llama 2", r"llama-?2|tinyllama|vicuna|code-?llama", "llama2", margin=0.02),
    ModelFamily("llama 3", r"llama-?3", "llama3", margin=0.02),
    ModelFamily("llama", r"llama", "llama3", margin=0.05),
    ModelFamily("qwen", r"qwen|qwq", "qwen3", margin=0.05),
    ModelFamily("mistral 7b", r"mistral-7b|mixtral", "mistral_v2", margin=0.05),
    ModelFamily("mistral", r"mistral|codestral|devstral|magistral|ministral|pixtral", "mistral_v3", margin=0.05),
    ModelFamily("glm", r"\bglm|chatglm", "glm4", margin=0.05),
    ModelFamily("kimi", r"kimi|moonshot", "kimi_k2", margin=0.05),
    ModelFamily("phi 4", r"\bphi-?4", "phi4", margin=0.05),
    ModelFamily("gpt-oss", r"gpt-oss", "o200k_base"),
    ModelFamily("gpt-5.4 and later", r"gpt-(5\.[4-9]|[6-9])", "o200k_base", images="openai-patches"),
    ModelFamily("gpt-4o and later", r"gpt-(4o|4\.[1-9]|5)|chatgpt|codex|\bo[1-9]\b", "o200k_base"),
    ModelFamily("gpt-4", r"gpt-(4|3\.5)|\bgpt-35", "cl100k_base"),
)  # fmt: skip


@cache
def family_of(model: str | None) -> ModelFamily:
    """The family a model's name belongs to, whatever provider or version stands around it."""
    name = plain_name(model)
    return next((family for family in MODEL_FAMILIES if re.search(family.pattern, name)), UNKNOWN_FAMILY)


def plain_name(model: str | None) -> str:
    """A model's name in the spelling that the tables use."""
    return (model or "").lower().replace("_", "-")


ASSUMED_WINDOW = 128_000
_MILLION = 1_000_000
_MEGABYTE = 1024 * 1024
_FIVE_MINUTES, _HALF_HOUR, _HOUR = 300, 1_800, 3_600
_LONG_PAUSE = 120


class Window(Struct, frozen=True):
    """How many tokens a model takes in one request, answer included, and who says so."""

    tokens: int
    source: str

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens ({self.source})"


class Price(Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens. Without rates for the cache, the input rate is used.

    `cache_write_hour` is for what is to stay in the cache for an hour, where a provider sells that. A request of more
    than `long_above` tokens costs `long_input` times as much to read and `long_output` times as much to answer.
    """

    input: float
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_hour: float | None = None
    long_above: int | None = None
    long_input: float = 1.0
    long_output: float = 1.0


class PromptCache(Struct, frozen=True):
    """A provider's cache of one conversation: seconds since it was last used, and how long it keeps what is not used.

    None means not known; then it counts as warm.
    """

    idle_seconds: float | None = None
    seconds: int | None = None

    @property
    def is_cold(self) -> bool:
        """Whether it has expired: the next request pays for the whole context, whatever is in it."""
        return self.idle_seconds is not None and self.seconds is not None and self.idle_seconds > self.seconds

    def in_words(self) -> str:
        """That it has expired, and what follows."""
        minutes = int((self.idle_seconds or 0.0) // 60)
        idle = f"{minutes:,} min" if minutes < _LONG_PAUSE else f"{minutes // 60:,} h"
        return f"the provider's cache has expired after {idle} without a request, so compacting now costs nothing extra"


class KnownModel(Struct, frozen=True, kw_only=True):
    """One row of the table: the models whose name matches `pattern`, who says so, and when that was looked at.

    `output` is the longest answer in tokens, `cache_seconds` how long an unused prefix stays in the provider's cache;
    None where its maker does not say. A row of a family is for names that no other row has: a guess at a window, kept
    small, and no price.
    """

    name: str
    pattern: str
    window: int
    output: int
    price: Price | None = None
    cache_seconds: int | None = None
    source: str
    seen: str
    is_family: bool = False


def _anthropic(
    name: str, window: int, output: int, rates: tuple[float, float, float], pattern: str = "", **long: Any
) -> KnownModel:
    """A Claude. `rates` are input, cache read and output; to write costs 1.25 times the input, for an hour twice."""
    put, read, got = rates
    return KnownModel(
        name=name,
        pattern=pattern or name,
        window=window,
        output=output,
        price=Price(input=put, output=got, cache_read=read, cache_write=1.25 * put, cache_write_hour=2.0 * put, **long),
        cache_seconds=_FIVE_MINUTES,
        source="Anthropic, models overview and pricing",
        seen="2026-11-18",
    )


# Sources of rows that their maker's own pages did not confirm on that day.
_SECOND_HAND = "release notes and price lists of resellers"
_EARLIER = "earlier price lists"

_OPENAI_LONG: dict[str, Any] = {"long_above": 272_000, "long_input": 2.0, "long_output": 1.5}


def _openai(
    name: str, window: int, output: int, rates: tuple[float, float, float], life: int | None, **more: Any
) -> KnownModel:
    """A model of OpenAI. `rates` are input, cached input and output."""
    put, read, got = rates
    pattern, source = more.pop("pattern", re.escape(name)), more.pop("source", "OpenAI, models and pricing")
    return KnownModel(
        name=name,
        pattern=pattern,
        window=window,
        output=output,
        price=Price(input=put, output=got, cache_read=read, **more),
        cache_seconds=life,
        source=source,
        seen="2026-11-18",
    )


def _openai_writes(name: str, rates: tuple[float, float, float]) -> KnownModel:
    """A model of OpenAI from GPT-5.6 on: it charges 1.25 times the input to write, and keeps that for half an hour."""
    more = {"cache_write": 1.25 * rates[0], "source": _SECOND_HAND, **_OPENAI_LONG}
    return _openai(name, 922_000, 128_000, rates, _HALF_HOUR, **more)


def _google(
    name: str,
    output: int,
    rates: tuple[float, float, float],
    source: str = "Google, Gemini API models and pricing",
    **long: Any,
) -> KnownModel:
    put, read, got = rates
    return KnownModel(
        name=name,
        pattern=re.escape(name),
        window=1_048_576,
        output=output,
        price=Price(input=put, output=got, cache_read=read, **long),
        source=source,
        seen="2026-11-18",
    )


def _other(
    maker: str, name: str, window: int, output: int, rates: tuple[float, float, float], pattern: str = "", **long: Any
) -> KnownModel:
    put, read, got = rates
    return KnownModel(
        name=name,
        pattern=pattern or re.escape(name),
        window=window,
        output=output,
        price=Price(input=put, output=got, cache_read=read, **long),
        source=_SECOND_HAND if maker == "xAI" else f"{maker}, models and pricing",
        seen="2026-11-18",
    )


def _family(name: str, pattern: str, window: int, output: int) -> KnownModel:
    return KnownModel(
        name=name,
        pattern=pattern,
        window=window,
        output=output,
        source="what its maker published of the family",
        seen="2026-11-18",
        is_family=True,
    )


_PRO_LONG: dict[str, Any] = {"long_above": 200_000, "long_input": 2.0, "long_output": 1.5}
_GROK_LONG: dict[str, Any] = {"long_above": 200_000, "long_input": 2.0, "long_output": 2.0}

# Newest first. Rows that are no family match a whole name (see `bare_name`). Where a maker limits the input apart from
# the output, the window is the input's. docs/why/models.md says where sources disagree.
KNOWN_MODELS = (
    _anthropic("claude-fable-5-1", _MILLION, 128_000, (10.0, 0.25, 50.0), "claude-(?:fable|mythos)-5-1"),
    _anthropic("claude-fable-5", _MILLION, 128_000, (10.0, 1.0, 50.0), "claude-(?:fable|mythos)-5"),
    _anthropic("claude-opus-5-5", _MILLION, 128_000, (4.0, 0.20, 20.0)),
    _anthropic("claude-opus-5", _MILLION, 128_000, (5.0, 0.50, 25.0)),
    # Anthropic says a million; Claude Code works with 980,000. The smaller number is safe in both.
    _anthropic("claude-opus-4-8", 980_000, 128_000, (5.0, 0.50, 25.0)),
    _anthropic("claude-opus-4-7", _MILLION, 128_000, (5.0, 0.50, 25.0)),
    _anthropic("claude-opus-4-6", _MILLION, 128_000, (5.0, 0.50, 25.0)),
    _anthropic("claude-opus-4-5", 200_000, 64_000, (5.0, 0.50, 25.0)),
    _anthropic("claude-opus-4-1", 200_000, 32_000, (15.0, 1.50, 75.0)),
    _anthropic("claude-opus-4", 200_000, 32_000, (15.0, 1.50, 75.0), "claude-opus-4(?:-0)?"),
    _anthropic("claude-sonnet-5-5", _MILLION, 128_000, (2.0, 0.20, 10.0)),
    _anthropic("claude-sonnet-5", _MILLION, 128_000, (2.0, 0.20, 10.0)),
    _anthropic("claude-sonnet-4-6", _MILLION, 128_000, (3.0, 0.30, 15.0)),
    _anthropic("claude-sonnet-4-5", 200_000, 64_000, (3.0, 0.30, 15.0)),
    _anthropic("claude-sonnet-4", 200_000, 64_000, (3.0, 0.30, 15.0), "claude-sonnet-4(?:-0)?"),
    _anthropic("claude-haiku-5-5", _MILLION, 128_000, (0.10, 0.01, 0.50), long_above=100_000, long_input=5.0,
               long_output=5.0),
    _anthropic("claude-haiku-4-5", 200_000, 64_000, (1.0, 0.10, 5.0)),
    _anthropic("claude-3-7-sonnet", 200_000, 64_000, (3.0, 0.30, 15.0)),
    _anthropic("claude-3-5-sonnet", 200_000, 8_192, (3.0, 0.30, 15.0)),
    _anthropic("claude-3-5-haiku", 200_000, 8_192, (0.80, 0.08, 4.0)),
    _openai_writes("gpt-6.1-sol", (2.0, 0.10, 10.0)),
    _openai_writes("gpt-6.1-terra", (1.0, 0.05, 5.0)),
    _openai_writes("gpt-6-astra", (10.0, 1.0, 50.0)),
    _openai_writes("gpt-6-sol", (2.0, 0.20, 10.0)),
    _openai_writes("gpt-6-luna", (0.10, 0.01, 0.50)),
    _openai_writes("gpt-5.6-sol", (4.0, 0.40, 20.0)),
    _openai_writes("gpt-5.6-terra", (2.0, 0.20, 12.0)),
    _openai_writes("gpt-5.6-luna", (0.20, 0.02, 1.20)),
    # From GPT-5.1 to 5.5 a prefix may be kept for up to a day: when it is gone is not known.
    _openai("gpt-5.5", 922_000, 128_000, (5.0, 0.50, 30.0), None, **_OPENAI_LONG),
    _openai("gpt-5.4", 922_000, 128_000, (2.5, 0.25, 15.0), None, **_OPENAI_LONG),
    _openai("gpt-5.4-mini", 272_000, 128_000, (0.75, 0.075, 4.5), None, source=_EARLIER),
    _openai("gpt-5.4-nano", 272_000, 128_000, (0.20, 0.02, 1.25), None, source=_EARLIER),
    _openai("gpt-5.2", 272_000, 128_000, (1.75, 0.175, 14.0), None, pattern=r"gpt-5\.[23](?:-codex)?"),
    _openai("gpt-5.1", 272_000, 128_000, (1.25, 0.125, 10.0), None, pattern=r"gpt-5\.1(?:-codex(?:-max)?)?"),
    _openai("gpt-5", 272_000, 128_000, (1.25, 0.125, 10.0), _HOUR, pattern="gpt-5(?:-codex)?"),
    _openai("gpt-5-mini", 272_000, 128_000, (0.25, 0.025, 2.0), _HOUR),
    _openai("gpt-5-nano", 272_000, 128_000, (0.05, 0.005, 0.40), _HOUR),
    _openai("gpt-4.1", 1_047_576, 32_768, (2.0, 0.50, 8.0), _HOUR),
    _openai("gpt-4.1-mini", 1_047_576, 32_768, (0.40, 0.10, 1.60), _HOUR),
    _openai("gpt-4.1-nano", 1_047_576, 32_768, (0.10, 0.025, 0.40), _HOUR),
    _openai("gpt-4o", 128_000, 16_384, (2.5, 1.25, 10.0), _HOUR),
    _openai("gpt-4o-mini", 128_000, 16_384, (0.15, 0.075, 0.60), _HOUR),
    _openai("o3", 200_000, 100_000, (2.0, 0.50, 8.0), _HOUR, source=_EARLIER),
    _openai("o4-mini", 200_000, 100_000, (1.10, 0.275, 4.40), _HOUR, source=_EARLIER),
    # Half price to the end of 2026.
    _google("gemini-3.8-flash", 65_536, (0.75, 0.075, 3.75)),
    _google("gemini-3.5-flash", 65_536, (1.50, 0.15, 9.0)),
    _google("gemini-3.5-flash-lite", 65_536, (0.30, 0.03, 2.50)),
    _google("gemini-3.1-pro", 65_536, (2.0, 0.20, 12.0), **_PRO_LONG),
    _google("gemini-3-pro", 65_536, (2.0, 0.20, 12.0), **_PRO_LONG),
    _google("gemini-3-flash", 65_536, (0.50, 0.05, 3.0), _EARLIER),
    _google("gemini-2.5-pro", 65_536, (1.25, 0.125, 10.0), **_PRO_LONG),
    _google("gemini-2.5-flash", 65_536, (0.30, 0.03, 2.50)),
    _google("gemini-2.5-flash-lite", 65_536, (0.10, 0.01, 0.40)),
    # The prices of the hours in which it is dear; in the others it costs half.
    _other("DeepSeek", "deepseek-flash", _MILLION, 384_000, (0.30, 0.006, 1.20), r"deepseek-(?:v4(?:\.1)?-)?flash"),
    _other("DeepSeek", "deepseek-v4-pro", _MILLION, 384_000, (1.32, 0.044, 3.96)),
    _other("xAI", "grok-4.5 to 4.7", 500_000, 64_000, (2.0, 0.50, 6.0), r"grok-4\.[567]", **_GROK_LONG),
    _other("xAI", "grok-4.3 and 4.20", _MILLION, 64_000, (1.25, 0.20, 2.50), r"grok-4\.(?:3|20)", **_GROK_LONG),
    _other("xAI", "grok-4", 256_000, 64_000, (3.0, 0.75, 15.0), long_above=128_000, long_input=2.0, long_output=2.0),
    _family("claude 5 and later", r"claude-(?:[a-z]+-)?(?:[5-9]|\d\d)(?!\d)", _MILLION, 128_000),
    _family("claude 4.6 and later", r"claude-[a-z]+-4[-.](?:[6-9]|\d\d)(?!\d)", _MILLION, 128_000),
    _family("claude 4", r"claude-[a-z]+-4(?!\d)", 200_000, 32_000),
    _family("claude 3", r"claude-(?:3|[a-z]+-3)(?!\d)", 200_000, 8_192),
    _family("claude", r"claude", 200_000, 32_000),
    _family("gpt-*-codex-spark", r"codex-spark", 128_000, 32_000),
    _family("small gpt-5.4 and later", r"gpt-(?:5\.\d+|[6-9][.\d]*|\d\d[.\d]*).*-(?:mini|nano)", 272_000, 128_000),
    _family("gpt-5.4 and later", r"gpt-(?:5\.(?:[4-9]|\d\d)|[6-9]|\d\d)(?!\d)", 922_000, 128_000),
    _family("gpt-5", r"gpt-5", 272_000, 128_000),
    _family("gpt-4.1", r"gpt-4\.1", 1_047_576, 32_768),
    _family("gpt-4o", r"gpt-4o|chatgpt-4o|gpt-4\.5", 128_000, 16_384),
    _family("gpt-4-turbo", r"gpt-4-(?:turbo|1106|0125|vision)", 128_000, 4_096),
    _family("gpt-oss", r"gpt-oss", 131_072, 32_768),
    _family("gpt-4", r"gpt-4", 8_192, 4_096),
    _family("gpt-3.5", r"gpt-3\.?5", 16_385, 4_096),
    _family("o1-mini and o1-preview", r"\bo1-(?:mini|preview)", 128_000, 32_768),
    _family("o1 and later", r"\bo[1-9]\b|codex-mini", 200_000, 100_000),
    _family("gemini-1.5-pro", r"gemini-1\.5-pro", 2_097_152, 8_192),
    _family("gemini-1.5 and 2.0", r"gemini-(?:1\.5|2\.0)", 1_048_576, 8_192),
    _family("gemini", r"gemini", 1_048_576, 65_536),
    _family("gemma-3", r"gemma-?[3-9]", 131_072, 8_192),
    _family("deepseek-v4 and later", r"deepseek-v(?:[4-9]|\d\d)", _MILLION, 65_536),
    _family("deepseek", r"deepseek", 131_072, 8_192),
    _family("long qwen", r"qwen3-coder-plus|qwen-(?:long|turbo|plus)", _MILLION, 65_536),
    _family("qwen3-coder, -max and -next", r"qwen-?3-(?:coder|max|next)|qwen-?3\.\d|qwen-?[4-9]", 262_144, 65_536),
    _family("qwen", r"qwen|qwq", 131_072, 8_192),
    _family("kimi-k2 and later", r"kimi-(?:k|for-coding)", 262_144, 32_768),
    _family("glm-4.6 and later", r"glm-(?:4\.[6-9]|[5-9])", 200_000, 98_304),
    _family("glm-4", r"glm-4", 131_072, 16_384),
    _family("grok-4-fast", r"grok-4(?:[-.]\d)?-fast", 2_000_000, 30_000),
    _family("grok-4.3 and 4.20", r"grok-4\.(?:3|20)(?!\d)", _MILLION, 64_000),
    _family("grok-4.5 and later", r"grok-(?:4\.(?:[5-9]|\d\d)|[5-9]|\d\d)(?!\d)", 500_000, 64_000),
    _family("grok-4", r"grok-(?:4|code|build)", 256_000, 64_000),
    _family("grok", r"grok", 131_072, 32_000),
    _family("minimax-m2", r"minimax-m[2-9]", 196_608, 65_536),
    _family("mistral", r"mistral|codestral|devstral|magistral|ministral|pixtral", 131_072, 16_384),
    _family("mixtral", r"mixtral", 32_768, 4_096),
    _family("llama-4", r"llama-?[4-9]", 1_048_576, 16_384),
    _family("llama-3.1 and later", r"llama-?3[-.][1-9]", 131_072, 8_192),
    _family("llama-3", r"llama-?3", 8_192, 4_096),
    _family("llama-2", r"llama-?2|vicuna", 4_096, 2_048),
    _family("phi-4", r"\bphi-?4", 16_384, 4_096),
)  # fmt: skip
TABLE_DATE = max(known.seen for known in KNOWN_MODELS)
"""When the table was last compared with what makers publish."""

# Programs that run a model with a smaller window than its maker sells, as long as nothing else is known: in Claude Code
# the million of Claude 4.6 and 4.7 depends on the plan, from Opus 4.8 on everybody has it.
_IN_CLIENT = (
    ("claude-code", re.compile(r"claude-[a-z]+-4(?:-[0-7])?"), "claude 4 to 4.7 in Claude Code", 200_000),
    ("codex", re.compile(r"gpt-[56](?!.*spark).*"), "gpt-5 and gpt-6 in Codex", 272_000),
)

_SIZE_IN_NAME = re.compile(r"[-:](\d{1,4})k\b")
_SIZE_MATTERS = ("gpt-4", "gpt-3.5")

_REQUEST_BYTES = (
    (r"bedrock|\b(?:us|eu|apac|global)\.anthropic", 20 * _MEGABYTE),
    (r"vertex", 30 * _MEGABYTE),
    (r"gemini", 20 * _MEGABYTE),
)

# Who sells a model stands in front of its name ("us.anthropic."), a release behind it: "-20251001", "-2026-03-05",
# "@20251001", "-latest", "-v1:0", "-preview-05-06", "-002", ":free", "[1m]".
_SELLER = re.compile(r"^(?:[a-z-]+\.)+(?=[a-z])")
_RELEASE = re.compile(
    r"(?:\[1m\]|(?:-v\d+:\d+|(?<=\d)-v\d+)(?::\d+k)?|:[a-z]+|[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest|default)"
    r"|-preview(?:-\d{2}-\d{2,4})?|-00\d|-\d{4}(?:-(?:non-)?reasoning)?|-(?:non-)?reasoning)$"
)


@cache
def bare_name(model: str | None) -> str:
    """A model's name as its maker says it, without a provider, a region, an address, a date or a release around it."""
    name = _SELLER.sub("", re.split(r"[/#]", plain_name(model))[-1])
    while (shorter := _RELEASE.sub("", name)) != name:
        name = shorter
    return re.sub(r"(?<=\d)\.(?=\d)", "-", name) if name.startswith("claude") else name


@cache
def known_model(model: str | None) -> KnownModel | None:
    """The row of the table for a model: its own, else that of its family."""
    name, bare = plain_name(model), bare_name(model)
    own = (known for known in KNOWN_MODELS if not known.is_family and re.fullmatch(known.pattern, bare))
    family = (known for known in KNOWN_MODELS if known.is_family and re.search(known.pattern, name))
    return next(own, None) or next(family, None)


def own_entry(model: str | None, entries: Mapping[str, ModelEntry] | None) -> ModelEntry | None:
    """What the user says about a model: by its whole name, else by its bare name, else by the first pattern."""
    if not model or not entries:
        return None
    last = re.split(r"[/#]", model)[-1].lower()
    names = (model, last, bare_name(model))
    exact = next((entries[name] for name in names if name in entries), None)
    if exact is not None:
        return exact
    from fnmatch import fnmatchcase

    patterns = (key for key in entries if "*" in key)
    lower = [name.lower() for name in names]
    found = next((key for key in patterns if any(fnmatchcase(name, key.lower()) for name in lower)), None)
    return None if found is None else entries[found]


def window_for(
    model: str | None,
    override: int | None = None,
    reported: int | None = None,
    client: str = "",
    seen: int = 0,
    entries: Mapping[str, ModelEntry] | None = None,
    limit: int | None = None,
) -> Window:
    """A model's context window: a setting wins over what was reported, and that over what is known.

    `client` is the program that runs the model ("claude-code", "codex"); `seen` is the largest prompt that the
    provider has accepted, which no window can be smaller than; `entries` are the user's own; `limit` is what the
    provider named when it refused a request, which no window can be larger than, unless more was accepted.
    """
    if override is not None:
        return Window(_positive(override, "window"), "from the setting")
    own = own_entry(model, entries)
    if own is not None and own.window is not None:
        return Window(own.window, f"from the setting models for {model}")
    if limit is not None and seen <= limit and not 0 < (reported or 0) <= limit:
        return Window(limit, "named by the provider when it refused a request")
    if reported is not None and reported > 0:
        return Window(reported, "reported by the provider or the log")
    known = _window_by_name(model, client)
    if seen > known.tokens:
        larger = next((size for size in (200_000, _MILLION) if size >= seen), seen)
        return Window(larger, f"the provider accepted {seen:,} tokens, more than what is {known.source}")
    return known


def _window_by_name(model: str | None, client: str) -> Window:
    name, bare = plain_name(model), bare_name(model)
    if "[1m]" in name:
        return Window(_MILLION, f"stated in the name {model}")
    in_client = (row for row in _IN_CLIENT if row[0] == client and row[1].fullmatch(bare))
    if smaller := next(in_client, None):
        return Window(smaller[3], f"known for {smaller[2]}")
    named, known = _SIZE_IN_NAME.search(name), known_model(model)
    if named and int(named[1]) > 0 and (known is None or known.name in _SIZE_MATTERS):
        return Window(int(named[1]) * 1_000, f"stated in the name {model}")
    if known:
        return Window(known.window, f"{'assumed' if known.is_family else 'known'} for {known.name}")
    return Window(ASSUMED_WINDOW, f"unknown model: assumed {ASSUMED_WINDOW:,}")


def output_limit_for(model: str | None, entries: Mapping[str, ModelEntry] | None = None) -> int | None:
    """The longest answer a model gives, or None when it is not known."""
    own, known = own_entry(model, entries), known_model(model)
    if own is not None and own.max_output is not None:
        return own.max_output
    return known.output if known else None


def cache_seconds_for(model: str | None, entries: Mapping[str, ModelEntry] | None = None) -> int | None:
    """How long the provider keeps an unused prefix in its cache by default, or None when it is not known."""
    own, known = own_entry(model, entries), known_model(model)
    if own is not None and own.cache_minutes is not None:
        return round(own.cache_minutes * 60)
    return known.cache_seconds if known and not is_address(model) else None


def request_bytes_for(model: str | None, dialect_name: str, override: int | None = None) -> int:
    """How many bytes one request may have."""
    if override is not None:
        return _positive(override, "max_request_bytes")
    name = plain_name(model)
    by_name = next((size for pattern, size in _REQUEST_BYTES if re.search(pattern, name)), None)
    return by_name or dialect_named(dialect_name).request_bytes


def _positive(value: int, setting: str) -> int:
    if value <= 0:
        raise BadSetting(f"{setting} is {value:,}; it must be a positive number, such as {ASSUMED_WINDOW:,}")
    return value
