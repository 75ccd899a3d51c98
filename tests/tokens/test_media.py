from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.messages import Media
from context_compactor.tokens.counting import image_tokens, media_tokens

RULES = ["anthropic", "anthropic-large", "openai", "openai-patches", "gemini"]


@pytest.mark.parametrize(
    ("width", "height", "rule", "tokens"),
    [
        (200, 200, "anthropic", 54),
        (1000, 1000, "anthropic", 1334),
        (1092, 1092, "anthropic", 1590),
        (8000, 8000, "anthropic", 1600),
        (3000, 30, "anthropic", 33),
        (1920, 1080, "anthropic-large", 2765),
        (512, 512, "openai", 255),
        (1024, 1024, "openai", 765),
        (2048, 4096, "openai", 1105),
        (1, 1, "openai", 255),
        (1024, 1024, "openai-patches", 1229),
        (4032, 3024, "gemini", 1120),
    ],
)
def test_images_cost_what_the_provider_publishes(width, height, rule, tokens):
    assert image_tokens(width, height, rule) == tokens


def test_low_detail_is_a_fixed_price():
    assert image_tokens(4000, 3000, "openai", "low") == 85
    assert image_tokens(0, 0, "openai", "low") == 85


@pytest.mark.parametrize("rule", RULES)
def test_an_image_of_unknown_size_counts_as_a_large_one(rule):
    assert image_tokens(0, 0, rule) >= image_tokens(900, 900, rule)


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.sampled_from(RULES))
def test_an_image_never_costs_nothing_nor_more_than_the_largest(width, height, rule):
    assert 1 <= image_tokens(width, height, rule) <= 12_000


@given(st.builds(Media, st.sampled_from(["image", "document", "audio", "file"]), byte_size=st.integers(0, 10**9)))
def test_every_kind_of_media_costs_something(media):
    assert media_tokens(media, "anthropic") > 0


def test_a_document_is_weighed_by_its_bytes():
    assert media_tokens(Media("document", byte_size=1_000_000), "anthropic") == 50_000
    assert media_tokens(Media("document"), "anthropic") == 500
