"""A model within limits: money, attempts, and whatever its author did wrong."""

from __future__ import annotations

import threading
from time import monotonic

import pytest

from context_compactor import compact
from context_compactor.errors import BadSetting, LimitReached, ModelDenied, ModelError, ModelStopped, ModelUnavailable
from context_compactor.settings import ModelEntry, Settings, SharedBudget, Spending
from context_compactor.summarize.model import Control, ModelAnswer, ModelStep
from context_compactor.summarize.summarizer import LimitedModel
from context_compactor.testing import ScriptedModel
from context_compactor.tokens.prices import ModelUsage
from tests.engine.test_model import SHORT
from tests.llm.asking import ask, control
from tests.waiting import PATIENCE

PRICES = {"scripted": ModelEntry(input=10.0, output=10.0)}
ANSWER = ModelAnswer(text="Hello", stop="complete", usage=ModelUsage(input=1_000, output=1_000))  # 2 cents


def limited(*answers, before: Spending | None = None, **settings) -> tuple[LimitedModel, ScriptedModel]:
    model = ScriptedModel(answers)
    all_settings = Settings(**{"retry_delay_seconds": 0.0, "models": PRICES, **settings})
    return LimitedModel(model, all_settings, len, before), model


def test_what_was_spent_is_counted_from_the_real_usage():
    model, _ = limited(ANSWER)
    model.write(ask(), control())
    model.write(ask("More."), control())
    assert model.spent == Spending(pytest.approx(0.04), 2)


def test_retries_are_attempts_and_each_is_told():
    model, script = limited(ModelUnavailable("busy"), ModelUnavailable("busy"), ANSWER)
    steps = []
    asked = control()
    asked.on_step = steps.append
    model.write(ask(), asked)
    assert model.spent.attempts == len(script.requests) == 3
    assert [(step.kind, step.number, step.of) for step in steps] == [("retried", 2, 3), ("retried", 3, 3)]
    assert "busy" in steps[0].reason


@pytest.mark.parametrize(
    ("settings", "before"),
    [
        ({"attempt_limit": 2}, Spending()),
        ({"session_attempt_limit": 5}, Spending(0.0, 3)),
        ({"attempt_limit": 9, "session_attempt_limit": 2}, Spending()),
    ],
)
def test_not_one_attempt_more_than_is_allowed(settings, before):
    model, script = limited(ModelUnavailable("busy"), before=before, **settings)
    with pytest.raises(LimitReached, match=min(settings, key=lambda name: settings[name])):
        model.write(ask(), control())
    assert len(script.requests) == 2


def test_no_attempt_at_all_is_a_limit_too():
    model, script = limited(ANSWER, attempt_limit=0)
    with pytest.raises(LimitReached, match="attempt_limit"):
        model.write(ask(), control())
    assert script.requests == []


@pytest.mark.parametrize(
    ("settings", "before"), [({"spend_limit": 0.03}, Spending()), ({"session_spend_limit": 1.03}, Spending(1.0, 7))]
)
def test_a_call_that_could_pass_a_limit_is_not_made(settings, before):
    model, script = limited(ANSWER, before=before, **settings)
    model.write(ask(), control())
    with pytest.raises(LimitReached, match=next(iter(settings))):
        model.write(ask(max_tokens=1_000), control())
    assert len(script.requests) == 1


@pytest.mark.parametrize("name", ["spend_limit", "session_spend_limit"])
def test_a_limit_without_a_price_means_no_call(name):
    model, script = limited(ANSWER, models={}, **{name: 5.0})
    with pytest.raises(LimitReached, match="no known price"):
        model.write(ask(), control())
    assert script.requests == []


def test_calls_at_the_same_time_together_stay_within_the_limit():
    model, script = limited(ANSWER, spend_limit=0.05)
    refused = []

    def write(number: int) -> None:
        try:
            model.write(ask(f"{number} " + "x" * 1_000, max_tokens=1_000), control())
        except LimitReached as error:
            refused.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.spent.dollars <= 0.05
    assert len(script.requests) + len(refused) == 8
    assert refused


def test_an_answer_that_was_ended_half_way_is_paid_for_as_if_it_were_whole():
    model, _ = limited(ModelStopped("cancelled"))
    with pytest.raises(ModelStopped):
        model.write(ask("x" * 1_000, max_tokens=1_000), control())
    assert model.spent.dollars >= 0.02


LARGE = ask("x" * 1_000, max_tokens=1_000)  # 2 cents and a little


@pytest.mark.parametrize("error", [ModelUnavailable("it broke off"), ModelError("nonsense"), KeyError("choices")])
def test_a_call_that_broke_off_counts_as_the_most_it_could_have_cost(error):
    model, _ = limited(error, retry_attempts=1)
    with pytest.raises(ModelError):
        model.write(LARGE, control())
    assert model.spent == Spending(pytest.approx(0.0201, abs=0.0002), 1)


@pytest.mark.parametrize("error", [ModelUnavailable("refused", billed=False), ModelDenied("wrong key")])
def test_a_call_that_nobody_has_read_costs_nothing(error):
    model, _ = limited(error, retry_attempts=1)
    with pytest.raises(type(error)):
        model.write(LARGE, control())
    assert model.spent == Spending(0.0, 1)


