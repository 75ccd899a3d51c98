"""What is known about models: how each family counts tokens, context windows, output limits and request sizes."""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

from context_compactor.dialects.detection import dialect_named
from context_compactor.errors import BadSetting


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


class Window(Struct, frozen=True):
    """How many tokens a model takes in one request, answer included, and who says so."""

    tokens: int
    source: str

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens ({self.source})"


class KnownModel(Struct, frozen=True):
    """What a maker publishes about the models whose names match; `output` is the longest answer."""

    label: str
    pattern: str
    tokens: int
    output: int


# The first pattern found in the name wins, so the narrow ones stand first. Where a maker limits the input apart from
# the output, the number is the input's.
KNOWN_MODELS = (
    KnownModel("models with [1m]", r"\[1m\]", _MILLION, 64_000),
    KnownModel("claude 5 and later", r"claude-(?:[a-z]+-)?[5-9]\b", _MILLION, 128_000),
    KnownModel("claude-*-4.6* and later", r"claude-[a-z]+-4[-.][6-9]\b", _MILLION, 128_000),
    KnownModel("claude-*-4.5*", r"claude-[a-z]+-4[-.]5\b", 200_000, 64_000),
    KnownModel("claude-opus-4*", r"claude-opus-4\b", 200_000, 32_000),
    KnownModel("claude-sonnet-4*", r"claude-sonnet-4\b|claude-3[-.]7", 200_000, 64_000),
    KnownModel("claude-3*", r"claude-(?:3|[a-z]+-3)\b", 200_000, 8_192),
    KnownModel("claude*", r"claude", 200_000, 32_000),
    KnownModel("gpt-5*-codex-spark", r"codex-spark", 128_000, 32_000),
    KnownModel("gpt-5.4* and later (input part of 1,050,000)", r"gpt-(?:5\.[4-9]|[6-9])", 922_000, 128_000),
    KnownModel("gpt-5* (input part of 400,000)", r"gpt-5", 272_000, 128_000),
    KnownModel("gpt-4.1*", r"gpt-4\.1", 1_047_576, 32_768),
    KnownModel("gpt-4o*", r"gpt-4o|chatgpt-4o|gpt-4\.5", 128_000, 16_384),
    KnownModel("gpt-4-turbo*", r"gpt-4-(?:turbo|1106|0125|vision)", 128_000, 4_096),
    KnownModel("gpt-oss*", r"gpt-oss", 131_072, 32_768),
    KnownModel("gpt-4", r"gpt-4", 8_192, 4_096),
    KnownModel("gpt-3.5*", r"gpt-3\.?5", 16_385, 4_096),
    KnownModel("o1-mini and o1-preview", r"\bo1-(?:mini|preview)", 128_000, 32_768),
    KnownModel("o1*, o3*, o4*", r"\bo[134]\b|codex-mini", 200_000, 100_000),
    KnownModel("gemini-1.5-pro*", r"gemini-1\.5-pro", 2_097_152, 8_192),
    KnownModel("gemini-1.5* and 2.0*", r"gemini-(?:1\.5|2\.0)", 1_048_576, 8_192),
    KnownModel("gemini*", r"gemini", 1_048_576, 65_536),
    KnownModel("gemma-3*", r"gemma-?[3-9]", 131_072, 8_192),
    KnownModel("deepseek-v4*", r"deepseek-v[4-9]", _MILLION, 65_536),
    KnownModel("deepseek*", r"deepseek", 131_072, 8_192),
    KnownModel("qwen3-coder-plus and other long qwen", r"qwen3-coder-plus|qwen-(?:long|turbo|plus)", _MILLION, 65_536),
    KnownModel("qwen3-coder*, -max and -next", r"qwen-?3-(?:coder|max|next)|qwen-?3\.\d", 262_144, 65_536),
    KnownModel("qwen*", r"qwen|qwq", 131_072, 8_192),
    KnownModel("kimi-k2* and later", r"kimi-(?:k|for-coding)", 262_144, 32_768),
    KnownModel("glm-4.6* and later", r"glm-(?:4\.[6-9]|[5-9])", 200_000, 98_304),
    KnownModel("glm-4*", r"glm-4", 131_072, 16_384),
    KnownModel("grok-4-fast", r"grok-4(?:[-.]\d)?-fast", 2_000_000, 30_000),
    KnownModel("grok-4.5* and later", r"grok-(?:4\.[5-9]|[5-9])", 500_000, 64_000),
    KnownModel("grok-4*", r"grok-(?:4|code)", 256_000, 64_000),
    KnownModel("grok*", r"grok", 131_072, 32_000),
    KnownModel("minimax-m2*", r"minimax-m[2-9]", 196_608, 65_536),
    KnownModel("mistral*", r"mistral|codestral|devstral|magistral|ministral|pixtral", 131_072, 16_384),
    KnownModel("mixtral*", r"mixtral", 32_768, 4_096),
    KnownModel("llama-4*", r"llama-?4", 1_048_576, 16_384),
    KnownModel("llama-3.1* and later", r"llama-?3[-.][1-9]", 131_072, 8_192),
    KnownModel("llama-3", r"llama-?3", 8_192, 4_096),
    KnownModel("llama-2", r"llama-?2|vicuna", 4_096, 2_048),
    KnownModel("phi-4*", r"\bphi-?4", 16_384, 4_096),
)

