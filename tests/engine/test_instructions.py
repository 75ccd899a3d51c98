"""Instructions are left alone, but for a target that was asked for by number and that they would fill."""

from __future__ import annotations

import json

import pytest

from context_compactor import Settings, compact
from tests.engine import promises
from tests.engine.talks import Talk, talk_in
from tests.failures.scenarios import fill

LONG = "\n".join(
    f"Rule {number}: never do the thing that has the number {number} on its list." for number in range(300)
)
every_dialect = pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])


def told(dialect: str, instructions: str = LONG) -> Talk:
    return fill(talk_in(dialect).system(instructions).user("Find the folder that matters."), 14)


@every_dialect
def test_a_target_by_number_is_met_though_the_instructions_alone_exceed_it(dialect):
    talk = told(dialect)
    result = compact(talk.messages, target_tokens=2_500, dialect=dialect)
    assert result.report.tokens_after <= 2_500
    assert promises.illegal(result, dialect) == []
    assert "Rule 0:" in str(result.messages[0])
    assert "Rule 299:" in str(result.messages[0])
    assert "left out: turn_000]" in str(result.messages[0])
    assert json.loads(result.recall("turn_000")) == [talk.messages[0]]


@every_dialect
def test_the_report_says_that_instructions_were_shortened(dialect):
    report = compact(told(dialect).messages, target_tokens=2_500, dialect=dialect).report
    assert "would leave too little of the target" in report.reason
    assert [one.id for one in report.summarized if one.id == "turn_000"] == ["turn_000"]
    assert report.metrics.pins_share is not None
    assert report.metrics.pins_share < 1


@every_dialect
def test_instructions_that_leave_room_stay_byte_for_byte(dialect):
    talk = told(dialect)
    result = compact(talk.messages, target_tokens=9_000, dialect=dialect)
    assert result.report.changed
    assert result.messages[0] == talk.messages[0]
    assert result.report.reason == ""


@every_dialect
@pytest.mark.parametrize("level", ["soft", "aggressive", "emergency"])
def test_no_level_ever_touches_instructions(dialect, level):
    talk = told(dialect)
    result = compact(talk.messages, window=16_000, level=level, settings=Settings(min_gain_percent=0), dialect=dialect)
    assert result.messages[0] == talk.messages[0]


@every_dialect
@pytest.mark.parametrize("joint", [" ", ""])
def test_instructions_on_one_line_are_cut_and_not_removed(dialect, joint):
    talk = told(dialect, joint.join(f"rule{number:04d}" for number in range(3_000)))
    result = compact(talk.messages, target_tokens=6_000, dialect=dialect)
    assert result.report.tokens_after <= 6_000
    assert "rule0000" in str(result.messages[0])
    assert "rule2999" in str(result.messages[0])


def test_a_short_instruction_beside_a_long_one_stays():
    messages = [{"role": "system", "content": "Never delete production data."}, *told("openai-chat").messages]
    result = compact(messages, target_tokens=2_500, dialect="openai-chat")
    assert result.messages[0] == messages[0]


def test_a_large_system_prompt_leaves_the_conversation_some_room_at_every_level():
    talk = told("openai-chat")
    result = compact(talk.messages, window=40_000, level="emergency", dialect="openai-chat")
    assert result.messages[0] == talk.messages[0]
    assert result.report.tokens_after > result.usage.sections.system + 500


@every_dialect
def test_short_instructions_stay_whatever_the_target(dialect):
    talk = told(dialect, "Be careful. Never touch legacy/.")
    assert compact(talk.messages, target_tokens=200, dialect=dialect).messages[0] == talk.messages[0]


@every_dialect
def test_a_second_compaction_goes_on_from_shortened_instructions(dialect):
    first = compact(told(dialect).messages, target_tokens=2_500, dialect=dialect)
    talk = talk_in(dialect)
    talk.messages = list(first.messages)
    second = compact(fill(talk, 6, 50).messages, target_tokens=2_500, dialect=dialect)
    assert second.report.tokens_after <= 2_500
    assert second.messages[0] == first.messages[0]
