"""What a call costs."""

from __future__ import annotations

import pytest

from context_compactor.errors import BadSetting
from context_compactor.settings import ModelEntry, Settings, load_settings
from context_compactor.tokens.models import KNOWN_MODELS, Price
from context_compactor.tokens.prices import ModelUsage, call_cost, price_of

USAGE = ModelUsage(input=1_000, cache_read=10_000, cache_write=2_000, output=500)


def test_each_kind_of_token_has_its_rate():
    assert call_cost(USAGE, "anthropic/claude-haiku-4-5") == pytest.approx(0.001 + 0.001 + 0.0025 + 0.0025)


def test_a_dated_name_costs_what_the_model_costs_and_a_smaller_sister_does_not():
    assert price_of("anthropic/claude-haiku-4-5-20251001") == price_of("litellm/anthropic/claude-haiku-4-5")
    assert price_of("openai/gpt-5-mini-2026-01-01") != price_of("openai/gpt-5")
    assert price_of("openai/gpt-5-pro") is None


def test_a_long_request_costs_more_where_the_maker_says_so():
    short = call_cost(ModelUsage(input=272_000, output=1_000_000), "openai/gpt-5.4")
    long = call_cost(ModelUsage(input=272_001, output=1_000_000), "openai/gpt-5.4")
    assert short == pytest.approx(0.68 + 15.0)
    assert long == pytest.approx(1.360005 + 22.5)


@pytest.mark.parametrize("name", ["openai/nobody-knows", "http://127.0.0.1/v1#gpt-5", "scripted", ""])
def test_unknown_means_unknown(name):
    assert call_cost(USAGE, name) is None


def test_every_row_has_a_source_and_a_date_and_a_cache_is_never_dearer_to_read_than_not_to_have():
    assert all(known.source and len(known.seen) == len("2026-11-15") for known in KNOWN_MODELS)
    prices = [known.price for known in KNOWN_MODELS if known.price]
    assert all((price.cache_read or 0) <= price.input <= price.output for price in prices)
    assert all(price.input <= (price.cache_write or price.input) for price in prices)


@pytest.mark.parametrize(
    ("model", "share"),
    [
        ("claude-fable-5-1", 0.025),
        ("claude-opus-5-5", 0.05),
        ("claude-opus-4-8", 0.1),
        ("gpt-6.1-sol", 0.05),
        ("gpt-5.6-sol", 0.1),
        ("gemini-3.1-pro", 0.1),
    ],
)
def test_what_a_cache_read_costs_of_the_input_belongs_to_the_model(model, share):
    price = price_of(model)
    assert price.cache_read == pytest.approx(share * price.input)


def test_a_write_that_is_kept_for_an_hour_costs_twice_the_input():
    write = ModelUsage(cache_write=1_000_000)
    assert call_cost(write, "claude-opus-4-8") == call_cost(write, "claude-opus-4-8", cache_seconds=300) == 6.25
    assert call_cost(write, "claude-opus-4-8", cache_seconds=3_600) == 10.0
    assert call_cost(ModelUsage(cache_write=100_000), "gpt-6.1-sol", cache_seconds=3_600) == 0.25


def test_own_prices_come_first_by_whole_name_by_model_or_by_pattern(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(
        '[models."http://host/v1#local"]\ninput = 1\noutput = 2\n[models.gpt-5]\ninput = 9\noutput = 9\n'
        '[models."our-*"]\ninput = 4\n'
    )
    own = load_settings(config_path=config, env={}).settings.models
    assert call_cost(ModelUsage(input=1_000_000), "http://host/v1#local", own) == 1.0
    assert call_cost(ModelUsage(cache_read=1_000_000), "openai/gpt-5-2026-01-01", own) == 9.0
    assert call_cost(ModelUsage(input=1_000_000), "gateway/our-large", own) == 4.0
    assert call_cost(ModelUsage(output=1), "gateway/our-large", own) is None
    assert price_of("gpt-5-mini", own) == price_of("gpt-5-mini")


def test_an_entry_without_an_input_price_changes_what_is_known():
    own = {"claude-*": ModelEntry(cache_read=0.01)}
    assert price_of("claude-opus-4-8", own).cache_read == 0.01
    assert price_of("claude-opus-4-8", own).input == 5.0
    assert price_of("nobody-knows", {"nobody-knows": ModelEntry(cache_read=0.01)}) is None


def test_prices_of_older_settings_are_still_read_beside_models(tmp_path):
    env = {"COMPACTOR_PRICES": '{"openai/x": {"input": 1, "output": 2}}'}
    assert load_settings(env=env).settings.models == {"openai/x": ModelEntry(input=1, output=2)}
    config = tmp_path / "config.toml"
    config.write_text("[prices.x]\ninput = 1\noutput = 2\n[models.y]\nwindow = 9000\n")
    both = load_settings(config_path=config, env={}).settings.models
    assert both == {"x": ModelEntry(input=1, output=2), "y": ModelEntry(window=9_000)}
    assert price_of("x", both) == Price(input=1, output=2)


@pytest.mark.parametrize("models", [5, "cheap", {"x": {"input": -1, "output": 1}}, {"x": {"inptu": 1}}])
def test_bad_entries_are_refused(models):
    with pytest.raises(BadSetting, match="models"):
        Settings(models=models)
