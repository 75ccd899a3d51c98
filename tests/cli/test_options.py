from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.errors import BadSetting
from context_compactor.text import TargetSize, parse_target


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        (None, TargetSize()),
        ("20000", TargetSize(tokens=20_000)),
        ("20_000", TargetSize(tokens=20_000)),
        ("20,000", TargetSize(tokens=20_000)),
        ("20k", TargetSize(tokens=20_000)),
        ("1.5k", TargetSize(tokens=1_500)),
        ("25%", TargetSize(percent=25)),
        ("12.5%", TargetSize(percent=12.5)),
    ],
)
def test_a_target_may_be_written_as_people_write_it(text, goal):
    assert parse_target(text) == goal


@pytest.mark.parametrize("text", ["0", "-5", "0%", "101%", "nan%", "inf%", "infk", "", "%", "k", "many", "2.5", "1e3"])
def test_a_target_that_is_none_is_refused_with_what_was_given(text):
    with pytest.raises(BadSetting) as caught:
        parse_target(text)
    assert repr(text) in str(caught.value)


@given(st.text())
def test_any_target_is_read_or_refused(text):
    try:
        goal = parse_target(text)
    except BadSetting:
        return
    assert goal.of(1_000) is not None


def test_a_share_is_taken_of_the_tokens_there_are():
    assert TargetSize(percent=25).of(1_000) == 250
    assert TargetSize(percent=1).of(10) == 1
    assert TargetSize(tokens=7).of(1_000) == 7
    assert TargetSize().of(1_000) is None