# Some clients run a model with a smaller window than its maker sells.
_IN_CLIENT = (
    ("claude-code", KnownModel("claude-*-4* in Claude Code", r"claude-[a-z]+-4\b", 200_000, 32_000)),
    ("codex", KnownModel("gpt-5* in Codex", r"gpt-5(?!.*spark)", 272_000, 128_000)),
)

_SIZE_IN_NAME = re.compile(r"[-:](\d{1,4})k\b")

_REQUEST_BYTES = (
    (r"bedrock|\b(?:us|eu|apac|global)\.anthropic", 20 * _MEGABYTE),
    (r"vertex", 30 * _MEGABYTE),
    (r"gemini", 20 * _MEGABYTE),
)


def window_for(
    model: str | None, override: int | None = None, reported: int | None = None, client: str = "", seen: int = 0
) -> Window:
    """A model's context window: a setting wins over what was reported, and that over what is known.

    `client` is the program that runs the model ("claude-code", "codex"); `seen` is the largest prompt that the
    provider has accepted, which no window can be smaller than.
    """
    if override is not None:
        return Window(_positive(override, "window"), "from the setting")
    if reported is not None and reported > 0:
        return Window(reported, "reported by the provider or the log")
    known = _window_by_name(model, client)
    if seen > known.tokens:
        larger = next((size for size in (200_000, _MILLION) if size >= seen), seen)
        return Window(larger, f"the provider accepted {seen:,} tokens, more than what is {known.source}")
    return known


def _window_by_name(model: str | None, client: str) -> Window:
    named = _SIZE_IN_NAME.search(plain_name(model))
    known = known_model(model, client)
    if named and int(named[1]) > 0 and (known is None or known.label in ("gpt-4", "gpt-3.5*")):
        return Window(int(named[1]) * 1_000, f"stated in the name {model}")
    if known:
        return Window(known.tokens, f"known for {known.label}")
    return Window(ASSUMED_WINDOW, f"unknown model: assumed {ASSUMED_WINDOW:,}")


def output_limit_for(model: str | None, client: str = "") -> int | None:
    """The longest answer a model gives, or None when it is not known."""
    known = known_model(model, client)
    return known.output if known else None


def request_bytes_for(model: str | None, dialect_name: str, override: int | None = None) -> int:
    """How many bytes one request may have."""
    if override is not None:
        return _positive(override, "max_request_bytes")
    name = plain_name(model)
    by_name = next((size for pattern, size in _REQUEST_BYTES if re.search(pattern, name)), None)
    return by_name or dialect_named(dialect_name).request_bytes


@cache
def known_model(model: str | None, client: str = "") -> KnownModel | None:
    """What is published about a model, whatever provider, date or region stands around its name."""
    name = plain_name(model)
    in_client = [known for program, known in _IN_CLIENT if program == client and "[1m]" not in name]
    return next((known for known in (*in_client, *KNOWN_MODELS) if re.search(known.pattern, name)), None)


def _positive(value: int, setting: str) -> int:
    if value <= 0:
        raise BadSetting(f"{setting} is {value:,}; it must be a positive number, such as {ASSUMED_WINDOW:,}")
    return value
