from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import BadInput
from context_compactor.handoff.context_summary import count_tokens
from context_compactor.handoff.orchestrator import (
    POINTS,
    Figures,
    Points,
    after,
    begin,
    join_points,
    read_points,
    start,
)
from context_compactor.handoff.parser import read_report
from context_compactor.handoff.protocol import HandoffRequest

SIZES = st.lists(st.integers(0, 10**9), max_size=6).map(tuple)
MEASURED = st.builds(Points, SIZES, SIZES, SIZES, SIZES, SIZES)


def test_an_answer_is_measured_at_every_point():
    request = HandoffRequest("a", "research", "Look.")
    received = read_report("## Recommendation\nKeep parse_dates.\n<usage>total_tokens: 51455", request)
    state, extracted = after(start(begin("t"), request), received)
    points = Points().called().called(3).answered(received, state)
    assert points.figures("response_tokens") == Figures(1, *[extracted.tokens_raw] * 3)
    assert points.summary_tokens == (count_tokens(received.message.context_summary),)
    assert points.state_tokens == (state.tokens,)
    assert points.tool_calls == (4,)
    assert points.tokens_used == (51_455,)


def test_figures_are_count_median_largest_and_total():
    points = Points(summary_tokens=(100, 500, 300, 200))
    assert points.figures("summary_tokens") == Figures(4, 250.0, 500, 1_100)
    assert points.figures("state_tokens") == Figures(0, 0, 0, 0)


def test_the_calls_of_several_sessions_stand_side_by_side():
    points = join_points([Points().called(40), Points().called(60), Points()])
    assert points.figures("tool_calls") == Figures(2, 50, 60, 100)
    assert points.called().tool_calls == (40, 61)


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(BadInput, match="no measurement point 'money'; use one of response_tokens"):
        Points().figures("money")
    with pytest.raises(BadInput, match="-1 is negative"):
        Points().called(-1)
    with pytest.raises(BadInput, match="this is not a valid list of measurement points"):
        read_points('{"tool_calls": "many"}')


@given(MEASURED, MEASURED)
def test_points_survive_their_json_and_joining_adds_them_up(one, other):
    assert read_points(one.to_json()) == one
    both = join_points([one, other])
    for point in POINTS:
        assert both.figures(point).total == one.figures(point).total + other.figures(point).total
        assert both.figures(point).count == one.figures(point).count + other.figures(point).count
