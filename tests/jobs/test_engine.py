"""The engine: starting, stopping, leases, and what it does when the store or a job misbehaves."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from context_compactor.errors import BadSetting, ModelStopped, StoreLocked
from context_compactor.sessions.jobs.leases import Leases, Retries, WorkerTiming
from context_compactor.sessions.jobs.worker import WorkerPool
from context_compactor.store.rows import Job, timestamp
from context_compactor.store.service_store import service_store_of
from context_compactor.summarize.model import ModelRequest
from context_compactor.summarize.summarizer import ModelSummarizer
from context_compactor.testing import ScriptedModel
from tests.jobs.place import QUICK, Place, Ticking, fill
from tests.waiting import PATIENCE, wait_for


def crossed(place: Place, *names: str, share: float = 0.82) -> None:
    """Sessions that wait for a compaction."""
    for name in names or ("a",):
        with place.session(name) as session:
            fill(session, share)


class Held:
    """Work that begins and then waits until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go_on = Event(), Event()
        self.jobs: list[Job] = []

    def __call__(self, job: Job) -> None:
        self.jobs.append(job)
        self.begun.set()
        assert self.go_on.wait(PATIENCE)


# Starting and stopping


def test_jobs_that_waited_in_the_store_are_picked_up_after_a_restart(place: Place, url: str):
    crossed(place, "a", "b")
    place.close()
    again = Place(url)
    with again.engine() as engine:
        assert engine.wait_idle(PATIENCE)
    assert [job.state for name in "ab" for job in again.jobs(name)] == ["done", "done"]
    again.close()


def test_a_job_that_is_queued_beside_a_running_engine_is_begun_at_once(place: Place):
    slow = WorkerTiming(lease=60.0, beat=30.0, poll=30.0, watch=30.0)  # nobody looks by himself
    with place.engine(pace=slow) as engine:
        wait_for(lambda: len(engine._changed._waiters) == len(engine._threads))  # all of them rest
        crossed(place)
        assert engine.wait_idle(PATIENCE)
    assert [job.state for job in place.jobs()] == ["done"]


def test_stopping_finishes_the_job_under_way_and_begins_no_other(place: Place):
    held = Held()
    crossed(place, "a", "b")
    with place.engine(held, workers=1) as engine:
        wait_for(held.begun)
        held.go_on.set()
        engine.stop(finish=True)
        assert engine.status().is_stopping
        assert engine.status().running == ()
    assert [job.state for name in "ab" for job in place.jobs(name)] == ["done", "waiting"]
    engine.stop()  # a second time does nothing


def test_stopping_without_finishing_returns_the_job_as_if_it_had_never_been_begun(place: Place):
    held = Held()
    crossed(place)
    with place.engine(held, workers=1) as engine:
        wait_for(held.begun)
        engine.stop(finish=False)
        (job,) = place.jobs()
        assert (job.state, job.attempts, job.reason) == ("waiting", 0, "its worker was stopped")
        held.go_on.set()
    with place.engine() as other:
        assert other.wait_idle(PATIENCE)
    assert [job.state for job in place.jobs()] == ["done"]
    with place.session() as session:
        assert len(session.compactions()) == 1
    assert place.told("job.retried", "job.dropped") == []


def test_stopping_ends_the_call_of_a_model(place: Place):
    begun = Event()

    def never(request: ModelRequest) -> Exception:
        begun.set()
        assert summarizer.cancel.wait(PATIENCE)
        return ModelStopped("cancelled")

    with place.session() as session:
        summarizer = ModelSummarizer(ScriptedModel([never]), session.settings)
        fill(session, 0.82)
        with place.engine(summarizer=summarizer, workers=1) as engine:
            wait_for(begun)
            engine.stop(finish=False)
        assert [(job.state, job.attempts) for job in place.jobs()] == [("waiting", 0)]
        assert session.compactions() == []


def test_a_job_is_told_by_the_model_of_its_session(place: Place):
    model = ScriptedModel(["That is no summary."])
    with place.session() as session:
        fill(session, 0.82)
        with place.engine(summarizer=ModelSummarizer(model, session.settings)) as engine:
            assert engine.wait_idle(PATIENCE)
        assert model.requests
        assert len(session.compactions()) == 1  # the digest stands where the model is of no use


def test_an_engine_says_what_it_does(place: Place):
    held = Held()
    crossed(place, "a", "b")
    with place.engine(held, workers=1) as engine:
        wait_for(held.begun)
        status = engine.status()
        assert (status.workers, status.waiting, status.is_stopping) == (1, 1, False)
        assert [job.session_id for job in status.running] == ["a"]
        assert not engine.wait_idle(0.01)
        held.go_on.set()


@pytest.mark.parametrize("workers", [0, -1, 1_000])
def test_a_number_of_workers_that_cannot_be_is_refused(place: Place, workers: int):
    with pytest.raises(BadSetting, match=f"workers: {workers} is not a number of workers"):
        WorkerPool(place.store, workers=workers)


@pytest.mark.parametrize("pace", [{"lease": 1.0, "beat": 2.0}, {"poll": 0.0}, {"watch": -1.0}])
def test_a_pace_that_cannot_be_is_refused(pace: dict[str, float]):
    with pytest.raises(BadSetting, match="the beat shorter than the lease"):
        WorkerTiming(**pace)


def test_a_store_of_somebody_elses_has_no_service_store():
    class Other:
        path = "elsewhere"

    with pytest.raises(BadSetting, match="Other cannot run jobs"):
        service_store_of(Other())  # type: ignore[arg-type]


# Leases


