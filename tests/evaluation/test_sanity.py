"""The harness' own rules: everything kept is 100, nothing kept is 0, another project is about 0."""

from __future__ import annotations

import pytest

from context_compactor.evaluation.corpus import AGENT_SOURCES, default_corpus, history_cuts
from context_compactor.evaluation.expected import find_wanted, samples_of
from context_compactor.evaluation.inputs import read_conversations
from context_compactor.evaluation.output import mean
from context_compactor.evaluation.scoring import MEASURES, measure_retention, nothing_kept, retention_in
from tests.evaluation.talks import anthropic_talk, openai_talk, other_talk

TALKS = [anthropic_talk, openai_talk]


def prepared(talk):
    cut = next(cut for cut in history_cuts(talk) if cut.label == "75")
    return cut, find_wanted(talk, cut)


@pytest.mark.parametrize("make", TALKS)
def test_keeping_everything_is_100_in_every_measure(make):
    for sample in samples_of(make()):
        shares = measure_retention(sample.wanted, sample.history).shares()
        assert set(shares.values()) <= {1.0, None}


@pytest.mark.parametrize("make", TALKS)
def test_keeping_nothing_is_0_in_every_measure(make):
    for sample in samples_of(make()):
        assert set(nothing_kept(sample.wanted).shares().values()) <= {0.0, None}


def test_every_measure_has_something_to_look_for():
    talk = anthropic_talk()
    _, want = prepared(talk)
    assert all(value is not None for value in nothing_kept(want).shares().values())
    assert list(nothing_kept(want).shares()) == list(MEASURES)


def test_another_projects_conversation_keeps_nothing():
    _, want = prepared(anthropic_talk())
    assert set(measure_retention(want, other_talk().messages).shares().values()) == {0.0}


def test_a_bare_list_of_names_keeps_names_but_binds_few():
    _, want = prepared(anthropic_talk())
    found = retention_in(want, [" ".join(name.text for name in want.names)])
    assert all(found.names)
    assert sum(found.bound) < len(found.bound) / 2


@pytest.fixture(scope="module")
def corpus_samples():
    folder = default_corpus()
    if not folder.is_dir():
        pytest.skip("the development corpus is not beside the repository")
    first = [next(read_conversations(str(folder / f"{source}.jsonl.gz"))) for source in AGENT_SOURCES]
    return [samples_of(talk.conversation)[0] for talk in first]


def test_on_the_corpus_keeping_everything_is_100_and_nothing_is_0(corpus_samples):
    for sample in corpus_samples:
        assert set(measure_retention(sample.wanted, sample.history).shares().values()) <= {1.0, None}
        assert set(nothing_kept(sample.wanted).shares().values()) <= {0.0, None}


def test_on_the_corpus_another_projects_conversation_is_about_0(corpus_samples):
    for sample in corpus_samples:
        others = [other.conversation.messages for other in corpus_samples if other is not sample]
        shares = [measure_retention(sample.wanted, messages).shares() for messages in others]
        assert all((mean(item[name] for item in shares) or 0.0) < 0.1 for name in MEASURES)
