from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.settings import DEFAULT_LEVELS, Level
from context_compactor.tokens.budget import (
    PlateauAlarm,
    SuggestionCounters,
    Trigger,
    TriggerState,
    level_at,
    with_token_limit,
)

SHARES = st.lists(st.integers(0, 120), max_size=40)


def watch_all(shares, watch=None, now=None):
    """Feed percentages to a watch; returns it and the level that fired at each step."""
    watch, fired = watch or TriggerState(), []
    for share in shares:
        watch, trigger = watch.observe(share, 100, now)
        fired.append(trigger.level if trigger else None)
    return watch, fired


def levels_fired(*shares):
    return [str(level) if level else "-" for level in watch_all(shares)[1]]


@pytest.mark.parametrize(
    ("shares", "fired"),
    [
        ((10, 50, 79), ["-", "-", "-"]),
        ((79, 80), ["-", "soft"]),
        ((60, 88), ["-", "aggressive"]),
        ((99,), ["emergency"]),
        ((80, 81, 84, 85, 94, 95, 99), ["soft", "-", "-", "aggressive", "-", "emergency", "-"]),
        ((82, 79, 82), ["soft", "-", "-"]),
        ((82, 76, 82), ["soft", "-", "-"]),
        ((82, 74, 82), ["soft", "-", "soft"]),
        ((96, 86, 82, 86), ["emergency", "-", "-", "-"]),
        ((90, 40, 90), ["aggressive", "-", "aggressive"]),
        ((120, 130), ["emergency", "-"]),
    ],
)
def test_levels_fire_once_on_a_rising_crossing(shares, fired):
    assert levels_fired(*shares) == fired


def test_the_first_request_is_checked_like_any_other():
    assert levels_fired(97) == ["emergency"]


def test_a_failed_compaction_may_be_tried_again_after_a_wait():
    watch, _ = TriggerState(retry_seconds=60).observe(82, 100, now=0.0)
    watch = watch.failed(now=10.0)
    watch, early = watch.observe(82, 100, now=30.0)
    watch, due = watch.observe(82, 100, now=70.0)
    _, again = watch.observe(82, 100, now=500.0)
    assert (early, again) == (None, None)
    assert due is not None
    assert due.level == Level.SOFT


def test_a_higher_level_does_not_wait_for_the_failed_one():
    watch, _ = TriggerState().observe(82, 100, now=0.0)
    _, trigger = watch.failed(now=1.0).observe(96, 100, now=2.0)
    assert trigger is not None
    assert trigger.level == Level.EMERGENCY


def test_without_a_failure_time_alone_fires_nothing():
    watch, _ = TriggerState().observe(82, 100, now=0.0)
    assert watch.observe(82, 100, now=1e9)[1] is None


def test_after_a_manual_compaction_the_next_message_does_not_fire_again():
    watch, _ = watch_all([82])
    assert watch_all([41, 45, 60], watch.compacted(40, 100))[1] == [None, None, None]


def test_a_compaction_that_stays_above_the_threshold_does_not_fire_on_the_next_message():
    watch, _ = watch_all([90])
    watch = watch.compacted(82, 100)
    assert watch_all([82, 83, 84, 86], watch)[1] == [None, None, None, Level.AGGRESSIVE]


def test_a_compaction_rearms_the_watch_only_for_a_real_rise():
    watch = TriggerState().compacted(30, 100)
    assert watch_all([50, 79, 80], watch)[1] == [None, None, Level.SOFT]


def test_a_smaller_budget_after_a_model_switch_fires_at_once():
    watch, _ = TriggerState().observe(100_000, 1_000_000)
    _, trigger = watch.observe(100_000, 110_000)
    assert trigger is not None
    assert trigger.level == Level.AGGRESSIVE


def test_bytes_fire_where_tokens_do_not():
    _, trigger = TriggerState().observe(10, 100, size_share=0.96)
    assert trigger is not None
    assert (trigger.level, trigger.urgency) == (Level.EMERGENCY, "high")


@given(SHARES)
def test_falling_or_equal_usage_never_fires(shares):
    _, fired = watch_all(shares)
    for (before, now), level in zip(pairwise([0, *shares]), fired, strict=True):
        assert level is None or now > before


@given(SHARES)
def test_what_fires_is_the_highest_level_reached(shares):
    _, fired = watch_all(shares)
    for share, level in zip(shares, fired, strict=True):
        assert level is None or level == level_at(share / 100)


@given(SHARES)
def test_no_level_fires_twice_without_usage_having_fallen_below_the_margin(shares):
    _, fired = watch_all(shares)
    armed = set(Level)
    for share, level in zip(shares, fired, strict=True):
        if share / 100 < 0.75:
            armed = set(Level)
        if level:
            assert level in armed
            armed -= {rule.level for rule in DEFAULT_LEVELS if rule.threshold <= share / 100}


