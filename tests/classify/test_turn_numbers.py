"""Turns as people write them, and written so that they are read as the same again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.engine.tiers import Tier, read_overrides, read_turns, write_turns
from context_compactor.errors import BadSetting


@given(st.sets(st.integers(0, 60)))
def test_what_is_written_is_read_as_the_same_turns(turns: set[int]):
    assert read_turns("keep", write_turns(turns) or None) == sorted(turns)


def test_runs_are_written_short():
    assert write_turns([9, 3, 4, 5, 12, 4]) == "3-5,9,12"
    assert write_turns([]) == ""


@pytest.mark.parametrize("turns", ["five", "5,,6", "9-3", "-4", "1-20000", "0-9999,0-9999", "", "12,"])
def test_what_is_no_turn_is_refused_by_name(turns: str):
    with pytest.raises(BadSetting, match="--keep: "):
        read_turns("--keep", turns)


def test_a_turn_has_one_tier():
    assert read_overrides({Tier.KEEP: "3-5", Tier.DROP: "9", Tier.REFERENCE: None}) == dict.fromkeys(
        (3, 4, 5), Tier.KEEP
    ) | {9: Tier.DROP}
    with pytest.raises(BadSetting, match="--drop: turn 4 is already given to --keep"):
        read_overrides({Tier.KEEP: "3-5", Tier.DROP: "4"}, "--")
