from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.errors import BadSetting
from context_compactor.tokens.models import KNOWN_MODELS, Window, output_limit_for, request_bytes_for, window_for

MODELS = [
    ("claude-sonnet-4-20250514", 200_000, "known for claude-sonnet-4*"),
    ("claude-opus-4-1-20250805", 200_000, "known for claude-opus-4*"),
    ("claude-sonnet-4-5-20250929", 200_000, "known for claude-*-4.5*"),
    ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", 200_000, "known for claude-3*"),
    ("claude-sonnet-4-5-20250929[1m]", 1_000_000, "known for models with [1m]"),
    ("claude-opus-4-6", 1_000_000, "known for claude-*-4.6* and later"),
    ("anthropic/claude-opus-5", 1_000_000, "known for claude 5 and later"),
    ("gpt-4.1-mini", 1_047_576, "known for gpt-4.1*"),
    ("gpt-4o-2024-08-06", 128_000, "known for gpt-4o*"),
    ("gpt-4-32k", 32_000, "stated in the name gpt-4-32k"),
    ("moonshot-v1-128k", 128_000, "stated in the name moonshot-v1-128k"),
    ("gemini-2.5-flash", 1_048_576, "known for gemini*"),
    ("gemini-1.5-pro-002", 2_097_152, "known for gemini-1.5-pro*"),
    ("deepseek_chat", 131_072, "known for deepseek*"),
    ("some-model-of-mine", 128_000, "unknown model: assumed 128,000"),
    (None, 128_000, "unknown model: assumed 128,000"),
]


@pytest.mark.parametrize(("model", "tokens", "source"), MODELS)
def test_a_window_is_known_by_the_models_name_and_says_so(model, tokens, source):
    assert window_for(model) == Window(tokens, source)


def test_a_setting_wins_over_a_report_and_a_report_over_the_table():
    assert window_for("gpt-4o", override=64_000, reported=32_000) == Window(64_000, "from the setting")
    assert window_for("gpt-4o", reported=32_000) == Window(32_000, "reported by the provider or the log")
    assert window_for("gpt-4o", reported=0) == window_for("gpt-4o")


def test_a_setting_may_be_larger_than_what_is_known():
    assert window_for("claude-sonnet-4-5", override=1_000_000).tokens == 1_000_000


@pytest.mark.parametrize("override", [0, -5])
def test_a_window_that_is_not_positive_is_refused(override):
    with pytest.raises(BadSetting, match=f"window is {override}; it must be a positive number"):
        window_for("gpt-4o", override=override)


def test_a_client_may_run_a_model_with_a_smaller_window():
    assert window_for("claude-opus-4-6", client="claude-code").tokens == 200_000
    assert window_for("claude-opus-4-6[1m]", client="claude-code").tokens == 1_000_000
    assert window_for("claude-opus-5", client="claude-code").tokens == 1_000_000
    assert window_for("gpt-5.5", client="codex").tokens == 272_000


def test_a_prompt_that_was_accepted_shows_that_the_window_is_larger():
    window = window_for("claude-sonnet-4-5", seen=250_000)
    assert window.tokens == 1_000_000
    assert "accepted 250,000 tokens" in window.source
    assert window_for("claude-sonnet-4-5", seen=150_000).tokens == 200_000


def test_a_window_prints_with_its_source():
    assert str(window_for("gpt-4o")) == "128,000 tokens (known for gpt-4o*)"


@given(st.one_of(st.none(), st.text(max_size=60)), st.sampled_from(["", "codex", "claude-code"]))
def test_any_name_has_a_window(model, client):
    window = window_for(model, client=client)
    assert window.tokens > 0
    assert window.source


def test_every_answer_is_shorter_than_its_window():
    assert all(0 < known.output < known.tokens for known in KNOWN_MODELS)
    assert output_limit_for("gpt-4o") == 16_384
    assert output_limit_for("unheard-of") is None


def test_request_bytes_depend_on_who_takes_the_request():
    megabyte = 1024 * 1024
    assert request_bytes_for("claude-opus-5", "anthropic") == 32 * megabyte
    assert request_bytes_for("bedrock/anthropic.claude-sonnet-4", "anthropic") == 20 * megabyte
    assert request_bytes_for("gpt-5", "openai-responses") == 50 * megabyte
    assert request_bytes_for("gpt-5", "openai-chat", override=1_000) == 1_000
    with pytest.raises(BadSetting, match="max_request_bytes is 0"):
        request_bytes_for("gpt-5", "openai-chat", override=0)
