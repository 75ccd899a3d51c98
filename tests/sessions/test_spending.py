"""What the models of a session may take: together, across processes, and what is told when a limit is reached."""

from __future__ import annotations

import pytest

from context_compactor import Session, Settings
from context_compactor.errors import ModelStopped, ModelUnavailable
from context_compactor.sessions.state import read_session_state
from context_compactor.settings import ModelEntry, Spending
from context_compactor.summarize.model import ModelAnswer
from context_compactor.testing import ScriptedModel
from context_compactor.tokens.prices import ModelUsage
from tests.engine.test_model import SHORT
from tests.summarize.samples import GOOD

PRICES = {"scripted": ModelEntry(input=10.0, output=10.0)}
ANSWER = ModelAnswer(text=GOOD, stop="complete", usage=ModelUsage(input=1_000, output=1_000))  # 2 cents


def opened(tmp_path, *answers, said: list | None = None, **settings):
    """The session `s` with a scripted model; `said` hears its events."""
    all_settings = Settings(
        **{"automatic": False, "idle_seconds": 0.0, "retry_delay_seconds": 0.0, "models": PRICES, **settings}
    )
    model, store = ScriptedModel(answers or [ANSWER]), f"sqlite:///{tmp_path}/s.db"
    session = Session.open("s", window=10_000, store=store, settings=all_settings, summarizer=model)
    if said is not None:
        session.bus.subscribe(said.append)
    return session


def spent(session) -> Spending:
    core = session._core
    return read_session_state(core.store.session(core.id).state).spent


def test_what_was_spent_is_kept_with_the_session(tmp_path):
    with opened(tmp_path) as session:
        session.append(SHORT)
        assert session.compact(level="aggressive").summarized_by == "scripted"
        assert spent(session) == Spending(pytest.approx(0.02), 1)
    with opened(tmp_path) as again:
        assert spent(again).attempts == 1


def test_the_limits_of_a_session_outlive_the_process(tmp_path):
    with opened(tmp_path) as session:
        session.append(SHORT)
        session.compact(level="aggressive")
    for name, limit in (("session_spend_limit", 0.03), ("session_attempt_limit", 1)):
        with opened(tmp_path, **{name: limit}) as again:
            again.undo()
            report = again.compact(level="aggressive")
            assert report.status == "success"
            assert report.summarized_by == ""
            assert name in report.reason
            assert [(call.outcome, call.attempts, call.cost) for call in report.model_calls] == [("limit", 0, 0.0)]
            assert spent(again).attempts == 1


def test_a_limit_that_is_reached_is_told(tmp_path):
    said = []
    with opened(tmp_path, said=said, attempt_limit=0) as session:
        session.append(SHORT)
        assert session.compact(level="aggressive").changed
    dropped = [event.payload for event in said if event.type == "job.dropped"]
    assert any("attempt_limit" in payload["reason"] for payload in dropped)


def test_what_came_to_nothing_was_spent_all_the_same(tmp_path):
    refused = ModelAnswer(text="No.", stop="complete", usage=ANSWER.usage)
    with opened(tmp_path, refused) as session:
        session.append(SHORT)
        report = session.compact(level="aggressive")
        assert report.summarized_by == ""
        assert spent(session).attempts == len(report.model_calls) > 1
        assert spent(session).dollars == pytest.approx(report.spent_on_models)


def test_a_cancelled_call_is_paid_for_and_the_context_is_as_it_was(tmp_path):
    with opened(tmp_path) as session:
        session.append(SHORT)
        before = session.context()

        def cancel(_request):
            session.cancel()
            return ModelStopped("cancelled")

        session._core.summarizer().model = ScriptedModel([cancel])
        with pytest.raises(ModelStopped):
            session.compact(level="aggressive")
        assert session.context() == before
        assert spent(session).attempts == 1
        assert spent(session).dollars > 0


def test_each_retry_is_an_event_and_an_attempt(tmp_path):
    said = []
    with opened(tmp_path, ModelUnavailable("busy"), ANSWER, said=said) as session:
        session.append(SHORT)
        (call,) = session.compact(level="aggressive").model_calls
        assert call.attempts == 2
        assert spent(session).attempts == 2
    (retried,) = [event.payload for event in said if event.type == "job.retried"]
    assert (retried["attempt"], retried["what"]) == (2, "summary by a model")
    assert "busy" in retried["reason"]


def test_a_dry_run_says_what_would_be_asked_and_asks_nobody(tmp_path):
    with opened(tmp_path) as session:
        session.append(SHORT)
        model = session._core.summarizer().model
        report = session.compact(level="aggressive", dry_run=True)
        assert report.expected.calls == 1
        assert report.expected.cost > 0
        assert model.requests == []
        assert session.compactions() == []
        assert spent(session) == Spending()


def test_a_dry_run_with_a_model_that_has_no_key_is_an_answer_too(tmp_path, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    settings = Settings(automatic=False, idle_seconds=0.0, summarizer="anthropic/claude-haiku-4-5")
    with Session.open("s", window=10_000, store=f"sqlite:///{tmp_path}/s.db", settings=settings) as session:
        session.append(SHORT)
        assert session.compact(level="aggressive", dry_run=True).expected.model == "anthropic/claude-haiku-4-5"


def test_the_agents_model_gives_the_report_its_cost(tmp_path):
    settings = Settings(automatic=False, idle_seconds=0.0)
    store = f"sqlite:///{tmp_path}/s.db"
    with Session.open("s", window=10_000, store=store, settings=settings, model="claude-haiku-4-5") as session:
        session.append(SHORT)
        cost = session.compact(level="aggressive").cost
    assert cost.before > cost.after > 0
    assert cost.break_even_turns >= 1
    assert cost.spent == 0.0
