from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.evaluation.baselines import head_and_tail, mask_old_outputs
from context_compactor.evaluation.messages import count_messages
from context_compactor.evaluation.methods import BASELINES
from context_compactor.evaluation.scoring import problems
from tests.evaluation.talks import anthropic_talk, openai_talk

TALKS = [anthropic_talk(), openai_talk()]
FITTING = ["nothing", "keep-last", "head-and-tail", "truncate-outputs", "masking", "name-list", "ledger"]


@pytest.mark.parametrize("name", FITTING)
@given(share=st.integers(5, 100), talk=st.sampled_from(TALKS))
def test_a_baseline_fits_and_leaves_its_input_alone(name, share, talk):
    messages = talk.messages[:-2]
    before, budget = copy.deepcopy(messages), count_messages(messages) * share // 100
    assert count_messages(BASELINES[name](messages, budget)) <= budget
    assert messages == before


@pytest.mark.parametrize("name", ["head-and-tail", "truncate-outputs", "masking", "random-drop"])
@pytest.mark.parametrize("share", [10, 25, 60])
@pytest.mark.parametrize("talk", TALKS, ids=["anthropic", "openai"])
def test_baselines_that_work_in_turns_stay_legal(name, share, talk):
    messages = talk.messages
    made = BASELINES[name](messages, count_messages(messages) * share // 100)
    assert problems(made, talk.provider) == []


def test_head_and_tail_keeps_the_first_and_the_last_turns():
    messages = anthropic_talk().messages
    made = BASELINES["head-and-tail"](messages, count_messages(messages) // 2)
    assert made[:3] == messages[:3]
    assert made[-2:] == messages[-2:]
    assert len(made) < len(messages)


def test_masking_before_every_reply_keeps_the_last_outputs():
    talk = anthropic_talk()
    shown = mask_old_outputs(talk.messages, keep=2)
    changed = [index for index, (old, new) in enumerate(zip(talk.messages, shown, strict=True)) if old != new]
    assert changed
    assert shown[-3:] == talk.messages[-3:]


@given(st.text(), st.integers(0, 50))
def test_head_and_tail_never_make_a_text_longer(text, length):
    assert len(head_and_tail(text, length)) <= max(len(text), length + 16)