def test_a_job_that_is_under_way_for_long_keeps_its_lease(still: Place, clock: Ticking):
    held = Held()
    crossed(still)
    with still.engine(held, pace=WorkerTiming(lease=15.0, beat=0.01, poll=0.01, watch=0.01)) as engine:
        wait_for(held.begun)
        for _ in range(5):
            clock.go_on(10.0)
            renewed = timestamp(clock(), 15.0)
            wait_for(lambda renewed=renewed: still.jobs()[0].lease_until == renewed)
        held.go_on.set()
        assert engine.wait_idle(PATIENCE)
    assert [(job.state, job.attempts) for job in still.jobs()] == [("done", 1)]
    assert still.told("job.retried") == []


def test_a_job_whose_worker_gives_no_sign_of_life_is_given_to_another_with_its_attempt_counted(
    still: Place, clock: Ticking
):
    crossed(still)
    now = clock().isoformat(timespec="milliseconds")
    lost = still.service_store.jobs.claim("a worker that died", now, now)
    assert lost is not None
    with still.engine() as engine:
        assert [job.id for job in still.service_store.jobs.lapsed(now)] == []
        clock.go_on(1.0)
        wait_for(lambda: still.jobs()[0].state == "done")
        assert engine.wait_idle(PATIENCE)
    assert [(job.state, job.attempts) for job in still.jobs()] == [("done", 2)]
    (found,) = still.told("job.retried")
    assert found.payload["reason"] == "the worker a worker that died stopped answering"


def test_a_job_that_kills_every_worker_is_dropped_after_three(still: Place, clock: Ticking):
    crossed(still)
    work = still.work()
    watching = Leases(still.service_store, work, Retries(still.service_store, work, still.bus, clock), clock, QUICK)
    for _ in range(3):
        now = clock().isoformat(timespec="milliseconds")
        assert still.service_store.jobs.claim("a worker that died", now, now)
        clock.go_on(1.0)
        assert watching.free_lapsed()
    assert not watching.free_lapsed()
    assert [(job.state, job.attempts) for job in still.jobs()] == [("dropped", 3)]
    assert [event.type for event in still.heard][-4:] == [
        "job.retried",
        "job.retried",
        "compaction.failed",
        "job.dropped",
    ]


def test_a_worker_that_wakes_up_after_losing_its_job_can_commit_nothing_twice(still: Place, clock: Ticking, url: str):
    held = Held()
    crossed(still)
    deaf = WorkerTiming(lease=15.0, beat=14.0, poll=0.01, watch=60.0)  # it gives no sign of life and looks for nobody's
    with still.engine(held, pace=deaf, workers=1) as frozen:
        wait_for(held.begun)
        clock.go_on(20.0)
        other = Place(url, clock)
        with other.engine() as engine:
            wait_for(lambda: still.jobs()[0].state == "done")
            assert engine.wait_idle(PATIENCE)
        held.go_on.set()
        assert frozen.wait_idle(PATIENCE)
    with still.session() as session:
        assert len(session.compactions()) == 1
    assert [(job.state, job.attempts) for job in still.jobs()] == [("done", 2)]
    other.close()


def test_two_who_do_the_same_job_commit_one_compaction(still: Place, clock: Ticking):
    """Both have read the session before either has committed."""
    crossed(still)
    now = clock().isoformat(timespec="milliseconds")
    work = still.work()
    first = still.service_store.jobs.claim("one", now, now)
    assert first is not None
    still.service_store.jobs.put_back(first, now, "no sign of life")
    second = still.service_store.jobs.claim("other", now, now)
    assert second is not None
    with work._opened(first) as slow:
        seen = slow.current_context()  # what the first one works on
        work.do(second)
        assert slow.store.session("a").view != seen.view
    with pytest.raises(Exception, match="another worker has taken it over"):
        work.do(first)
    with still.session() as session:
        assert len(session.compactions()) == 1


# Trouble


def test_a_store_that_cannot_be_read_for_a_while_stops_no_engine(place: Place, monkeypatch: pytest.MonkeyPatch):
    times: list[int] = []
    claim = place.service_store.jobs.claim

    def locked(*given: Any) -> Job | None:
        times.append(1)
        if len(times) < 4:
            raise StoreLocked("it was locked by another process")
        return claim(*given)

    monkeypatch.setattr(place.service_store.jobs, "claim", locked)
    crossed(place)
    with place.engine(pace=QUICK) as engine:
        assert engine.wait_idle(PATIENCE)
    assert [job.state for job in place.jobs()] == ["done"]


def test_a_job_that_fails_in_a_way_nobody_foresaw_is_an_attempt_that_failed(place: Place):
    def before(job: Job) -> None:
        if job.attempts == 1:
            raise ZeroDivisionError("of all things")

    with place.session(retry_delay_seconds=0.0) as session:
        fill(session, 0.82)
    with place.engine(before) as engine:
        assert engine.wait_idle(PATIENCE)
    assert [(job.state, job.attempts) for job in place.jobs()] == [("done", 2)]
    assert place.told("job.retried")[0].payload["reason"] == "ZeroDivisionError: of all things"


def test_settings_that_can_no_longer_be_read_drop_the_job_and_say_why(still: Place, clock: Ticking):
    crossed(still)
    profile = still.store.session("a").profile.replace(b'"settings":{', b'"settings":{"no_such":1,')
    still.store.save_profile("a", profile)
    with still.engine() as engine:
        for _ in range(3):
            assert engine.wait_idle(PATIENCE)
            clock.go_on(10.0)
        assert engine.wait_idle(PATIENCE)
    assert [job.state for job in still.jobs()] == ["dropped"]
    assert "no_such: no such setting" in still.told("job.dropped")[0].payload["reason"]