def test_every_try_is_paid_for_and_together_they_stay_within_the_limit():
    model, script = limited(ModelUnavailable("it broke off"), retry_attempts=20, spend_limit=0.05)
    with pytest.raises(LimitReached, match="spend_limit"):
        model.write(LARGE, control())
    assert len(script.requests) == 2
    assert 0.04 <= model.spent.dollars <= 0.05


def test_an_interrupted_call_is_paid_for():
    class Interrupted(ScriptedModel):
        def write(self, request, control):
            raise KeyboardInterrupt

    model = LimitedModel(Interrupted([""]), Settings(models=PRICES), len)
    with pytest.raises(KeyboardInterrupt):
        model.write(LARGE, control())
    assert model.spent.dollars >= 0.02


@pytest.mark.parametrize(
    ("usage", "most"),
    [(ModelUsage(input=1_000, output=-(10**9)), 0.0101), (ModelUsage(input=10**30, output=7), 20.5)],
)
def test_counts_that_cannot_be_are_not_believed(usage, most):
    model, _ = limited(ModelAnswer(text="Hello", stop="complete", usage=usage))
    answer = model.write(ask(), control())
    assert 0.01 <= model.spent.dollars <= most
    assert min(answer.usage.input, answer.usage.output) >= 0


def test_what_others_spend_from_the_same_budget_counts():
    sum_of_all = [Spending(0.0, 0)]

    def keep(more, look):
        look(sum_of_all[0])
        sum_of_all[0] = sum_of_all[0].plus(more)

    first, second = (limited(ANSWER, before=SharedBudget(keep=keep), session_spend_limit=0.05)[0] for _ in range(2))
    first.write(LARGE, control())
    second.write(LARGE, control())
    with pytest.raises(LimitReached, match="session_spend_limit"):
        first.write(LARGE, control())
    assert sum_of_all[0] == Spending(pytest.approx(0.04), 2)


def test_an_answer_without_usage_counts_as_the_most_it_could_have_cost():
    model, _ = limited("Hello")
    model.write(ask("x" * 1_000, max_tokens=1_000), control())
    assert model.spent.dollars >= 0.02


@pytest.mark.parametrize("wrong", [RuntimeError("no luck"), KeyError("choices"), AssertionError(), OSError(5, "io")])
def test_whatever_a_model_raises_is_an_error_of_ours_that_names_it(wrong):
    model, script = limited(wrong, ANSWER)
    with pytest.raises(ModelError, match=f"scripted failed with {type(wrong).__name__}") as raised:
        model.write(ask(), control())
    assert raised.value.__cause__ is wrong
    assert len(script.requests) == 1


def test_an_answer_that_is_none_is_said_to_be_none():
    class Odd(ScriptedModel):
        def write(self, request, control):
            return "Hello"

    with pytest.raises(ModelError, match="returned str; it must be a ModelAnswer"):
        LimitedModel(Odd([""]), Settings(), len).write(ask(), control())


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"text": None}, "text"),
        ({"usage": None}, "usage"),
        ({"usage": ModelUsage(input="many")}, "usage.input"),
        ({"stop": "end"}, "stop"),
    ],
)
def test_an_answer_with_a_wrong_value_is_an_error_that_names_it(wrong, field):
    answer = ModelAnswer(**{"text": "Hello", "stop": "complete", **wrong})
    result = compact(SHORT, target_tokens=2_000, summarizer=ScriptedModel([lambda _: answer]))
    assert result.messages == compact(SHORT, target_tokens=2_000).messages
    assert f"$.{field}" in result.report.reason


@pytest.mark.parametrize(
    "wrong", [{"name": None}, {"name": ""}, {"window": None}, {"window": 0}, {"most_output": "8k"}, {"most_output": -1}]
)
def test_an_object_that_is_no_model_is_refused_and_the_field_is_named(wrong):
    model = ScriptedModel(["Hello"], **wrong)
    with pytest.raises(BadSetting, match=next(iter(wrong))):
        compact(SHORT, target_tokens=2_000, summarizer=model)
    assert model.requests == []


def test_who_watches_cannot_stop_the_work_and_is_told_nothing_more(caplog):
    shown = []

    def break_down(what):
        shown.append(what)
        raise BrokenPipeError("nobody reads")

    asked = Control(monotonic() + PATIENCE, threading.Event(), break_down, break_down)
    model, _ = limited(ModelUnavailable("busy"), ModelUnavailable("busy"), ANSWER, ANSWER)
    for _ in range(2):
        assert model.write(ask(), asked).text == "Hello"
    assert [type(what) for what in shown] == [ModelStep, str]
    assert [record.message.count("nobody reads") for record in caplog.records] == [1, 1]


def test_a_key_in_the_words_of_somebody_elses_error_is_hidden(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-top-secret")
    model, _ = limited(RuntimeError("wrong key sk-top-secret"))
    with pytest.raises(ModelError, match=r"wrong key \[redacted:key\]"):
        model.write(ask(), control())


def test_an_interrupt_by_the_user_is_none_of_our_errors():
    class Interrupted(ScriptedModel):
        def write(self, request, control):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LimitedModel(Interrupted([""]), Settings(), len).write(ask(), control())


def test_a_model_that_is_broken_leaves_the_digest_and_says_so():
    result = compact(SHORT, target_tokens=2_000, summarizer=ScriptedModel([KeyError("choices")]))
    assert result.messages == compact(SHORT, target_tokens=2_000).messages
    assert "scripted failed with KeyError" in result.report.reason
