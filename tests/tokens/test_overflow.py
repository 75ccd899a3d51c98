from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.tokens.overflow import OVERFLOW_PATTERNS, is_overflow, limit_in

TOO_LONG = [
    ("prompt is too long: 213462 tokens > 200000 maximum", 200_000),
    (
        '400 {"error":{"type":"invalid_request_error","message":"prompt is too long: 1001 tokens > 1000 maximum"}}',
        1_000,
    ),
    ("The model returned the following errors: prompt is too long: 903884 tokens > 200000 maximum", 200_000),
    ("input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length", 200_000),
    ("The prompt is too long: 267657, model maximum context length: 262143", 262_143),
    ('413 {"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}', None),
    ("This model's maximum context length is 128,000 tokens. However, your messages resulted in 130011", 128_000),
    ("This endpoint's maximum context length is 131072 tokens. However, you requested about 140000", 131_072),
    ("Input length (265330) exceeds model's maximum context length (262144).", 262_144),
    ("Requested token count exceeds the model's maximum context length of 131072 tokens", 131_072),
    ("Your input exceeds the context window of this model. Please adjust your input and try again.", None),
    ("Error code: 400 - {'error': {'code': 'context_length_exceeded'}}", None),
    ("invalid_prompt: prompt tokens (330095) exceed model maximum (278528) for base model", 278_528),
    ("ValidationException: Input is too long for requested model.", None),
    ("ValidationException: Too many input tokens", None),
    ("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", 1_048_575),
    ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
    ("Please reduce the length of the messages or completion.", None),
    ("prompt token count of 150000 exceeds the limit of 128000", 128_000),
    ("Input length 300000 exceeds the maximum allowed input length of 262144 tokens.", 262_144),
    ("The input (140000 tokens) is longer than the model's context length (131072 tokens).", 131_072),
    ("request (66202 tokens) exceeds the available context size (65536 tokens), try increasing it", 65_536),
    ("the request exceeds the available context size, try increasing it", None),
    ('{"type":"exceed_context_size_error","n_prompt_tokens":180283,"n_ctx":180224}', 180_224),
    ("The number of tokens to keep from the initial prompt is greater than the context length", None),
    ("the model is loaded with context length of only 4096 tokens, which is not enough", None),
    ("The prompt is longer than the maximum model length of 32768", 32_768),
    ("Prompt contains 140000 tokens, too large for model with 131072 maximum context length", 131_072),
    ("prompt too long; exceeded max context length by 310 tokens", None),
    ("Your request exceeded model token limit: 262144 (requested: 300000)", 262_144),
    ("Range of input length should be [1, 129024]", 129_024),
    ("invalid params, context window exceeds limit", None),
    ("total tokens exceeds the model's max of 4096", 4_096),
    ("Prompt has 9000 tokens, but the configured context size is 8192 tokens", 8_192),
    ("Unhandled stop reason: model_context_window_exceeded", None),
]

SOMETHING_ELSE = [
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "Rate limit reached for gpt-4o: limit 30000 tokens per minute, context length exceeded soon",
    "429 Too Many Requests",
    "You exceeded your current quota, please check your plan",
    "401 invalid api key",
    "Overloaded",
    "connection reset by peer",
    "max_tokens: 99999 > 8192, which is the maximum allowed number of output tokens",
    "",
]


@pytest.mark.parametrize(("message", "limit"), TOO_LONG)
def test_an_overflow_is_recognised_and_its_limit_read(message, limit):
    assert is_overflow(message)
    if limit is not None:
        assert limit_in(message) == limit


@pytest.mark.parametrize("message", SOMETHING_ELSE)
def test_other_errors_are_no_overflow(message):
    assert not is_overflow(message)


def test_a_huge_error_body_is_read_at_both_ends_alone():
    body = "x" * 5_000_000
    assert is_overflow(f"prompt is too long {body}")
    assert is_overflow(f"{body} prompt is too long")


@given(st.text())
def test_any_text_can_be_asked(message):
    assert is_overflow(message) in (True, False)
    limit = limit_in(message)
    assert limit is None or limit >= 0


def test_every_wording_says_whose_it_is():
    assert all(wording.provider and wording.pattern for wording in OVERFLOW_PATTERNS)
