"""`compactor worker` as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.jobs.place import Place, turn
from tests.waiting import PATIENCE, wait_for

COMMAND = [sys.executable, "-c", "from context_compactor.cli.main import main; main()", "worker"]
# The same, but its jobs take longer than anybody waits.
SLOW = """
import time
from context_compactor.sessions.jobs.runner import JobRunner
JobRunner.do = lambda self, job: time.sleep(60)
from context_compactor.cli.main import main
main()
"""


@contextmanager
def working(url: str, *options: str, command: list[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A worker that has begun; it never outlives its test."""
    given = [*(command or COMMAND), "--store", url, *options]
    with subprocess.Popen(given, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as run:
        try:
            assert run.stderr is not None
            assert run.stderr.readline().startswith("working on ")
            yield run
        finally:
            run.kill()


@pytest.fixture
def waiting(place: Place) -> Place:
    """A store with a session that waits for a compaction. Its tokens are counted as a worker counts them."""
    with place.session("a", count_tokens=None) as session:
        while session.usage().share < 0.80:
            session.append(turn(len(session.history()), 100))
    return place


def test_a_worker_does_what_waits_and_stops_when_it_is_told_to(waiting: Place, url: str):
    with working(url, "--concurrency", "3") as run:
        wait_for(lambda: waiting.jobs()[0].state == "done")
        run.send_signal(signal.SIGTERM)
        _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0
    assert "stopped; every job is done or waits for another worker" in said
    with waiting.session("a", count_tokens=None) as session:
        assert len(session.compactions()) == 1
    assert [kept.event.type for kept in waiting.service_store.events.after(0)] == [
        "summary.applied",
        "session.compacted",
    ]


def test_sigterm_returns_a_job_that_takes_too_long(waiting: Place, url: str):
    with working(url, "--grace", "0.1", command=[sys.executable, "-c", SLOW, "worker"]) as run:
        wait_for(lambda: waiting.jobs()[0].state == "running")
        run.send_signal(signal.SIGTERM)
        assert run.wait(PATIENCE) == 0
    (job,) = waiting.jobs()
    assert (job.state, job.attempts, job.reason) == ("waiting", 0, "its worker was stopped")


def test_a_second_signal_does_not_wait(waiting: Place, url: str):
    with working(url, command=[sys.executable, "-c", SLOW, "worker"]) as run:
        wait_for(lambda: waiting.jobs()[0].state == "running")
        run.send_signal(signal.SIGINT)
        assert run.stderr is not None
        assert run.stderr.readline().startswith("stopping; ")
        run.send_signal(signal.SIGINT)
        assert run.wait(PATIENCE) == 0
    assert [job.state for job in waiting.jobs()] == ["waiting"]


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (
            "memory:",
            "a store in memory cannot be shared with other programs. Try: --store with the server's store URL.",
        ),
        ("sqlite:///none.db", "there is no store at none.db. Try: another --store"),
        ("mysql://somewhere", "is not a store URL"),
    ],
)
def test_a_store_that_is_not_there_is_said_to_be_so(tmp_path: Path, store: str, said: str):
    ran = subprocess.run([*COMMAND, "--store", store], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_number_of_jobs_that_cannot_be_is_wrong_usage(tmp_path: Path):
    ran = subprocess.run([*COMMAND, "--concurrency", "0"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "--concurrency" in ran.stderr
