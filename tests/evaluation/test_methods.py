from __future__ import annotations

import pytest

from context_compactor.evaluation.expected import samples_of
from context_compactor.evaluation.messages import count_message, count_text
from context_compactor.evaluation.methods import budget_tokens, find_method, run_method, suits
from tests.evaluation.talks import long_messages, openai_talk


def sample(label):
    return next(sample for sample in samples_of(openai_talk()) if sample.cut.label == label)


def test_a_budget_is_a_share_of_the_history():
    one = sample("75")
    assert budget_tokens(one, "25") == one.cut.tokens // 4


def test_a_budget_with_a_plus_spares_the_instructions():
    one = sample("75")
    fixed = count_message(one.conversation.messages[0])
    assert budget_tokens(one, "10+") == fixed + (one.cut.tokens - fixed) // 10


def test_a_budget_can_be_so_many_tokens_or_the_real_summarys():
    assert budget_tokens(sample("75"), "500t") == 500
    one = sample("real0")
    assert budget_tokens(one, "real") == count_text(one.cut.summary) + 4


def test_real_compactions_have_their_own_budget():
    assert suits(sample("real0"), "real")
    assert not suits(sample("real0"), "25")


def test_the_real_summary_is_a_method():
    one = sample("real0")
    assert run_method("summary", one, "real").messages == [{"role": "user", "content": one.cut.summary}]


def test_a_method_can_be_named_by_its_module():
    messages = long_messages()
    named = find_method("context_compactor.evaluation.baselines:trim")
    assert named(messages, 2_000) == find_method("trim")(messages, 2_000)


def test_an_unknown_method_is_refused():
    with pytest.raises(KeyError):
        find_method("no-such-method")
