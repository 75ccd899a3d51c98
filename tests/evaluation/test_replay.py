from __future__ import annotations

from context_compactor.evaluation.replay import replay
from tests.evaluation.talks import anthropic_talk


def test_a_method_that_keeps_everything_costs_what_no_compaction_costs():
    bill = replay(anthropic_talk(), "everything", window=2000)
    assert bill is not None
    assert bill.cost == bill.plain


def test_keeping_the_last_messages_costs_less_in_a_small_window():
    bill = replay(anthropic_talk(), "keep-last", window=2000)
    assert bill is not None
    assert bill.compactions > 0
    assert bill.cost < bill.plain


def test_a_conversation_that_fits_its_window_is_not_replayed():
    assert replay(anthropic_talk(), "keep-last", window=1_000_000) is None


def test_masking_every_turn_is_billed_turn_by_turn():
    bill = replay(anthropic_talk(), "masking-every-turn", window=2000)
    assert bill is not None
    assert bill.compactions == 0
