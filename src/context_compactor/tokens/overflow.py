"""How providers say that a request was too long, and the limit they name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from msgspec import Struct

_NUMBER_GROUP = r"([\d,_]{3,12})"


class OverflowPattern(Struct, frozen=True):
    """One way to say "too long"; the first group of the pattern, where there is one, is the limit."""

    provider: str
    pattern: str


# Written from error messages in public issue trackers; each has a test with such a message.
OVERFLOW_PATTERNS = (
    OverflowPattern("Anthropic, Bedrock", rf"prompt is too long:? {_NUMBER_GROUP} tokens > {_NUMBER_GROUP} maximum"),
    OverflowPattern(
        "OpenAI-compatible", rf"prompt is too long: {_NUMBER_GROUP}, model maximum context length: {_NUMBER_GROUP}"
    ),
    OverflowPattern("Anthropic", r"prompt is too long"),
    OverflowPattern(
        "Anthropic",
        rf"input length and `?max_tokens`? exceed context limit: {_NUMBER_GROUP} \+ {_NUMBER_GROUP} > {_NUMBER_GROUP}",
    ),
    OverflowPattern("Anthropic, bytes", r"request_too_large|request exceeds the maximum size|request too large"),
    OverflowPattern("OpenAI", rf"maximum context length (?:is|of|:)? ?\(?{_NUMBER_GROUP}"),
    OverflowPattern("OpenAI", r"context_length_exceeded|context length exceeded|string_above_max_length"),
    OverflowPattern("OpenAI", r"exceeds? (?:the|this model's) context window|input exceeds the context"),
    OverflowPattern(
        "OpenAI Responses on Bedrock", rf"prompt tokens \({_NUMBER_GROUP}\) exceed model maximum \({_NUMBER_GROUP}\)"
    ),
    OverflowPattern("Bedrock", r"input is too long|too many input tokens|input exceeds the max input token limit"),
    OverflowPattern(
        "Gemini",
        rf"input token count \(?{_NUMBER_GROUP}\)? exceeds the maximum number of tokens allowed \(?{_NUMBER_GROUP}\)?",
    ),
    OverflowPattern("Gemini", r"input token count.{0,40}exceeds|exceeds the maximum number of (?:input )?tokens"),
    OverflowPattern("xAI", rf"maximum prompt length is {_NUMBER_GROUP}"),
    OverflowPattern("Groq", r"reduce the length of the (?:messages|prompt|input)"),
    OverflowPattern(
        "gateway", rf"exceeds? the (?:maximum allowed input length|limit|max(?:imum)? tokens?) of {_NUMBER_GROUP}"
    ),
    OverflowPattern("Together", rf"longer than the model'?s context length \({_NUMBER_GROUP}"),
    OverflowPattern("llama.cpp", rf"exceeds? the available context size \({_NUMBER_GROUP}"),
    OverflowPattern("llama.cpp", rf"exceed_context_size_error.*?\"n_ctx\": ?{_NUMBER_GROUP}"),
    OverflowPattern(
        "llama.cpp", r"exceeds? the available context size|exceed_context_size_error|context size has been exceeded"
    ),
    OverflowPattern(
        "LM Studio",
        rf"context (?:the overflows|length) of only {_NUMBER_GROUP}|loaded with context length of {_NUMBER_GROUP}",
    ),
    OverflowPattern("LM Studio", r"greater than the context length|not enough (?:room|context) (?:in|for) the context"),
    OverflowPattern("vLLM", rf"maximum model length (?:is|of) {_NUMBER_GROUP}|context length is only {_NUMBER_GROUP}"),
    OverflowPattern("Mistral", rf"too large for model with {_NUMBER_GROUP} maximum context length"),
    OverflowPattern("Ollama", r"prompt too long; exceeded (?:max )?context length|input length exceeds context length"),
    OverflowPattern("Kimi", rf"exceeded model token limit: ?{_NUMBER_GROUP}"),
    OverflowPattern("DashScope", rf"range of input length should be \[\d+, ?{_NUMBER_GROUP}\]"),
    OverflowPattern("MiniMax", r"context window exceeds limit"),
    OverflowPattern("Cohere", rf"total tokens exceeds the model'?s max of {_NUMBER_GROUP}"),
    OverflowPattern("local server", rf"configured context size is {_NUMBER_GROUP}"),
    OverflowPattern("GLM", r"model_context_window_exceeded"),
    OverflowPattern(
        "any", r"token limit exceeded|context window (?:is )?(?:full|exceeded)|tokens? in request more than max"
    ),
)

# These mention tokens too, but waiting helps and compacting does not.
_NOT_OVERFLOW = r"rate.?limit|throttl|too many requests|tokens per (?:minute|day)|quota|overloaded"

# Error bodies may quote the whole request; what they have to say stands in front or at the end.
_FRONT, _END = 6_000, 2_000


def is_overflow(message: str) -> bool:
    """Whether an error message says that a request was too long, as opposed to too many or too fast."""
    text = _relevant(message)
    return not re.search(_NOT_OVERFLOW, text, re.I) and any(pattern.search(text) for pattern in _patterns())


def limit_in(message: str) -> int | None:
    """The limit in tokens that an overflow message names, if it names one."""
    text = _relevant(message)
    found = (pattern.search(text) for pattern in _patterns())
    limits = [_last_number(match.groups()) for match in found if match and match.groups()]
    return next((limit for limit in limits if limit), None)


def learned_limit(errors: Iterable[str]) -> int | None:
    """The limit that the newest of these error messages names, if they are about requests that were too long."""
    limits = [limit for error in errors if is_overflow(error) and (limit := limit_in(error))]
    return limits[-1] if limits else None


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(wording.pattern, re.I | re.S) for wording in OVERFLOW_PATTERNS)


def _relevant(message: str) -> str:
    return message if len(message) <= _FRONT + _END else f"{message[:_FRONT]}\n{message[-_END:]}"


def _last_number(groups: tuple[str | None, ...]) -> int | None:
    """The last number of a match: where a message names what was sent and the limit, the limit comes last."""
    digits = [group.replace(",", "").replace("_", "") for group in groups if group]
    return int(digits[-1]) if digits and digits[-1].isdigit() else None