@given(SHARES, st.integers(0, 74), st.integers(80, 120))
def test_after_a_fall_below_the_margin_any_crossing_fires_again(shares, low, high):
    _, fired = watch_all([*shares, low, high])
    assert fired[-1] is not None


@given(SHARES, st.integers(0, 120))
def test_right_after_a_compaction_the_same_usage_fires_nothing(shares, left):
    watch = watch_all(shares)[0].compacted(left, 100)
    assert watch_all([left], watch)[1] == [None]


def test_a_watch_without_levels_never_fires():
    assert watch_all([50, 100, 200], TriggerState(levels=()))[1] == [None, None, None]


def test_a_trigger_prints_as_the_request_of_a_compacting_agent():
    trigger = Trigger("threshold", 161_204, 191_808, Level.SOFT)
    assert str(trigger) == (
        "## Compaction Request\n\n"
        "**Trigger**: threshold\n"
        "**Current Token Count**: 161,204 tokens\n"
        "**Context Budget**: 191,808 tokens\n"
        "**Urgency**: normal\n"
    )


@pytest.mark.parametrize(("tokens", "urgency"), [(900, "normal"), (901, "high"), (0, "normal")])
def test_urgency_is_high_above_ninety_percent(tokens, urgency):
    assert Trigger("manual", tokens, 1_000).urgency == urgency


def test_a_trigger_without_a_budget_is_urgent():
    assert Trigger("pre_handoff", 10, 0).urgency == "high"


def test_a_token_limit_begins_the_first_level_earlier_and_keeps_its_target_below():
    soft, *others = with_token_limit(DEFAULT_LEVELS, 30_000, 100_000)
    assert (soft.threshold, soft.target) == (0.30, 0.15)
    assert others == list(DEFAULT_LEVELS[1:])
    assert (
        with_token_limit(DEFAULT_LEVELS, 90_000, 100_000) == with_token_limit(DEFAULT_LEVELS, None, 1) == DEFAULT_LEVELS
    )


def suggest_all(counts, counters=None):
    counters, said = counters or SuggestionCounters(), []
    for tools, files in counts:
        counters, suggestions = counters.observe(tools, files)
        said.append([suggestion.counter for suggestion in suggestions])
    return counters, said


def test_counters_suggest_at_fifty_tool_results_and_every_fifty_more():
    _, said = suggest_all([(n, 0) for n in range(1, 161)])
    assert [n for n, suggested in enumerate(said, start=1) if suggested] == [50, 100, 150]


def test_twenty_files_suggest_once():
    assert suggest_all([(0, 19), (0, 20), (0, 25)])[1] == [[], ["files"], []]


def test_a_jump_over_two_steps_suggests_once():
    assert suggest_all([(120, 0), (130, 0), (150, 0)])[1] == [["tool results"], [], ["tool results"]]


def test_after_a_compaction_the_counters_start_from_what_is_left():
    counters, _ = suggest_all([(60, 25)])
    counters = counters.compacted(12, 3)
    assert suggest_all([(49, 10), (50, 20)], counters)[1] == [[], ["tool results", "files"]]


def test_a_step_of_zero_never_suggests():
    counters = SuggestionCounters(tool_step=0, file_limit=0).compacted(5, 5)
    assert suggest_all([(0, 0), (1_000, 1_000)], counters)[1] == [[], []]


def test_a_suggestion_says_what_it_saw():
    _, (suggestion,) = SuggestionCounters().observe(50, 0)
    assert str(suggestion) == "50 tool results are in the context; a compaction may be worth it"


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 50)), max_size=30))
def test_however_often_the_counters_are_asked_they_do_not_repeat_themselves(counts):
    counters = SuggestionCounters()
    for tools, files in counts:
        counters, _ = counters.observe(tools, files)
        assert counters.observe(tools, files)[1] == ()


def test_usage_that_stays_near_the_limit_raises_an_alarm():
    plateau, alarms = PlateauAlarm(turns=10), []
    for _ in range(25):
        plateau, alarm = plateau.observe(0.93)
        alarms.append(alarm)
    assert [n for n, alarm in enumerate(alarms, start=1) if alarm] == [10, 20]


def test_a_compaction_or_a_fall_ends_the_plateau():
    plateau = PlateauAlarm(turns=3, stayed=2)
    assert plateau.observe(0.5)[0].observe(0.9)[1] is False
    assert plateau.compacted().observe(0.9)[1] is False
    assert plateau.observe(0.9)[1] is True
