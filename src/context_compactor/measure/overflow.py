"""How providers say that a request was too long, and the limit they name."""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

_N = r"([\d,_]{3,12})"


class Wording(Struct, frozen=True):
    """One way to say "too long"; the first group of the pattern, where there is one, is the limit."""

    provider: str
    pattern: str


# Written from error messages in public issue trackers; each has a test with such a message.
WORDINGS = (
    Wording("Anthropic, Bedrock", rf"prompt is too long:? {_N} tokens > {_N} maximum"),
    Wording("OpenAI-compatible", rf"prompt is too long: {_N}, model maximum context length: {_N}"),
    Wording("Anthropic", r"prompt is too long"),
    Wording("Anthropic", rf"input length and `?max_tokens`? exceed context limit: {_N} \+ {_N} > {_N}"),
    Wording("Anthropic, bytes", r"request_too_large|request exceeds the maximum size|request too large"),
    Wording("OpenAI", rf"maximum context length (?:is|of|:)? ?\(?{_N}"),
    Wording("OpenAI", r"context_length_exceeded|context length exceeded|string_above_max_length"),
    Wording("OpenAI", r"exceeds? (?:the|this model's) context window|input exceeds the context"),
    Wording("OpenAI Responses on Bedrock", rf"prompt tokens \({_N}\) exceed model maximum \({_N}\)"),
    Wording("Bedrock", r"input is too long|too many input tokens|input exceeds the max input token limit"),
    Wording("Gemini", rf"input token count \(?{_N}\)? exceeds the maximum number of tokens allowed \(?{_N}\)?"),
    Wording("Gemini", r"input token count.{0,40}exceeds|exceeds the maximum number of (?:input )?tokens"),
    Wording("xAI", rf"maximum prompt length is {_N}"),
    Wording("Groq", r"reduce the length of the (?:messages|prompt|input)"),
    Wording("gateway", rf"exceeds? the (?:maximum allowed input length|limit|max(?:imum)? tokens?) of {_N}"),
    Wording("Together", rf"longer than the model'?s context length \({_N}"),
    Wording("llama.cpp", rf"exceeds? the available context size \({_N}"),
    Wording("llama.cpp", rf"exceed_context_size_error.*?\"n_ctx\": ?{_N}"),
    Wording(
        "llama.cpp", r"exceeds? the available context size|exceed_context_size_error|context size has been exceeded"
    ),
    Wording("LM Studio", rf"context (?:the overflows|length) of only {_N}|loaded with context length of {_N}"),
    Wording("LM Studio", r"greater than the context length|not enough (?:room|context) (?:in|for) the context"),
    Wording("vLLM", rf"maximum model length (?:is|of) {_N}|context length is only {_N}"),
    Wording("Mistral", rf"too large for model with {_N} maximum context length"),
    Wording("Ollama", r"prompt too long; exceeded (?:max )?context length|input length exceeds context length"),
    Wording("Kimi", rf"exceeded model token limit: ?{_N}"),
    Wording("DashScope", rf"range of input length should be \[\d+, ?{_N}\]"),
    Wording("MiniMax", r"context window exceeds limit"),
    Wording("Cohere", rf"total tokens exceeds the model'?s max of {_N}"),
    Wording("local server", rf"configured context size is {_N}"),
    Wording("GLM", r"model_context_window_exceeded"),
    Wording("any", r"token limit exceeded|context window (?:is )?(?:full|exceeded)|tokens? in request more than max"),
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
    limits = [_number(match.groups()) for match in found if match and match.groups()]
    return next((limit for limit in limits if limit), None)


def learned_limit(message: str, sent_tokens: int, known: int | None = None) -> int | None:
    """The limit to remember after a rejection: the one named, or a bit less than what was sent; never above `known`."""
    if not is_overflow(message):
        return known
    guess = limit_in(message) or int(sent_tokens * 0.95)
    if guess <= 0:
        return known
    return guess if known is None else min(guess, known)


def is_cut_off(finish_reason: str, prompt_tokens: int, output_tokens: int, window: int) -> bool:
    """Whether an answer ended because the prompt filled the window, which some providers report as `length`."""
    ended_early = finish_reason in ("length", "max_tokens", "model_context_window_exceeded")
    return ended_early and prompt_tokens + output_tokens >= 0.98 * window


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(wording.pattern, re.I | re.S) for wording in WORDINGS)


def _relevant(message: str) -> str:
    return message if len(message) <= _FRONT + _END else f"{message[:_FRONT]}\n{message[-_END:]}"


def _number(groups: tuple[str | None, ...]) -> int | None:
    """The last number of a match: where a message names what was sent and the limit, the limit comes last."""
    digits = [group.replace(",", "").replace("_", "") for group in groups if group]
    return int(digits[-1]) if digits and digits[-1].isdigit() else None
