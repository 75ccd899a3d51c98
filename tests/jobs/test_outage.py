"""A database that goes away and comes back: said once, waited for, nothing lost by it; and clocks that differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from threading import Event

import pytest

from context_compactor.errors import StoreError
from context_compactor.sessions.core import wall_clock
from context_compactor.sessions.jobs import leases
from context_compactor.sessions.jobs.leases import Outage
from context_compactor.sessions.jobs.worker import WorkerPool
from context_compactor.store.postgres import PostgresStore
from context_compactor.store.rows import Job
from context_compactor.store.service_store import service_store_of
from tests.jobs.place import QUICK, Place, fill
from tests.postgres import Server, new_schema
from tests.waiting import PATIENCE, wait_for


class Hasty(Place):
    """A place whose database is not waited for long."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.store.close()
        self.store = PostgresStore(url, busy_seconds=0.3)
        self.service_store = service_store_of(self.store)


@pytest.fixture
def hasty(own_postgres: Server) -> Iterator[Hasty]:
    place = Hasty(own_postgres.url(schema=new_schema()))
    with place.session() as session:
        fill(session, 0.82)
    yield place
    place.close()


def of_the_store(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What an engine has said about its store."""
    return [record.getMessage() for record in caplog.records if record.module == "leases"]


def _is_done(hasty: Hasty) -> bool:
    try:
        return hasty.jobs()[0].state == "done"
    except StoreError:  # it is not quite back yet
        return False


def test_a_database_that_goes_away_under_a_job_is_said_once_and_the_job_goes_on_when_it_is_back(
    hasty: Hasty, own_postgres: Server, caplog: pytest.LogCaptureFixture
):
    begun, is_down = Event(), Event()

    def before(job: Job) -> None:
        begun.set()
        assert is_down.wait(PATIENCE)

    with hasty.engine(before):
        wait_for(begun)
        own_postgres.stop("immediate")
        is_down.set()
        wait_for(lambda: of_the_store(caplog))
        own_postgres.start()
        wait_for(lambda: _is_done(hasty))  # long before its lease, of a minute, would have lapsed
    (job,) = hasty.jobs()
    assert (job.state, job.attempts) == ("done", 2)
    assert ["stopped answering" in event.payload["reason"] for event in hasty.told("job.retried")] == [False]
    said = of_the_store(caplog)
    assert said[0].startswith("no job can be done, and it is tried again until it works: postgresql://")
    assert sum("cannot be reached" in each for each in said) == 1  # a slow machine may have too few connections later
    assert said[-1] == "the store answers again, and jobs go on"


def test_a_store_that_is_away_is_asked_ever_more_rarely_and_once_it_answers_at_once(monkeypatch: pytest.MonkeyPatch):
    times = iter([100.0, 100.5, 103.0, 999.0])
    monkeypatch.setattr(leases.time, "monotonic", lambda: next(times))
    store = Outage()
    assert store.wait == 0.0
    store.begin(StoreError("gone"))
    assert [store.wait, store.wait, store.wait] == [0.5, 3.0, 5.0]
    store.end()
    assert store.wait == 0.0


def test_a_machine_whose_clock_is_an_hour_ahead_takes_no_job_from_one_that_is_alive(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    begun, go_on, looks = Event(), Event(), []

    def before(job: Job) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    with closing(Place(postgres_url)) as one, closing(Place(postgres_url)) as two:
        with one.session() as session:
            fill(session, 0.82)
        right = WorkerPool(one.store, one.service_store, workers=1, bus=one.bus, pace=QUICK, work=one.work(before))
        monkeypatch.setattr(
            "context_compactor.sessions.jobs.worker.wall_clock", lambda: wall_clock() + timedelta(hours=1)
        )
        wrong = WorkerPool(two.store, two.service_store, workers=1, bus=two.bus, pace=QUICK, work=two.work())
        lapsed = two.service_store.jobs.lapsed
        monkeypatch.setattr(two.service_store.jobs, "lapsed", lambda now: looks.append(now) or lapsed(now))
        right.start()
        wait_for(begun)
        wrong.start()
        wait_for(lambda: len(looks) > 3)
        assert [(job.state, job.attempts) for job in one.jobs()] == [("running", 1)]
        go_on.set()
        assert right.wait_idle(PATIENCE)
        right.stop()
        wrong.stop()
        assert [(job.state, job.attempts) for job in one.jobs()] == [("done", 1)]
