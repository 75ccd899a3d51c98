"""Whatever a model says, the context stays sound by the measures of `compactor eval`.

What is refused leaves the very same context. A record that is accepted takes room that exact lines would have filled:
legality and what can be restored never suffer from that, and of names and failures little is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from context_compactor.evaluation.corpus import AGENT_SOURCES, default_corpus
from context_compactor.evaluation.expected import Sample, identifiers, samples_of
from context_compactor.evaluation.inputs import read_conversations
from context_compactor.evaluation.methods import COMPACTOR, WITH_MODEL, run_method, suits
from context_compactor.evaluation.output import mean
from context_compactor.evaluation.scoring import MEASURES, Score, score_sample
from tests.evaluation.models import MODELS

pytestmark = pytest.mark.slow

SHIPPED = Path(__file__).parents[2] / "examples" / "demo_session.jsonl.gz"
BUDGETS = ("25", "10")
SECONDS = 1.5
REFUSED = ("endless", "empty", "hostile", "echoing", "lying", "smoothly lying")
"""Models of which no summary may be used."""
UNTOUCHED = ("LEGAL", "RESTOR")
EVERY = 80
MOST_LOST = 0.1
"""What the lines may be worth on average over many conversations, which a record takes the room of."""
MOST_FAILURES = 0.2
"""Failures that are told in other words than those that the measure looks for."""


def shipped() -> Iterator[Sample]:
    """The session that ships with the repository."""
    for talk in read_conversations(str(SHIPPED)):
        yield from samples_of(talk.conversation, frozenset(identifiers(talk.system)))


def recorded() -> Iterator[Sample]:
    """A few conversations of the corpus, where it is at hand."""
    for source in AGENT_SOURCES:
        path = default_corpus() / f"{source}.jsonl.gz"
        talks = list(read_conversations(str(path)))[::EVERY] if path.is_file() else []
        for talk in talks:
            yield from samples_of(talk.conversation)[:1]


GROUPS = {"shipped": shipped, "recorded": recorded}


@cache
def samples(group: str) -> list[Sample]:
    return [sample for sample in GROUPS[group]() if suits(sample, BUDGETS[0])]


@cache
def without(group: str, at: int, budget: str) -> Score:
    return score_sample(samples(group)[at], COMPACTOR, budget).score


@cache
def scores(group: str, name: str) -> list[tuple[Score, Score]]:
    """For each sample and budget the score without a model and the one with it."""
    model = MODELS[name]()
    return [
        (without(group, at, budget), score_sample(sample, WITH_MODEL, budget, model).score)
        for at, sample in enumerate(samples(group))
        for budget in (BUDGETS[:1] if name in REFUSED or group == "recorded" else BUDGETS)
    ]


def limit_seconds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTOR_DEADLINE_SECONDS", str(SECONDS) if name == "endless" else "300")
    monkeypatch.setenv("COMPACTOR_RETRY_DELAY_SECONDS", "0")


def compared(group: str, name: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Score, Score]]:
    limit_seconds(name, monkeypatch)
    return scores(group, name)


def worse(before: Score, after: Score) -> dict[str, float]:
    """By which measures a score is lower, and how much."""
    both = {name: (share, after.shares[name]) for name, share in before.shares.items() if name not in ("size", "CACHE")}
    return {name: now - old for name, (old, now) in both.items() if old is not None and now is not None and now < old}


@cache
def context_without(at: int) -> list:
    return run_method(COMPACTOR, samples("shipped")[at], BUDGETS[0]).messages


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_is_endless_empty_hostile_lying_or_an_echo_changes_nothing(name, monkeypatch):
    limit_seconds(name, monkeypatch)
    for at, sample in enumerate(samples("shipped")):
        made = run_method(WITH_MODEL, sample, BUDGETS[0], MODELS[name]())
        assert made.model_use.why
        assert made.model_use.calls
        assert made.messages == context_without(at)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in REFUSED])
def test_whether_it_lies_or_not_a_shipped_session_stays_sound(name, monkeypatch):
    for before, after in compared("shipped", name, monkeypatch):
        assert not set(worse(before, after)) & set(UNTOUCHED)
        assert round(before.shares["FAIL"] - after.shares["FAIL"], 3) <= MOST_FAILURES
        assert after.fits


def test_a_good_model_is_used(monkeypatch):
    assert all(not after.model_use.why for _, after in compared("shipped", "good", monkeypatch))


@pytest.mark.skipif(not default_corpus().is_dir(), reason="the corpus is not at hand")
@pytest.mark.parametrize("name", ["lying", "smoothly lying"])
def test_over_recorded_conversations_a_liar_changes_no_measure(name, monkeypatch):
    pairs = compared("recorded", name, monkeypatch)
    assert pairs
    assert all((after.shares, after.tokens) == (before.shares, before.tokens) for before, after in pairs)


@pytest.mark.skipif(not default_corpus().is_dir(), reason="the corpus is not at hand")
def test_over_recorded_conversations_a_good_record_stays_legal_and_loses_little(monkeypatch):
    pairs = compared("recorded", "good", monkeypatch)
    assert pairs
    for before, after in pairs:
        assert not set(worse(before, after)) & set(UNTOUCHED)
        assert after.fits
    for measure in MEASURES:
        old, new = (mean(score.shares[measure] for score in side) for side in zip(*pairs, strict=True))
        if old is not None and new is not None:
            assert new >= old - MOST_LOST, measure
