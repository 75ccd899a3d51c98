from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.errors import BadSetting
from context_compactor.tokens.budget import Budget, budget_for
from context_compactor.tokens.models import Window, window_for

WINDOW = Window(200_000, "from the setting")


def test_a_budget_is_the_window_without_the_answer_and_a_margin():
    assert Budget(WINDOW, reserve_output=32_000, margin=8_000).tokens == 160_000


def test_the_reserved_output_counts_before_the_margin_does():
    budget = budget_for(WINDOW, reserve_output=20_000, margin_share=0.10)
    assert (budget.margin, budget.tokens) == (18_000, 162_000)


def test_tokens_and_bytes_must_both_fit():
    budget = Budget(WINDOW, bytes=1_000)
    assert budget.fits(200_000, 1_000)
    assert not budget.fits(200_001, 0)
    assert not budget.fits(230, 4_200_000)


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_that_is_not_positive_is_refused(window):
    with pytest.raises(BadSetting, match=f"window is {window} tokens"):
        Budget(Window(window, "from the setting"))


def test_a_reserve_as_large_as_the_window_names_both_and_what_to_try():
    with pytest.raises(BadSetting) as problem:
        budget_for(Window(4_096, "known for llama-2"), reserve_output=8_192)
    assert str(problem.value) == (
        "reserve_output_tokens is 8,192 and leaves nothing of a window of 4,096 tokens; "
        "try reserve_output_tokens=512 or a window above 16,384"
    )


def test_a_margin_that_eats_the_rest_names_every_number_of_the_sum():
    with pytest.raises(BadSetting, match=r"200,000 tokens minus 150,000 reserved .* margin of 60,000 leaves nothing"):
        Budget(WINDOW, reserve_output=150_000, margin=60_000)


@pytest.mark.parametrize("wrong", [{"reserve_output": -1}, {"margin": -1}, {"bytes": 0}])
def test_negative_parts_are_refused(wrong):
    with pytest.raises(BadSetting):
        Budget(WINDOW, **wrong)


def test_a_rejected_request_lowers_the_budget_and_never_raises_it():
    budget = budget_for(window_for("gpt-4o"), 8_000)
    lowered = budget.lowered(64_000)
    assert lowered.window.tokens == 64_000
    assert lowered.tokens < budget.tokens
    assert "learned from a rejected request" in lowered.window.source
    assert budget.lowered(1_000_000) is budget.lowered(None) is budget


def test_a_budget_prints_every_number_of_its_sum():
    text = str(Budget(WINDOW, 8_192, 1_000))
    assert text.startswith("190,808 tokens = 200,000 (from the setting) - 8,192 reserved for output - 1,000 margin;")


@given(st.integers(1, 10**7), st.integers(0, 10**7), st.floats(allow_nan=False))
def test_every_budget_that_is_accepted_has_room_and_the_others_say_why(window, reserve, share):
    try:
        budget = budget_for(Window(window, "from the setting"), reserve, share)
    except BadSetting as problem:
        assert f"{reserve:,}" in str(problem)
        return
    assert 0 < budget.tokens <= window
    assert budget.margin >= 0
    assert budget.share(-5) == 0
    assert budget.fits(budget.tokens)
    assert not budget.fits(budget.tokens + 1)


@given(st.integers(100, 10**6), st.integers(1, 10**6))
def test_a_lowered_budget_always_has_room(window, limit):
    budget = budget_for(Window(window, "from the setting"), window // 3, 0.1)
    assert 0 < budget.lowered(limit).tokens <= budget.tokens
