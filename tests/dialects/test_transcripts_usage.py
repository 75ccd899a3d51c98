"""Usage records of every provider come to the same four numbers, or to none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.messages import ReportedUsage, read_usage

KNOWN = {
    "Anthropic": (
        {"input_tokens": 3, "cache_creation_input_tokens": 500, "cache_read_input_tokens": 7000, "output_tokens": 90},
        ReportedUsage(3, 500, 7000, 90),
    ),
    "OpenAI chat": (
        {"prompt_tokens": 120, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 100}},
        ReportedUsage(20, 0, 100, 9),
    ),
    "OpenAI Responses": (
        {"input_tokens": 120, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 100}},
        ReportedUsage(20, 0, 100, 9),
    ),
    "Codex": (
        {"input_tokens": 120, "cached_input_tokens": 100, "output_tokens": 9},
        ReportedUsage(20, 0, 100, 9),
    ),
    "DeepSeek": (
        {"prompt_tokens": 120, "completion_tokens": 9, "prompt_cache_hit_tokens": 100},
        ReportedUsage(20, 0, 100, 9),
    ),
    "Gemini": (
        {
            "promptTokenCount": 120,
            "cachedContentTokenCount": 100,
            "candidatesTokenCount": 9,
            "thoughtsTokenCount": 30,
            "toolUsePromptTokenCount": 7,
            "totalTokenCount": 166,
        },
        ReportedUsage(27, 0, 100, 39),
    ),
    "Gemini's SDK": (
        {
            "prompt_token_count": 120,
            "cached_content_token_count": None,
            "candidates_token_count": 9,
            "thoughts_token_count": 30,
            "tool_use_prompt_token_count": None,
        },
        ReportedUsage(120, output=39),
    ),
    "Bedrock": (
        {
            "inputTokens": 3,
            "outputTokens": 90,
            "totalTokens": 7593,
            "cacheReadInputTokens": 7000,
            "cacheWriteInputTokens": 500,
        },
        ReportedUsage(3, 500, 7000, 90),
    ),
    "pi": ({"input": 20, "cacheWrite": 5, "cacheRead": 100, "output": 9}, ReportedUsage(20, 5, 100, 9)),
    "its own form": ({"input": 20, "cache_write": 5, "cache_read": 100, "output": 9}, ReportedUsage(20, 5, 100, 9)),
    "no cache": (
        {"prompt_tokens": 120, "completion_tokens": 9, "prompt_tokens_details": None},
        ReportedUsage(120, output=9),
    ),
}


@pytest.mark.parametrize("provider", KNOWN)
def test_a_provider_is_understood(provider):
    record, usage = KNOWN[provider]
    assert read_usage(record) == usage


def test_the_prompt_is_everything_the_model_was_shown():
    usage = ReportedUsage(20, 5, 100, 9)
    assert (usage.prompt, usage.total) == (125, 134)


UNKNOWN = [
    None,
    {},
    [],
    "many",
    {"input_tokens": 0, "output_tokens": 0},
    {"input_tokens": -5},
    {"input_tokens": 10, "output_tokens": -1},
    {"input_tokens": float("nan")},
    {"input_tokens": float("inf")},
    {"input_tokens": "10"},
    {"input_tokens": 10**12 + 1},
    {"input_tokens": 10**400},
    {"input_tokens": 1e308},
    {"input_tokens": 10, "output_tokens": 10**400},
    {"input_tokens": True},
    {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 20}},
]


@pytest.mark.parametrize("record", UNKNOWN, ids=str)
def test_numbers_that_cannot_be_true_are_unknown(record):
    assert read_usage(record) is None


@given(
    st.dictionaries(
        st.sampled_from(["input", "output", "cache_read", "input_tokens"]), st.none() | st.integers() | st.floats()
    )
)
def test_a_known_usage_has_a_prompt_and_no_number_below_zero(record):
    usage = read_usage(record)
    assert usage is None or (usage.prompt > 0 and min(usage.input, usage.cache_read, usage.output) >= 0)
