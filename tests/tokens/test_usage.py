from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.messages import Message, Text, ToolCall, ToolResult
from context_compactor.dialects.record import CLOSING, OPENING
from context_compactor.dialects.turns import split_turns
from context_compactor.settings import Level
from context_compactor.tokens.budget import Anchor, level_at, measure
from context_compactor.tokens.calibration import Calibration
from context_compactor.tokens.counting import FixedTokens, MessageCounter, counter_for, message_counter_for
from tests.dialects.strategies import DIALECT_NAMES, histories
from tests.tokens.builders import WordCounter, assistant, budget, call, result, system, thinking, user

REFERENCE = '[archived tool_017: Read src/auth/jwt.ts, 2,310 tokens. recall("tool_017")]'


def weigh(messages, tokens: int = 1_000, counter: MessageCounter | None = None, **options):
    return measure(split_turns(messages), budget(tokens), counter or MessageCounter(WordCounter()), **options)


def test_tokens_are_told_apart_by_section():
    history = [
        system("be kind"),
        user("hello there"),
        thinking("I wonder"),
        call(1),
        result(1, "a b c"),
        assistant("done"),
    ]
    sections = weigh(history, fixed=FixedTokens(tools=50)).sections
    assert asdict(sections) == {
        "system": 3 + 3 + 2,
        "tools": 50,
        "user": 3 + 2,
        "assistant": (3 + 1) + (3 + 8 + 2) + (3 + 1),
        "tool_results": 3 + 4 + 3,
        "thinking": 2,
        "summaries": 0,
        "references": 0,
        "unseen": 0,
    }


def test_our_own_record_is_a_summary_and_the_words_behind_it_are_the_users():
    sections = weigh([user(f"{OPENING} one two\n{CLOSING}\n\nnow do this")]).sections
    assert sections.summaries == len(f"{OPENING} one two {CLOSING}".split())
    assert sections.user == 3 + 3


def test_lines_of_reference_are_counted_apart_from_what_they_stand_in():
    sections = weigh([call(17), result(17, f"head\n{REFERENCE}\ntail of it")]).sections
    assert sections.references == len(REFERENCE.split())
    assert sections.tool_results == 3 + 4 + 1 + 3


def test_a_quoted_bracket_is_no_reference():
    assert weigh([user("see [archived things] and [archived tool_1")]).sections.references == 0


def test_tool_results_and_files_are_counted():
    usage = weigh([call(1), result(1, "a"), call(2), result(2, "b")], files_loaded=2)
    assert (usage.tool_results, usage.files_loaded) == (2, 2)


@pytest.mark.parametrize(
    ("words", "level"), [(796, None), (797, Level.SOFT), (847, Level.AGGRESSIVE), (947, Level.EMERGENCY)]
)
def test_a_level_is_reached_at_exactly_its_threshold(words, level):
    assert weigh([user("w " * (words - 3))], 1_000).level == level


def test_bytes_alone_can_reach_a_level():
    usage = measure(split_turns([user("w" * 900)]), budget(1_000_000, size=1_000), MessageCounter(WordCounter()))
    assert usage.share < 0.01
    assert usage.level == Level.AGGRESSIVE


def test_an_anchor_puts_what_we_cannot_see_into_its_own_section():
    history = [user("a b"), assistant("c"), user("d e")]
    usage = weigh(history, 100_000, anchor=Anchor(messages=1, tokens=30_000))
    assert usage.tokens == 30_000 + (3 + 1) + (3 + 2)
    assert usage.sections.unseen == usage.tokens - (3 + 5 + 4 + 5)
    assert usage.source == "anchored on the last reply"


@pytest.mark.parametrize("tokens", [0, -5])
def test_an_anchor_that_cannot_be_true_is_left_aside(tokens):
    assert weigh([user("a")], anchor=Anchor(1, tokens)) == weigh([user("a")])
    assert weigh([user("a")], anchor=Anchor(7, 500)) == weigh([user("a")])


def test_a_calibration_corrects_the_count_when_there_is_no_anchor():
    calibration = Calibration("gpt-4o").learn(100, 20_100).learn(200, 20_200)
    usage = weigh([user("a b c")], 100_000, calibration=calibration)
    assert usage.tokens == pytest.approx(20_009, abs=2)
    assert usage.source == "counted and calibrated"
    assert weigh([user("a")], calibration=Calibration("gpt-4o")).source == "counted"


def test_thinking_that_is_not_sent_again_is_not_counted():
    history = [user("a"), thinking("old thoughts here"), user("b"), thinking("new")]
    counter = message_counter_for("claude-sonnet-4-5", "anthropic", lambda text: len(text.split()))
    usage = weigh(history, counter=counter)
    assert usage.sections.thinking == 1
    assert usage.tokens == counter.request_tokens(history)


def test_the_forecast_is_the_room_left_over_the_median_turn():
    history = [user("w " * 97) for _ in range(5)]
    usage = weigh(history, 1_003)
    assert usage.growth == 100
    assert usage.turns_left == 5
    assert usage.turns_until(700) == 1
    assert usage.turns_until(10) == 0


def test_one_huge_turn_does_not_change_the_forecast():
    history = [user("w " * 97) for _ in range(6)]
    history[2] = user("w " * 5_000)
    assert weigh(history, 100_000).growth == 100


def test_with_too_few_turns_the_forecast_is_unknown():
    assert weigh([system("be kind"), user("hi"), assistant("hello")]).turns_left is None
    assert weigh([]).turns_left is None


def test_an_empty_context_uses_nothing_but_the_request():
    usage = weigh([])
    assert (usage.tokens, usage.level, usage.bytes) == (3, None, 0)


def test_the_margin_is_the_counters_until_a_reply_confirms_most_of_it():
    history = [user("a b c")] * 4
    counter = message_counter_for("claude-opus-4-6", "anthropic")
    assert weigh(history, counter=counter).margin == 0.15
    assert weigh(history, counter=counter, anchor=Anchor(3, 50_000)).margin == 0.005


def test_levels_are_settings():
    assert level_at(0.5, ()) is None


@pytest.mark.parametrize("name", DIALECT_NAMES)
@settings(deadline=None, max_examples=40)
@given(drawn=st.data())
def test_any_history_has_sections_that_add_up_and_numbers_that_are_finite(name, drawn):
    messages = DIALECTS[name].parse(drawn.draw(histories(name)))
    anchor = drawn.draw(st.none() | st.builds(Anchor, st.integers(0, 10), st.integers(-10, 50_000)))
    fixed = drawn.draw(st.integers(0, 1_000))
    counter = MessageCounter(counter_for("gpt-4o"), name)
    usage = weigh(messages, 5_000, counter, anchor=anchor, fixed=FixedTokens(tools=fixed))
    assert usage.sections.total == usage.tokens > 0
    assert min(asdict(usage.sections).values()) >= 0
    assert isfinite(usage.share)
    assert usage.turns_left is None or usage.turns_left >= 0
    assert usage.upper >= usage.tokens
    if anchor is None:
        assert usage.tokens == counter.request_tokens(messages) + max(0, fixed)


def test_text_beside_results_in_one_message_stays_the_users():
    message = Message("user", (ToolResult("c1", "a b"), Text("and now this")), {"role": "user"})
    first = Message("assistant", (ToolCall("c1", "Read", "{}"),), {"role": "assistant"})
    sections = weigh([first, message]).sections
    assert (sections.user, sections.tool_results) == (3, 3 + 4 + 2)
