"""No dollar is spent that no report and no total shows, and no refusal goes without its event."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from context_compactor.cli.show import show_session
from context_compactor.settings import ModelEntry
from context_compactor.summarize.model import ModelAnswer
from context_compactor.testing import ScriptedModel
from context_compactor.tokens.prices import ModelUsage
from tests.sessions.summarizing import PLAIN, Slow, opened
from tests.sessions.test_presummarize import begun, state_of
from tests.waiting import PATIENCE

PRICES = {"scripted": ModelEntry(input=10.0, output=10.0)}
PAID = ModelAnswer(text=PLAIN, stop="complete", usage=ModelUsage(input=10_000, output=500))
REFUSED = ModelAnswer(text="No.", stop="complete", usage=PAID.usage)


@pytest.mark.parametrize("answer", [PAID, REFUSED], ids=["not used", "refused"])
def test_what_was_told_ahead_and_not_used_is_in_the_report_all_the_same(answer):
    with begun(ScriptedModel([answer]), models=PRICES) as session:
        session.prepare()
        report = session.compact(focus="cookies")
        assert report.spent_on_models == pytest.approx(state_of(session).spent.dollars) != 0
        assert sum(call.attempts for call in report.model_calls) == session.totals().spent.attempts
        session.undo()
        assert session.compact(focus="tokens").spent_on_models < session.totals().spent.dollars


def test_what_was_ended_ahead_is_in_the_report_as_a_sum():
    model = Slow(PAID)
    with begun(model, models=PRICES) as session, ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(session.prepare)
        assert model.begun.wait(PATIENCE)
        session.cancel()
        assert ahead.result(PATIENCE).summarized == 0
        model.go.set()
        report = session.compact(level="soft")
        assert report.model_calls[0].outcome == "stopped"
        assert report.spent_on_models == pytest.approx(state_of(session).spent.dollars)


def test_a_refusal_because_of_somebody_else_has_its_calls(tmp_path: Path):
    model = Slow(PAID)
    with begun(model, tmp_path, automatic=False, models=PRICES) as session, opened(None, tmp_path) as other:
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(session.compact, level="soft")
            assert model.begun.wait(PATIENCE)
            assert other.compact(level="soft").changed
            model.go.set()
            report = made.result(PATIENCE)
        assert report.status == "unchanged"
        assert report.spent_on_models == pytest.approx(session.totals().spent.dollars) != 0


def test_a_stored_session_shows_what_its_models_have_taken(tmp_path: Path, capsys):
    with begun(ScriptedModel([PAID]), tmp_path, models=PRICES) as session:
        session.compact(level="soft")
        spent = session.totals().spent
    show_session("run", f"sqlite:///{tmp_path / 'sessions.db'}", as_json=False)
    assert f"{spent.attempts} requests, ${spent.dollars:.4f}" in capsys.readouterr().out
