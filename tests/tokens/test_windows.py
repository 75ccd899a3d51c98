from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.errors import BadSetting
from context_compactor.settings import ModelEntry
from context_compactor.tokens.models import (
    KNOWN_MODELS,
    PromptCache,
    Window,
    cache_seconds_for,
    known_model,
    output_limit_for,
    request_bytes_for,
    window_for,
)

MODELS = [
    ("claude-opus-4-8", 980_000, "known for claude-opus-4-8"),
    ("us.anthropic.claude-opus-4-8-v1:0", 980_000, "known for claude-opus-4-8"),
    ("claude-sonnet-4-20250514", 200_000, "known for claude-sonnet-4"),
    ("claude-opus-4-1-20250805", 200_000, "known for claude-opus-4-1"),
    ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", 200_000, "known for claude-3-5-sonnet"),
    ("claude-sonnet-4-5-20250929[1m]", 1_000_000, "stated in the name claude-sonnet-4-5-20250929[1m]"),
    ("anthropic/claude-opus-5", 1_000_000, "known for claude-opus-5"),
    ("gpt-4o-2024-08-06", 128_000, "known for gpt-4o"),
    ("gpt-4-32k", 32_000, "stated in the name gpt-4-32k"),
    ("moonshot-v1-128k", 128_000, "stated in the name moonshot-v1-128k"),
    ("gemini-2.5-flash", 1_048_576, "known for gemini-2.5-flash"),
    ("gemini-1.5-pro-002", 2_097_152, "assumed for gemini-1.5-pro"),
    ("deepseek_chat", 131_072, "assumed for deepseek"),
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


OWN_ROWS = [known for known in KNOWN_MODELS if not known.is_family]
AROUND = [
    "{}",
    "anthropic/{}",
    "openrouter/maker/{}",
    "us.anthropic.{}-v1:0",
    "bedrock/eu.maker.{}-20251001-v1:0",
    "vertex_ai/{}@20251001",
    "{}-2026-01-31",
    "{}-latest",
    "{}[1m]",
    "{}:free",
    "litellm/azure/{}",
]


@pytest.mark.parametrize("known", [known for known in OWN_ROWS if " " not in known.name], ids=lambda known: known.name)
def test_a_name_finds_its_own_row_whatever_stands_around_it(known):
    assert [around for around in AROUND if known_model(around.format(known.name)) is not known] == []


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("claude-fable-5.1", "claude-fable-5-1"),
        ("claude-mythos-5-1", "claude-fable-5-1"),
        ("anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
        ("claude-opus-4.8", "claude-opus-4-8"),
        ("gemini-3.1-pro-preview", "gemini-3.1-pro"),
        ("models/gemini-2.5-pro-preview-05-06", "gemini-2.5-pro"),
        ("grok-4.20-0309-reasoning", "grok-4.3 and 4.20"),
        ("grok-4.6", "grok-4.5 to 4.7"),
        ("deepseek-v4-flash", "deepseek-flash"),
        ("gpt-5.3-codex", "gpt-5.2"),
    ],
)
def test_other_spellings_of_a_name_find_its_row(name, row):
    assert known_model(name).name == row


@pytest.mark.parametrize(
    ("newer", "than"),
    [
        ("claude-opus-5-9", "claude-opus-5-5"),
        ("claude-opus-4-10", "claude-opus-4-6"),
        ("claude-opus-10", "claude-opus-5"),
        ("claude-saga-6-1", "claude-fable-5-1"),
        ("claude-haiku-6", "claude-haiku-5-5"),
        ("gpt-6.2-sol", "gpt-6.1-sol"),
        ("gpt-5.10", "gpt-5.4"),
        ("gpt-7", "gpt-6-sol"),
        ("gpt-11.2-astra", "gpt-6-astra"),
        ("gemini-4-pro", "gemini-3.1-pro"),
        ("deepseek-v5-pro", "deepseek-v4-pro"),
        ("grok-6", "grok-4.6"),
    ],
)
def test_a_newer_version_that_is_not_known_has_the_window_of_its_family_and_no_price(newer, than):
    assert known_model(newer).is_family
    assert known_model(newer).price is None
    assert window_for(newer).tokens >= window_for(than).tokens


def test_no_pattern_of_a_row_hides_a_row_below_it():
    for known in OWN_ROWS:
        found = [other for other in OWN_ROWS if re.fullmatch(other.pattern, known.name)]
        assert found in ([known], [])


def test_an_own_entry_wins_over_a_report_and_over_the_table():
    own = {"my-model": ModelEntry(window=64_000), "claude-*": ModelEntry(window=500_000, max_output=9_000)}
    assert window_for("my-model", reported=32_000, entries=own).tokens == 64_000
    assert window_for("anthropic/claude-opus-4-8", entries=own).tokens == 500_000
    assert window_for("claude-opus-4-8", override=7_000, entries=own).tokens == 7_000
    assert window_for("gpt-4o", entries=own) == window_for("gpt-4o")
    assert output_limit_for("claude-opus-4-8", own) == 9_000


def test_a_limit_that_the_provider_named_is_the_window_unless_more_was_accepted():
    assert window_for("claude-opus-4-8", limit=200_000).tokens == 200_000
    assert window_for("gpt-4o", limit=300_000).tokens == 300_000
    assert window_for("claude-opus-4-8", limit=200_000, seen=400_000).tokens == 980_000
    assert window_for("gpt-5.5", reported=100_000, limit=200_000).tokens == 100_000
    assert window_for("gpt-5.5", override=90_000, limit=200_000).tokens == 90_000


@given(st.one_of(st.none(), st.floats(0, 10**7)), st.one_of(st.none(), st.integers(0, 10**6)))
def test_a_cache_is_cold_only_when_both_its_life_and_the_pause_are_known(idle, seconds):
    cache = PromptCache(idle, seconds)
    assert cache.is_cold == (idle is not None and seconds is not None and idle > seconds)
    assert "costs nothing extra" in cache.in_words()


def test_how_long_a_prefix_is_kept_belongs_to_the_model():
    assert cache_seconds_for("claude-opus-4-8") == 300
    assert cache_seconds_for("gpt-6.1-sol") == cache_seconds_for("gpt-5.6-luna") == 1_800
    assert cache_seconds_for("deepseek-v4-pro") is None
    assert cache_seconds_for("http://127.0.0.1/v1#gpt-6.1-sol") is None
    assert cache_seconds_for("claude-opus-4-8", {"claude-*": ModelEntry(cache_minutes=60)}) == 3_600


def test_a_client_may_run_a_model_with_a_smaller_window():
    assert window_for("claude-opus-4-8", client="claude-code").tokens == 980_000
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
    assert str(window_for("gpt-4o")) == "128,000 tokens (known for gpt-4o)"


@given(st.one_of(st.none(), st.text(max_size=60)), st.sampled_from(["", "codex", "claude-code"]))
def test_any_name_has_a_window(model, client):
    window = window_for(model, client=client)
    assert window.tokens > 0
    assert window.source


def test_every_answer_is_shorter_than_its_window():
    assert all(0 < known.output < known.window for known in KNOWN_MODELS)
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
