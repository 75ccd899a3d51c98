"""What the user decides about turns is followed, and breaks none of the promises."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import Compaction
from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.messages import Message
from context_compactor.dialects.reasoning import drop_reasoning
from context_compactor.dialects.turns import Turn
from context_compactor.engine.classify import ParsedContext, parse_context
from context_compactor.engine.compact import run_request
from context_compactor.engine.request import CompactionRequest
from context_compactor.engine.tiers import Tier, override_refusal
from tests.engine import promises
from tests.engine.sessions import play, sessions, shares
from tests.engine.talks import DIALECT_NAMES, bash, read, talk_in
from tests.engine.test_promises import _renamed, target_of

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)
any_tier = st.sampled_from(Tier)


def parsed_context(messages: list[dict], dialect: str) -> ParsedContext:
    return parse_context(promises.legal(messages, dialect), DIALECTS[dialect])


def compacted(messages: list[dict], target: int, dialect: str, tiers: dict[int, Tier]) -> Compaction:
    return run_request(messages, CompactionRequest(target_tokens=target, tier_overrides=tiers), dialect=dialect)


def some_tiers(data: st.DataObject, content: ParsedContext) -> dict[int, Tier]:
    """Any tiers for any turns that may have them."""
    numbers = st.sampled_from([turn.number for turn in content.turns])
    drawn = data.draw(st.dictionaries(numbers, any_tier, max_size=8))
    return {number: tier for number, tier in drawn.items() if not override_refusal(content.turns, number, tier)}


def stands(turn: Turn, messages: list[Message], *, without_reasoning: bool = False) -> bool:
    """Whether a turn stands in a context, byte for byte; its first message may stand in one with the record."""
    wanted = [message.raw for message in turn.messages]
    if without_reasoning:
        kept = drop_reasoning((), turn.messages, DIALECTS["anthropic"])
        wanted = [message.raw for message in kept if message is not None]
    for at in range(len(messages) - len(wanted) + 1):
        run = messages[at : at + len(wanted)]
        first, parts = run[0], turn.messages[0].parts
        begins = first.raw == wanted[0] or (first.role == "user" and first.parts[-len(parts) :] == parts)
        if begins and [message.raw for message in run[1:]] == wanted[1:]:
            return True
    return False


@every_dialect
@given(data=st.data())
def test_whatever_tiers_are_set_the_context_is_legal_what_is_kept_stands_the_rest_is_recallable_and_failures_stay(
    dialect, data
):
    session = data.draw(sessions(dialect))
    messages = session.messages
    content = parsed_context(messages, dialect)
    tiers = some_tiers(data, content)
    target = target_of(messages, data.draw(shares), dialect)
    result = compacted(messages, target, dialect, tiers)
    wrong = promises.broken(
        legal=promises.illegal(result, dialect),
        fits=promises.misfit(messages, result, target, dialect),
        thinking=promises.edited_thinking(messages, result, dialect),
    )
    assert wrong == {}
    context = promises.parsed(result.messages, dialect)
    left = [turn for turn in content.turns if not stands(turn, context)]
    bare = [turn for turn in left if not (dialect == "anthropic" and stands(turn, context, without_reasoning=True))]
    assert [turn.number for turn in bare if tiers.get(turn.number) is Tier.KEEP] == []
    if not result.report.changed:
        return
    for turn in left:
        if not turn.is_instruction:
            original = result.original(f"turn_{turn.number:03d}")
            assert original.value == [message.raw for message in turn.messages]
    assert promises.forgotten(session.failures, result, dialect) == []


@every_dialect
@given(data=st.data())
def test_a_turn_and_its_calls_have_the_same_numbers_however_often_others_around_it_are_folded(dialect, data):
    session = data.draw(sessions(dialect))
    messages = session.messages
    known: dict[int, Turn] = {}
    for number in range(3):
        content = parsed_context(messages, dialect)
        for turn in content.turns:
            before = known.setdefault(turn.number, turn)
            assert [each.number for each in before.exchanges] == [each.number for each in turn.exchanges]
            assert before.role == turn.role or turn.is_instruction
            assert [each.call and each.call.name for each in before.exchanges] == [
                each.call and each.call.name for each in turn.exchanges
            ]
        result = compacted(
            messages, target_of(messages, data.draw(shares), dialect), dialect, some_tiers(data, content)
        )
        messages = [*result.messages, *_renamed(data.draw(sessions(dialect, 2, 5)).messages, number)]


@every_dialect
@given(data=st.data())
def test_a_plan_without_tiers_and_one_with_tiers_that_nothing_has_to_follow_are_the_same(dialect, data):
    messages = data.draw(sessions(dialect)).messages
    target = target_of(messages, data.draw(shares), dialect)
    plain, other = compacted(messages, target, dialect, {}), compacted(messages, target, dialect, {9_999: Tier.KEEP})
    assert plain.messages == other.messages
    assert plain.decisions == other.decisions


def long_talk(dialect: str = "openai-chat") -> list[dict]:
    """Reads, each with a question before it and an answer behind it, then a question that waits."""
    talk = talk_in(dialect)
    talk.system("You are careful.")
    for number in range(12):
        talk.user(f"Question {number}: what does part_{number} do?")
        text = "\n".join(f"value_{number}_{line} = compute_{number}({line})" for line in range(60))
        talk.step(read(f"src/part_{number}.py", text))
        talk.answer(f"Part {number} computes value_{number}.")
    talk.user("And what is next?")
    return talk.messages


def decided(result: Compaction, turn: int) -> set[tuple[str, str]]:
    return {(each.tier.value, each.reason) for each in result.decisions if each.turn == turn}


def test_the_plan_says_what_the_user_has_decided():
    messages = long_talk()
    tiers = {2: Tier.KEEP, 5: Tier.REFERENCE, 8: Tier.DROP, 11: Tier.SUMMARIZE}
    result = compacted(messages, 2_500, "openai-chat", tiers)
    assert decided(result, 2) == {("keep", "kept by you")}
    assert decided(result, 5) == {("reference", "lowered by you")}
    assert decided(result, 8) == {("drop", "lowered by you")}
    assert all("shortened by you" in reason for _, reason in decided(result, 11))
    assert "summarize" in {tier for tier, _ in decided(result, 11)}


def test_of_a_turn_that_is_lowered_to_a_reference_one_line_stays_and_of_one_that_is_dropped_none():
    messages = long_talk()
    result = compacted(messages, 4_000, "openai-chat", {5: Tier.REFERENCE, 8: Tier.DROP})
    text = promises.words(promises.parsed(result.messages, "openai-chat"))
    assert "[turn_005 agent: Read src/part_1.py]" in text
    assert "value_1_7" not in text
    assert "value_2_7" not in text
    assert "[turn_008" not in text
    assert "value_1_7" in result.recall("turn_005")
    assert "value_2_7" in result.recall("turn_008")


def test_a_turn_at_the_end_can_be_lowered_and_what_stands_around_it_stays():
    talk = talk_in("openai-chat")
    talk.user("Look at the log.")
    talk.step(bash("cat app.log", "\n".join(f"line {line} of a long log" for line in range(800))))
    talk.step(bash("date", "today"))
    talk.user("Go on.")
    result = compacted(talk.messages, 2_000, "openai-chat", {2: Tier.DROP})
    context = promises.parsed(result.messages, "openai-chat")
    assert "line 17 of" not in promises.words(context)
    assert stands(parsed_context(talk.messages, "openai-chat").turns[2], context)
    assert promises.illegal(result, "openai-chat") == []


def test_lowering_what_stands_between_two_answers_never_brings_them_together():
    talk = talk_in("openai-chat")
    talk.user("Look at the log.")
    talk.step(bash("cat app.log", "\n".join(f"line {line} of a long log" for line in range(900))))
    talk.answer("It is long.")
    talk.user("Here is another one: " + "blah " * 200)
    talk.answer("That one is long too.")
    talk.user("Go on.")
    lowered = compacted(talk.messages, 2_000, "openai-chat", {4: Tier.DROP})
    assert promises.illegal(lowered, "openai-chat") == []
    assert all(reason.startswith("goes with turn 4, lowered by you") for _, reason in decided(lowered, 3))
    kept = compacted(talk.messages, 2_000, "openai-chat", {3: Tier.KEEP, 4: Tier.DROP})
    assert promises.illegal(kept, "openai-chat") == []
    ((tier, reason),) = decided(kept, 4)
    assert tier == "keep"
    assert "between two steps" in reason


def test_a_target_that_pins_make_unreachable_is_answered_with_a_floor_that_names_them():
    messages = long_talk()
    tiers = dict.fromkeys((2, 5, 8, 11, 14), Tier.KEEP)
    result = compacted(messages, 1_500, "openai-chat", tiers)
    assert result.report.status == "partial"
    pinned = {part.what for part in result.report.floor if part.reason == "pinned by you"}
    assert pinned == {f"turn {number} (assistant)" for number in tiers}
    assert result.report.metrics.pins_share == 1.0


def test_the_first_task_can_be_lowered_and_stands_in_the_record_all_the_same():
    result = compacted(long_talk(), 3_000, "openai-chat", {1: Tier.DROP})
    assert "Question 0: what does part_0 do?" in promises.words(promises.parsed(result.messages, "openai-chat"))


@pytest.mark.parametrize(
    ("number", "tier", "why"),
    [
        (0, Tier.DROP, "instructions"),
        (37, Tier.SUMMARIZE, "not answered yet"),
        (99, Tier.DROP, "no such turn; the last one is 37"),
        (99, Tier.KEEP, "no such turn"),
    ],
)
def test_what_must_not_be_touched_cannot_be_lowered(number: int, tier: Tier, why: str):
    messages = long_talk()
    assert why in override_refusal(parsed_context(messages, "openai-chat").turns, number, tier)
    plain = compacted(messages, 2_000, "openai-chat", {})
    assert compacted(messages, 2_000, "openai-chat", {number: tier}).messages == plain.messages


def test_words_beside_results_that_nobody_has_answered_stay_while_the_results_may_shrink():
    talk = talk_in("anthropic")
    talk.user("Look.")
    talk.step(bash("cat app.log", "\n".join(f"line {line} of a long log" for line in range(900))))
    messages = json.loads(json.dumps(talk.messages))
    messages[-1]["content"].append({"type": "text", "text": "And hurry up."})
    turns = parsed_context(messages, "anthropic").turns
    assert "not answered yet" in override_refusal(turns, 2, Tier.DROP)
    assert override_refusal(turns, 2, Tier.SUMMARIZE) == ""
    result = compacted(messages, 1_500, "anthropic", {2: Tier.SUMMARIZE})
    assert "And hurry up." in promises.words(promises.parsed(result.messages, "anthropic"))


def test_pictures_of_a_turn_that_is_kept_stay_though_the_request_is_too_large():
    session = play("anthropic", [(11, 5), *[(1, number) for number in range(8)]], 4)
    content = parsed_context(session.messages, "anthropic")
    shown = next(turn for turn in content.turns if '"image"' in json.dumps([message.raw for message in turn.messages]))
    ask = CompactionRequest(target_tokens=4_000, tier_overrides={shown.number: Tier.KEEP})
    result = run_request(session.messages, ask, dialect="anthropic")
    assert stands(shown, promises.parsed(result.messages, "anthropic"))
