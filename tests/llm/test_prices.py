"""What a call costs."""

from __future__ import annotations

import pytest

from context_compactor.errors import BadSetting
from context_compactor.settings import Price, Settings, load_settings
from context_compactor.tokens.prices import KNOWN_PRICES, ModelUsage, call_cost, price_of

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


def test_every_known_price_is_dated_and_a_cache_is_never_dearer_to_read_than_not_to_have():
    assert all(len(known.seen) == len("2026-11-15") for known in KNOWN_PRICES)
    assert all((known.price.cache_read or 0) <= known.price.input <= known.price.output for known in KNOWN_PRICES)


def test_own_prices_come_first_by_whole_name_or_by_model(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('[prices."http://host/v1#local"]\ninput = 1\noutput = 2\n[prices.gpt-5]\ninput = 9\noutput = 9\n')
    prices = load_settings(config_path=config, env={}).settings.prices
    assert call_cost(ModelUsage(input=1_000_000), "http://host/v1#local", prices) == 1.0
    assert call_cost(ModelUsage(cache_read=1_000_000), "openai/gpt-5", prices) == 9.0


def test_prices_may_come_from_the_environment():
    env = {"COMPACTOR_PRICES": '{"openai/x": {"input": 1, "output": 2}}'}
    assert load_settings(env=env).settings.prices == {"openai/x": Price(input=1, output=2)}


@pytest.mark.parametrize(
    "prices", [5, "cheap", {"openai/x": {"input": 1}}, {"openai/x": {"input": -1, "output": 1}}, {"x": {"inptu": 1}}]
)
def test_bad_prices_are_refused(prices):
    with pytest.raises(BadSetting, match="prices"):
        Settings(prices=prices)
