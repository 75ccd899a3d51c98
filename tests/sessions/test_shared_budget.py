"""Several who have one session open share one budget."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_session_state
from context_compactor.settings import ModelEntry
from context_compactor.testing import ScriptedModel
from tests.sessions.summarizing import FIRST, PLAIN, Slow, opened, steps
from tests.waiting import PATIENCE

SETTINGS = {
    "automatic": False, "idle_seconds": 0.0, "summarizer_input_tokens": 50_000, "retry_attempts": 1,
    "models": {"scripted": ModelEntry(input=10.0, output=10.0)},
}  # fmt: skip


def spent(session: Session) -> float:
    return read_session_state(session._core.store.session("run").state).spent.dollars


def test_what_another_handle_has_set_aside_is_not_spent_twice(tmp_path):
    slow, other = Slow(PLAIN), ScriptedModel([PLAIN])
    with opened(slow, tmp_path, **SETTINGS) as first, ThreadPoolExecutor(1) as pool:
        first.append([*FIRST, *steps(0, 34)])
        running = pool.submit(first.compact, level="soft")
        assert slow.begun.wait(PATIENCE)
        aside = spent(first)
        assert aside > 0
        with opened(other, tmp_path, session_spend_limit=1.5 * aside, **SETTINGS) as second:
            assert "session_spend_limit" in second.compact(level="soft").reason
        slow.go.set()
        running.result(PATIENCE)
        assert other.requests == []
        assert len(slow.requests) == 1


def test_an_interrupted_compaction_has_spent_what_its_call_could_cost(tmp_path):
    class Interrupted(ScriptedModel):
        def write(self, request, control):
            raise KeyboardInterrupt

    with opened(Interrupted([PLAIN]), tmp_path, **SETTINGS) as session:
        session.append([*FIRST, *steps(0, 34)])
        try:
            session.compact(level="soft")
        except KeyboardInterrupt:
            assert spent(session) > 0
        else:
            raise AssertionError("it was not interrupted")
