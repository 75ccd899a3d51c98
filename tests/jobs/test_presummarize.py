"""While a session is quiet, a job has older turns told by its model, so that the next compaction need not wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from context_compactor.errors import ModelStopped
from context_compactor.sessions.jobs.leases import WorkerTiming
from context_compactor.sessions.jobs.schedule import Schedule
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_session_state
from context_compactor.summarize.summarizer import ModelSummarizer
from context_compactor.testing import ScriptedModel
from tests.failures.served import WIRES, says, serving
from tests.jobs.place import Place, Ticking
from tests.server.filling import Talk
from tests.server.running import running
from tests.sessions.summarizing import FIRST, step, steps
from tests.sessions.talk import opened
from tests.summarize.samples import GOOD
from tests.waiting import PATIENCE, wait_for

OPENAI = next(wire for wire in WIRES if wire.name == "openai")
WINDOW = 32_000


def quiet(place: Place, idle_seconds: float = 5.0, **settings: object) -> Session:
    """A session that is about half full, and asks for work once nothing is said."""
    session = opened(
        place.store,
        "a",
        window=WINDOW,
        bus=place.bus,
        clock=place.clock,
        schedule=Schedule(place.service_store),
        idle_seconds=idle_seconds,
        retry_delay_seconds=0.0,
        **settings,
    )
    session.append([*FIRST, *steps(0, 34)])
    return session


def held(place: Place) -> str:
    """The hash of what was told ahead."""
    return read_session_state(place.store.session("a").state).presummary


def test_a_quiet_session_has_its_older_turns_told_by_a_job_and_the_next_compaction_waits_for_nobody(
    still: Place, clock: Ticking
):
    model = ScriptedModel([GOOD])
    with quiet(still) as session:
        before = session.context()
        with still.engine(summarizer=ModelSummarizer(model, session.settings)) as engine:
            assert engine.wait_idle(PATIENCE)
            assert model.requests == []
            clock.go_on(5.1)
            wait_for(lambda: [job.state for job in still.jobs()] == ["done"])
            assert held(still)
            assert session.context() == before
            asked = len(model.requests)
            number = 34
            while not session.compactions():
                session.append(step(number))
                number += 1
                assert engine.wait_idle(PATIENCE)
        assert len(model.requests) == asked
        (report,) = session.compactions()
        assert report.summarized_by == "scripted"
        assert "summarized 34 of the" in report.reason


@pytest.mark.parametrize("settings", [{"summarize_ahead": False}, {"automatic": False}, {"enabled": False}])
def test_a_session_that_does_not_want_it_has_nothing_told(still: Place, clock: Ticking, settings: dict[str, bool]):
    model = ScriptedModel([GOOD])
    with (
        quiet(still, **settings) as session,
        still.engine(summarizer=ModelSummarizer(model, session.settings)) as engine,
    ):
        clock.go_on(5.1)
        assert engine.wait_idle(PATIENCE)
    assert model.requests == []
    assert {job.state for job in still.jobs()} <= {"done"}


def test_a_session_that_keeps_no_facts_has_its_turns_told_all_the_same(still: Place, clock: Ticking):
    with quiet(still, extract_facts=False, summarizer="openai/gpt-4.1-mini") as session:
        assert [(job.kind, job.state) for job in still.jobs()] == [("idle", "waiting")]
        with still.engine(summarizer=ModelSummarizer(ScriptedModel([GOOD]), session.settings)) as engine:
            clock.go_on(5.1)
            assert engine.wait_idle(PATIENCE)
        assert held(still)


def test_a_compaction_does_not_wait_for_what_is_told_ahead(place: Place):
    """It comes when the session has been quiet, and the user speaks again while the model thinks."""

    class Thinking(ScriptedModel):
        def write(self, request, control):
            begun.set()
            if is_ahead.is_set():
                assert control.cancel.wait(PATIENCE)
                raise ModelStopped("cancelled")
            return super().write(request, control)

    begun, is_ahead = Event(), Event()
    is_ahead.set()
    model = Thinking([GOOD])
    hurried = WorkerTiming(lease=60.0, beat=0.05, poll=0.01, watch=0.02)
    with (
        quiet(place, 0.05) as session,
        place.engine(summarizer=ModelSummarizer(model, session.settings), pace=hurried) as engine,
    ):
        wait_for(begun.is_set)
        is_ahead.clear()
        number = 34
        while not [job for job in place.jobs() if job.kind == "compact"]:
            session.append(step(number))
            number += 1
        wait_for(session.compactions)
        assert engine.wait_idle(PATIENCE)
    assert [job.state for job in place.jobs() if job.kind == "compact"] == ["done"]
    gone_wrong = place.told("job.retried", "job.dropped", "compaction.failed")
    assert [event for event in gone_wrong if "job" in event.payload] == []


def test_an_engine_that_stops_returns_what_is_told_ahead_to_another(still: Place, clock: Ticking):
    class Thinking(ScriptedModel):
        def write(self, request, control):
            begun.set()
            assert control.cancel.wait(PATIENCE)
            raise ModelStopped("cancelled")

    begun = Event()
    with quiet(still) as session:
        clock.go_on(5.1)
        with still.engine(summarizer=ModelSummarizer(Thinking([GOOD]), session.settings)) as engine:
            wait_for(begun.is_set)
            engine.stop(finish=False)
        assert [(job.state, job.attempts) for job in still.jobs()] == [("waiting", 0)]
        with still.engine(summarizer=ModelSummarizer(ScriptedModel([GOOD]), session.settings)) as engine:
            assert engine.wait_idle(PATIENCE)
        assert held(still)


def test_a_server_has_the_turns_of_a_quiet_session_told_by_its_own_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with serving(says(OPENAI, GOOD)) as provider, running(tmp_path, workers=2) as server:
        monkeypatch.setenv("COMPACTOR_SUMMARIZER", f"{provider.url}/v1#small")
        monkeypatch.setenv("COMPACTOR_SUMMARIZER_WINDOW", "100000")
        talk = Talk(server, window=WINDOW, idle_seconds=0.05)
        talk.say(*FIRST, *steps(0, 34))
        wait_for(lambda: read_session_state(server.service.store.session(talk.name).state).presummary)
        assert provider.bodies
        assert talk.compactions == []


def test_a_worker_does_the_same(tmp_path: Path, url: str):
    place = Place(url)
    quiet(place, 0.05).close()
    command = [sys.executable, "-c", "from context_compactor.cli.main import main; main()", "worker", "--store", url]
    with serving(says(OPENAI, GOOD)) as provider:
        model = {"COMPACTOR_SUMMARIZER": f"{provider.url}/v1#small", "COMPACTOR_SUMMARIZER_WINDOW": "100000"}
        with subprocess.Popen(command, env={**os.environ, **model}, cwd=tmp_path, stderr=subprocess.PIPE) as run:
            try:
                wait_for(lambda: held(place))
                run.send_signal(signal.SIGTERM)
                run.communicate(timeout=PATIENCE)
            finally:
                run.kill()
        assert provider.bodies
    assert run.returncode == 0
    place.close()
