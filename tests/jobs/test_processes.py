"""Real processes on one store, killed at any moment: no job is lost, none runs twice at once, none commits twice."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random
from threading import Event

import pytest

from context_compactor.sessions.jobs.leases import WorkerTiming
from context_compactor.store.rows import Job
from tests.jobs.place import Place, fill, turn
from tests.sessions.talk import illegal
from tests.store.children import Child, started
from tests.waiting import PATIENCE, wait_for

SHORT = WorkerTiming(lease=0.6, beat=0.15, poll=0.02, watch=0.05)
LONG = WorkerTiming(lease=30.0, beat=1.0, poll=0.02, watch=0.5)
TURNS = 80
SESSIONS = [f"s{at}" for at in range(5)]


def queued(url: str, names: list[str]) -> None:
    """Sessions that wait for a compaction."""
    place = Place(url)
    for name in names:
        with place.session(name) as session:
            fill(session, 0.82)
    place.close()


def serve(url: str, child: Child, before=lambda job: None, pace: WorkerTiming = SHORT) -> None:
    """Do jobs until the parent speaks."""
    place = Place(url)
    with place.engine(before, pace=pace):
        child.say()
        child.hear()
    place.close()


def check_done(place: Place, names: list[str], compactions: int = 1) -> None:
    """Every session was compacted so many times, and nothing is left, lost or damaged."""
    for name in names:
        assert [job.state for job in place.jobs(name)] == ["done"] * compactions
        with place.session(name) as session:
            assert len(session.compactions()) == compactions
            assert illegal(session.context()) == []
    assert list(place.store.verify()) == []


def test_the_jobs_of_a_killed_worker_are_picked_up_by_others_within_seconds(url: str):
    queued(url, SESSIONS)

    def hang(child: Child) -> None:
        def before(job: Job) -> None:
            child.say()
            Event().wait()

        serve(url, child, before)

    with Child(hang) as dead, Child(lambda child: (child.hear(), serve(url, child))) as alive:
        heard = 0
        while heard < 3:  # it is there, and two jobs are under way
            heard += len(dead.hear())
        place = Place(url)
        assert len(place.service_store.jobs.newest(states=["running"])) == 2
        dead.kill()
        assert dead.wait() == -9
        alive.say()
        wait_for(lambda: all(job.state == "done" for name in SESSIONS for job in place.jobs(name)))
        assert sorted(job.attempts for name in SESSIONS for job in place.jobs(name)) == [1] * 3 + [2] * 2
        alive.say()
        assert alive.wait() == 0
    check_done(place, SESSIONS)
    place.close()


def test_two_processes_never_run_one_sessions_jobs_at_once_nor_commit_one_twice(url: str, tmp_path: Path):
    def before(job: Job) -> None:
        taken = tmp_path / f"{job.session_id}.running"
        taken.touch(exist_ok=False)  # it raises when somebody else is at work on the session
        time.sleep(0.01)
        taken.unlink()

    names = SESSIONS[:4]

    def work(child: Child) -> None:
        serve(url, child, before, LONG)

    Place(url).close()
    with Child(work) as one, Child(work) as other:
        place = Place(url)
        with started(lambda name: talk(url, name), names) as speakers:
            assert [child.wait() for child in speakers] == [0] * len(names)
        wait_for(lambda: place.service_store.jobs.is_idle("9"))
        for child in (one, other):
            child.say()
        assert (one.wait(), other.wait()) == (0, 0)
    for name in names:
        jobs = place.jobs(name)
        assert {(job.state, job.attempts <= 1) for job in jobs} == {("done", True)}
        with place.session(name) as session:
            assert session.history() == [message for number in range(TURNS) for message in turn(2 * number, 120)]
            assert 2 <= len(session.compactions()) <= len(jobs) + len(place.told("summary.applied"))
            assert session.usage().share < 0.80
            assert illegal(session.context()) == []
    assert list(place.store.verify()) == []
    place.close()


def talk(url: str, name: str) -> None:
    place = Place(url)
    with place.session(name) as session:
        for number in range(TURNS):
            session.append(turn(2 * number, 120))
            time.sleep(0.002)
    place.close()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_whenever_workers_are_killed_no_job_is_lost_and_none_commits_twice(url: str, seed: int):
    dice = Random(seed)
    queued(url, SESSIONS)
    place = Place(url)
    for _ in range(6):
        with Child(lambda child: serve(url, child)) as child:
            child.hear()
            time.sleep(dice.uniform(0.0, 0.15))
            child.kill()
            assert child.wait() == -9
    with place.engine(pace=SHORT) as engine:
        wait_for(lambda: all(job.is_over for name in SESSIONS for job in place.jobs(name)))
        assert engine.wait_idle(PATIENCE)
    over = {job.state for name in SESSIONS for job in place.jobs(name)}
    assert over <= {"done", "dropped"}  # three kills in one and the same job drop it
    for name in SESSIONS:
        with place.session(name) as session:
            done = [job for job in place.jobs(name) if job.state == "done"]
            assert len(session.compactions()) <= 1
            assert len(session.compactions()) == len(done)
            assert illegal(session.context()) == []
    assert list(place.store.verify()) == []
    place.close()


def test_a_worker_killed_between_commit_and_the_end_of_its_job_leaves_one_compaction(url: str):
    queued(url, ["a"])

    def die_after_commit(child: Child) -> None:
        place = Place(url)
        place.bus.subscribe(lambda _: os.kill(os.getpid(), signal.SIGKILL), types=("session.compacted",))
        with place.engine(pace=SHORT):
            child.hear()

    with Child(die_after_commit) as child:
        assert child.wait() == -9
    place = Place(url)
    with place.session("a") as session:
        assert len(session.compactions()) == 1
    assert [job.state for job in place.jobs("a")] == ["running"]
    with place.engine(pace=SHORT) as engine:
        wait_for(lambda: place.jobs("a")[0].is_over)
        assert engine.wait_idle(PATIENCE)
    assert [(job.state, job.attempts, job.reason) for job in place.jobs("a")] == [
        ("done", 2, "there was nothing left to do")
    ]
    check_done(place, ["a"])
    place.close()
