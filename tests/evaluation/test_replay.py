from __future__ import annotations

from msgspec import structs

from context_compactor.evaluation.replay import Rates, rates_of, replay
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


def test_the_rates_are_those_of_the_model():
    assert rates_of("claude-fable-5-1") == Rates(0.025, 1.25, 300)
    assert rates_of("gpt-6.1-sol") == Rates(0.05, 1.25, 1_800)
    assert rates_of("nobody-knows") == Rates()


def test_after_a_pause_that_is_longer_than_its_life_nothing_is_read_from_the_cache():
    talk = anthropic_talk()
    daily = {index: f"2026-11-{index % 28 + 1:02}T00:00:00+00:00" for index in range(28)}
    paused = structs.replace(talk, times=daily)
    kept, lost = (replay(each, "everything", window=2000, rates=Rates(0.1, 1.25, 300)) for each in (talk, paused))
    assert lost.plain > kept.plain
    assert replay(paused, "everything", window=2000).plain == kept.plain
