from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.turns import Turn
from context_compactor.engine.tiers import FIRST_TASK, INSTRUCTIONS, LATEST_REQUEST, RECENT, UNANSWERED, pinned_turns
from tests.facts.conversations import agent, bash, histories, system, turns_of, user

LONG = turns_of(
    system("You are careful."),
    user("<environment_context>…</environment_context>"),
    user("Add refresh tokens."),
    *(bash(f"step {number}", "ok") for number in range(8)),
    agent("Done."),
    user("Now write the docs."),
    *(bash(f"doc {number}", "ok") for number in range(8)),
)


def test_system_text_first_task_latest_request_and_last_turns_are_pinned_with_reasons() -> None:
    assert pinned_turns(LONG, [2, 12], preserve_recent=2) == {
        0: INSTRUCTIONS,
        2: FIRST_TASK,
        12: LATEST_REQUEST,
        19: RECENT,
        20: RECENT,
    }


def test_without_known_requests_the_users_turns_count() -> None:
    assert pinned_turns(LONG, preserve_recent=0) == {0: INSTRUCTIONS, 1: FIRST_TASK, 12: LATEST_REQUEST}


def test_messages_that_nobody_answered_are_pinned_wherever_they_stand_in_the_list_of_requests() -> None:
    turns = turns_of(user("Go."), agent("Which way?"), user("Left."), user("And quickly."))
    assert pinned_turns(turns, [1], preserve_recent=1) == {1: FIRST_TASK, 3: UNANSWERED, 4: UNANSWERED}


def test_nothing_is_pinned_in_an_empty_history() -> None:
    assert pinned_turns([]) == {}


@given(histories, st.integers(0, 30))
def test_pins_name_turns_that_exist_and_hold_the_last_ones(turns: list[Turn], recent: int) -> None:
    pins = pinned_turns(turns, preserve_recent=recent)
    assert set(pins) <= {turn.number for turn in turns}
    assert {turn.number for turn in turns[len(turns) - recent :] if recent} <= set(pins) or recent > len(turns)
    assert list(pins) == sorted(pins)
