"""Leases within one engine: a machine that slept finds its own leases lapsed, and every hand of it goes on."""

from __future__ import annotations

from threading import Barrier, Event

from context_compactor.sessions.jobs.leases import Leases, Retries, WorkerTiming
from context_compactor.store.rows import Job
from tests.jobs.place import Place, Ticking, fill
from tests.waiting import PATIENCE, wait_for

# No sign of life is given while the test runs.
ASLEEP = WorkerTiming(lease=60.0, beat=50.0, poll=0.01, watch=0.02)


def test_a_hand_whose_job_was_given_to_another_hand_of_the_same_engine_goes_on(still: Place, clock: Ticking):
    begun: list[int] = []
    go_on, together = Event(), Barrier(2)

    def before(job: Job) -> None:
        if job.session_id == "a":
            begun.append(job.attempts)
            assert go_on.wait(PATIENCE)
        else:
            together.wait(PATIENCE)  # it takes both hands to come through

    with still.session() as session, still.engine(before, workers=2, pace=ASLEEP) as engine:
        fill(session, 0.82)
        wait_for(lambda: begun == [1])
        clock.go_on(3_600.0)
        wait_for(lambda: begun == [1, 2])
        assert sorted(job.attempts for job in engine.status().running) == [1, 2]
        go_on.set()
        assert engine.wait_idle(PATIENCE)
        assert len(session.compactions()) == 1
        for name in "bc":
            with still.session(name) as other:
                fill(other, 0.82)
        assert engine.wait_idle(PATIENCE)
    assert [job.state for name in "abc" for job in still.jobs(name)] == ["done"] * 3


def test_only_the_hand_that_lost_its_job_stops_waiting_for_its_model(still: Place, clock: Ticking):
    """The other one has the same job, and goes on with it."""
    with still.session() as session:
        fill(session, 0.82)
    now = clock().isoformat(timespec="milliseconds")
    first = still.service_store.jobs.claim("one", now, now)
    assert first is not None
    still.service_store.jobs.put_back(first, now, "no sign of life")
    second = still.service_store.jobs.claim("other", now, now)
    assert second is not None
    ended: list[Job] = []
    work = still.work()
    work.cancel = ended.append
    leases = Leases(still.service_store, work, Retries(still.service_store, work, still.bus, clock), clock, ASLEEP)
    with leases.holding(first), leases.holding(second):
        leases.renew()
        assert leases.held() == [first, second]
    assert ended == [first]
    assert leases.held() == []
