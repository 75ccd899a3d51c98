"""The relevance of what is planned: the weights of the choice, between 0 and 1."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor import compact
from context_compactor.engine.tiers import Tier
from tests.dialects.strategies import histories
from tests.engine.talks import DIALECT_NAMES
from tests.failures.scenarios import working


def decisions(target: int, **more):
    return compact(working(steps=30).messages, target_tokens=target, **more).decisions


def test_what_is_pinned_has_the_highest_relevance():
    pinned = [one for one in decisions(6_000) if one.strategy == "pin"]
    assert pinned
    assert {one.relevance for one in pinned} == {1.0}


def test_nothing_that_was_chosen_is_less_relevant_than_most_of_what_was_not():
    made = [one for one in decisions(3_000) if one.strategy != "pin"]
    chosen = [one.relevance for one in made if one.tier in (Tier.KEEP, Tier.SUMMARIZE) and one.tokens_after]
    others = [one.relevance for one in made if one.tier in (Tier.REFERENCE, Tier.DROP)]
    assert sum(chosen) / len(chosen) > 0.5
    assert sum(others) / len(others) < 0.5


def test_a_focus_makes_what_it_is_about_more_relevant():
    def of_login(made):
        return max(one.relevance for one in made if "jwt" in one.target and one.strategy != "pin")

    assert of_login(decisions(3_000, focus="jwt.py refresh tokens")) >= of_login(decisions(3_000))


def test_every_decision_says_why():
    assert all(one.reason for one in decisions(3_000))


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@given(data=st.data(), target=st.integers(20, 2_000))
@settings(deadline=None, max_examples=40)
def test_the_relevance_of_anything_is_between_0_and_1(dialect, data, target):
    made = compact(data.draw(histories(dialect)), target_tokens=target, dialect=dialect)
    assert all(0 <= one.relevance <= 1 for one in made.decisions)
