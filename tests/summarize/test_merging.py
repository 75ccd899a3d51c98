"""Parts that were told are paid for: a merge that fails does not throw them away."""

from __future__ import annotations

import pytest

from context_compactor import Settings, compact
from context_compactor.errors import ModelOverflow, ModelStopped, ModelUnavailable
from context_compactor.testing import ScriptedModel
from tests.session.telling import FIRST, PLAIN, steps

DAY = [*FIRST, *steps(0, 34)]
PARTS = Settings(model_input_tokens=3_000, retry_delay_seconds=0.0)


def is_merge(request) -> bool:
    return "[part 1]" in request.messages[-1].text


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ModelUnavailable("503"), "unavailable"),
        (ModelStopped("the deadline has passed"), "stopped"),
        (ModelOverflow("too long"), "overflow"),
    ],
)
def test_parts_are_joined_without_a_model_that_fails_in_a_merge(error, outcome):
    model = ScriptedModel([lambda request: error if is_merge(request) else PLAIN])
    report = compact(DAY, target_tokens=6_000, model=model, settings=PARTS).report
    assert report.told_by == "scripted"
    assert report.model_calls[-1].outcome == outcome
    assert sum(map(is_merge, model.requests)) == report.model_calls[-1].attempts
    assert f"joined without the model: {error}" in report.reason


def test_a_limit_that_a_merge_reaches_is_in_the_account():
    calls = len(compact(DAY, target_tokens=6_000, model=ScriptedModel([PLAIN]), settings=PARTS).report.model_calls)
    answers = iter(["No."])  # one question is asked twice, so the merge has no call left
    model = ScriptedModel([lambda _request: next(answers, PLAIN)])
    settings = Settings(model_input_tokens=3_000, attempt_limit=calls, model_parallel_calls=1)
    report = compact(DAY, target_tokens=6_000, model=model, settings=settings).report
    assert len(model.requests) == calls
    assert report.told_by == "scripted"
    assert (report.model_calls[-1].outcome, report.model_calls[-1].attempts) == ("limit", 0)
    assert "attempt_limit" in report.reason


def test_nothing_is_sent_when_the_limit_leaves_no_call_for_the_merge():
    calls = len(compact(DAY, target_tokens=6_000, model=ScriptedModel([PLAIN]), settings=PARTS).report.model_calls)
    model = ScriptedModel([PLAIN])
    settings = Settings(model_input_tokens=3_000, attempt_limit=calls - 1)
    report = compact(DAY, target_tokens=6_000, model=model, settings=settings).report
    assert model.requests == []
    assert [call.outcome for call in report.model_calls] == ["too_many_calls"]
