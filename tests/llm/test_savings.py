"""What a compaction means for the agent's bill."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.engine.report import Cache, ModelCall, Report
from context_compactor.engine.result import agent_cost, break_even
from context_compactor.settings import ModelEntry

MODEL = "openai/agent"
MILLION = 1_000_000
rates = st.floats(0, 100, allow_nan=False)
amounts = st.floats(0, 1_000, allow_nan=False)


@st.composite
def prices(draw):
    whole = draw(rates)
    read = draw(st.one_of(st.none(), st.floats(0, whole)))
    write = draw(st.one_of(st.none(), st.floats(whole, whole * 2)))
    return ModelEntry(input=whole, output=draw(rates), cache_read=read, cache_write=write)


@st.composite
def reports(draw):
    before = draw(st.integers(1, 2 * MILLION))
    after = draw(st.integers(0, before))
    kept = draw(st.integers(0, after))
    calls = tuple(ModelCall("m", 1, 1, 1, "accepted", cost) for cost in draw(st.lists(amounts, max_size=3)))
    return Report(
        status="success",
        tokens_before=before,
        tokens_after=after,
        messages_before=9,
        messages_after=3,
        cache=Cache(kept, before - kept),
        model_calls=calls,
    )


def bill(cost, turns: int) -> tuple[float, float]:
    """What is paid after so many requests without and with the compaction."""
    return cost.before * turns, cost.spent + cost.rewrite + cost.after * turns


def report(before: int, after: int, kept: int, *costs: float | None) -> Report:
    calls = tuple(ModelCall("m", 1, 1, 1, "accepted", cost) for cost in costs)
    cache = Cache(kept, before - kept)
    return Report(
        status="success",
        tokens_before=before,
        tokens_after=after,
        messages_before=9,
        messages_after=3,
        cache=cache,
        model_calls=calls,
    )


@given(reports(), prices())
def test_at_break_even_it_is_no_dearer_and_one_request_earlier_it_is(made, price):
    cost = agent_cost(made, MODEL, {MODEL: price})
    if cost.break_even_turns is None:
        return
    without, with_it = bill(cost, cost.break_even_turns)
    assert with_it <= without + 1e-9 * max(1.0, with_it)
    if cost.break_even_turns > 0:
        without, with_it = bill(cost, cost.break_even_turns - 1)
        assert with_it > without - 1e-9 * max(1.0, without)


@given(reports(), prices(), st.integers(1, 10_000))
def test_never_means_not_within_any_number_of_requests_that_an_agent_makes(made, price, turns):
    cost = agent_cost(made, MODEL, {MODEL: price})
    if cost.break_even_turns is None:
        without, with_it = bill(cost, turns)
        assert with_it >= without


@given(reports(), prices(), amounts)
def test_a_dearer_compaction_is_never_paid_back_sooner(made, price, more):
    dearer = ModelCall("m", 1, 1, 1, "accepted", more)
    cheap = agent_cost(made, MODEL, {MODEL: price})
    dear = agent_cost(
        Report(
            **{name: getattr(made, name) for name in made.__struct_fields__}
            | {"model_calls": (*made.model_calls, dearer)}
        ),
        MODEL,
        {MODEL: price},
    )
    assert dear.spent >= cheap.spent
    assert dear.break_even_turns is None or dear.break_even_turns >= (cheap.break_even_turns or 0)


@given(reports(), prices())
def test_nothing_is_negative_and_a_smaller_context_costs_no_more(made, price):
    cost = agent_cost(made, MODEL, {MODEL: price})
    assert min(cost.before, cost.after, cost.rewrite, cost.spent) >= 0
    assert cost.after <= cost.before


def test_the_numbers_of_one_case_by_hand():
    price = ModelEntry(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
    cost = agent_cost(report(100_000, 40_000, 10_000, 0.05), MODEL, {MODEL: price})
    assert cost.before == pytest.approx(0.03)
    assert cost.after == pytest.approx(0.012)
    assert cost.rewrite == pytest.approx(30_000 * (3.75 - 0.3) / MILLION)
    assert cost.break_even_turns == 9  # (0.1035 + 0.05) / 0.018 = 8.53


def test_without_a_cache_every_request_is_paid_in_full_and_nothing_is_rewritten():
    cost = agent_cost(report(100_000, 40_000, 0), MODEL, {MODEL: ModelEntry(input=2.0, output=8.0)})
    assert (cost.before, cost.after, cost.rewrite) == (pytest.approx(0.2), pytest.approx(0.08), 0.0)
    assert cost.break_even_turns == 0


def test_a_request_above_the_makers_limit_for_long_ones_is_counted_as_such():
    long = ModelEntry(input=1.0, output=1.0, cache_read=0.1, long_above=50_000, long_input=2.0)
    cost = agent_cost(report(100_000, 40_000, 0), MODEL, {MODEL: long})
    assert cost.before == pytest.approx(0.02)
    assert cost.after == pytest.approx(0.004)


def test_unknown_means_unknown():
    assert agent_cost(report(100, 40, 0), "openai/nobody-knows") is None
    cost = agent_cost(report(100, 40, 0, 0.1, None), MODEL, {MODEL: ModelEntry(input=1.0, output=1.0)})
    assert (cost.spent, cost.break_even_turns) == (None, None)
    assert "not known" in cost.in_words()


@pytest.mark.parametrize(
    ("before", "after", "once", "turns"),
    [(1.0, 0.5, 0.0, 0), (1.0, 0.5, 0.5, 1), (1.0, 0.5, 0.6, 2), (0.5, 0.5, 0.1, None), (0.0, 0.0, 0.0, 0)],
)
def test_break_even_is_the_first_request_at_which_it_is_no_dearer(before, after, once, turns):
    assert break_even(before, after, once) == turns
