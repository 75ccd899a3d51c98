"""A summary that was written ahead: what it stands on, and when it may be used."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.record import Record
from context_compactor.summarize.summary import (
    PreparedSummary,
    Summary,
    parse_summary,
    reason_not_to_use,
    source_fingerprint,
    without_current_state,
)
from tests.summarize.samples import GOOD, refresh_talk

TURNS = refresh_talk()
NUMBERS = [turn.number for turn in TURNS]


def held(*turns: int) -> PreparedSummary:
    return PreparedSummary(base="", turns=turns, summary=Summary(), model="scripted")


def test_the_base_is_the_same_for_the_same_and_another_for_anything_else():
    base = source_fingerprint(TURNS, NUMBERS, None, "model")
    assert base == source_fingerprint(refresh_talk(), NUMBERS, None, "model")
    others = {
        source_fingerprint(refresh_talk(61), NUMBERS, None, "model"),
        source_fingerprint(TURNS, NUMBERS[:-1], None, "model"),
        source_fingerprint(TURNS, NUMBERS, Record(1, 1, 1, 1), "model"),
        source_fingerprint(TURNS, NUMBERS, None, "another model"),
    }
    assert len(others - {base}) == 4


@given(st.sets(st.sampled_from(NUMBERS)))
def test_turns_that_came_later_do_not_change_it_and_those_that_are_gone_do(numbers):
    found = [turn for turn in TURNS if turn.number in numbers]
    assert source_fingerprint(found, numbers, None, "model") == source_fingerprint(TURNS, numbers, None, "model")
    assert source_fingerprint(found[1:], numbers, None, "model") == (
        "" if found else source_fingerprint([], [], None, "model")
    )


def test_a_summary_may_stand_for_what_is_folded_when_it_tells_half_of_it():
    assert reason_not_to_use(held(1, 2), {1: 100, 2: 100, 3: 200}, "") == ""
    assert reason_not_to_use(held(1), {1: 100, 2: 100, 3: 200}, "") == "it covers only 25% of what is folded"
    assert reason_not_to_use(held(1, 4), {1: 100, 2: 100}, "") == "it covers turns that stay"
    assert "focus" in reason_not_to_use(held(1, 2), {1: 100, 2: 100}, "the cookie")


def test_of_how_things_stood_only_what_was_done_is_told_later():
    lines = without_current_state(parse_summary(GOOD)).lines()
    assert "done: token rotation in src/auth/jwt.ts (turn_005)" in lines
    assert not any(line.startswith(("doing", "blocked", "next", "Now")) for line in lines)
    assert any("httpOnly" in line for line in lines)
