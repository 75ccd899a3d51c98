"""The index of turns: piece by piece it finds what one look at everything finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.turns import split_turns
from context_compactor.engine.report import Archived, Discarded, Preserved, Report, Summarized
from context_compactor.engine.tiers import Tier
from context_compactor.tui.sources.turns import TurnDecisions, TurnIndex
from tests.dialects.strategies import histories

DIALECTS = ("openai-chat", "openai-responses", "anthropic")


@pytest.mark.parametrize("dialect_name", DIALECTS)
@given(drawn=st.data())
def test_shown_in_pieces_it_finds_the_turns_that_one_look_finds(dialect_name, drawn):
    raws = drawn.draw(histories(dialect_name, 2, 6))
    sizes = drawn.draw(st.lists(st.integers(1, 9), min_size=1))
    messages = find_dialect(dialect_name, raws).parse(raws)
    whole = split_turns(messages)
    index, known = TurnIndex(), 0
    for size in [*sizes, len(messages)]:
        known = min(known + size, len(messages))
        index.take(messages[index.wanted : known])
        assert index.messages == known
    first = drawn.draw(st.integers(0, max(len(whole) - 1, 0)))
    count = drawn.draw(st.integers(0, len(whole)))
    span = index.span(first, count)
    found = span.turns(messages[span.start : span.end])
    if all(len(turn.messages) < 9 for turn in whole):  # an answer that comes far behind its call joins turns
        assert len(index) == len(whole)
        assert [turn.messages for turn in found] == [turn.messages for turn in whole[first : first + count]]
        numbers = [turn.number for turn in whole[first : first + count] if not turn.is_instruction]
        assert [turn.number for turn in found if not turn.is_instruction] == numbers
    assert sum(len(turn.messages) for turn in index.span(0, len(index)).turns(messages)) == len(messages)


def test_turns_out_of_range_are_none():
    index = TurnIndex()
    assert index.span(0, 10).count == 0
    index.take(
        find_dialect("auto", [{"role": "user", "content": "Hello"}]).parse([{"role": "user", "content": "Hello"}])
    )
    assert index.span(5, 10).count == 0
    assert index.span(-3, 10).count == 1


def report(**more) -> Report:
    return Report(status="success", tokens_before=9, tokens_after=1, messages_before=9, messages_after=1, **more)


def archived(ref: str, tokens: int) -> Archived:
    return Archived(ref, "turn", "words", tokens, "archive", f'recall("{ref}")')


def test_of_what_several_compactions_say_of_a_turn_the_last_counts():
    first = report(preserved=(Preserved("words", 50, 3, "talk", "one of the last turns"),))
    second = report(
        archived=(archived("turn_003", 50),), discarded=(Discarded("turn_003", "talk", "words", 50, "old"),)
    )
    assert TurnDecisions([first]).of(3, ["turn_003"]) == (Tier.KEEP, "one of the last turns")
    assert TurnDecisions([first, second]).of(3, ["turn_003"]) == (Tier.DROP, "old")
    assert TurnDecisions([second, first]).of(3, ["turn_003"]) == (Tier.KEEP, "one of the last turns")


def test_a_turn_is_what_most_of_its_tokens_have_become():
    made = report(
        preserved=(Preserved("arguments", 10, 3, "talk", "short"),),
        archived=(archived("turn_003", 900), archived("tool_001", 890)),
        summarized=(Summarized("tool_002", "log", "words", 300, 20, "a few lines"),),
    )
    assert TurnDecisions([made]).of(3, ["turn_003", "tool_001"])[0] is Tier.REFERENCE
    assert TurnDecisions([made]).of(3, ["turn_003", "tool_002"]) == (Tier.SUMMARIZE, "a few lines")
    assert TurnDecisions([made]).of(3, ["turn_003"])[0] is Tier.KEEP
    assert TurnDecisions([made]).of(4, ["turn_004"])[0] is Tier.KEEP
