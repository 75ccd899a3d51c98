"""Jobs as rows: what may be queued, who may have it, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_compactor.protocols import ServiceStore, Store
from context_compactor.store.rows import Job
from context_compactor.store.service_store import service_store_of
from context_compactor.store.sqlite import SqliteStore
from tests.store.children import started
from tests.store.rows import AT, LATER, LATEST


@pytest.fixture
def service_store(store: Store) -> ServiceStore:
    return service_store_of(store)


def claimed(service_store: ServiceStore, worker: str = "w1", now: str = AT) -> Job:
    job = service_store.jobs.claim(worker, now, LATER)
    assert job is not None
    return job


# At most one of a session and level


def test_a_second_job_of_a_session_and_level_is_dropped_while_the_first_waits(service_store: ServiceStore):
    first = service_store.jobs.queue_level("a", "soft", AT)
    assert first is not None
    assert (first.state, first.attempts, first.due_at) == ("waiting", 0, AT)
    assert service_store.jobs.queue_level("a", "soft", AT) is None
    assert service_store.jobs.open("a") == [first]


def test_it_is_dropped_while_the_first_runs_which_then_knows_of_it(service_store: ServiceStore):
    service_store.jobs.queue_level("a", "soft", AT)
    job = claimed(service_store)
    assert not job.is_asked_again
    assert service_store.jobs.queue_level("a", "soft", AT) is None
    done = service_store.jobs.finish(job, AT)
    assert done is not None
    assert done.is_asked_again


def test_when_the_first_is_over_a_second_is_a_new_job_with_a_higher_id(service_store: ServiceStore):
    first = service_store.jobs.queue_level("a", "soft", AT)
    service_store.jobs.finish(claimed(service_store), AT)
    second = service_store.jobs.queue_level("a", "soft", AT)
    assert first is not None
    assert second is not None
    assert second.id > first.id


def test_other_sessions_and_other_kinds_have_jobs_of_their_own(service_store: ServiceStore):
    assert all(service_store.jobs.queue_level(session_id, "soft", AT) for session_id in ("a", "b", "team/a"))
    assert service_store.jobs.queue("a", "extract", now=AT)
    assert service_store.jobs.queue("a", "idle", now=AT)
    assert len(service_store.jobs.open("a")) == 3


def test_a_higher_level_supersedes_a_lower_one_that_waits(service_store: ServiceStore):
    soft = service_store.jobs.queue_level("a", "soft", AT)
    service_store.jobs.queue_level("a", "aggressive", LATER)
    assert [job.level for job in service_store.jobs.open("a")] == ["aggressive"]
    assert soft is not None
    gone = next((job for job in service_store.jobs.newest() if job.id == soft.id), None)
    assert gone is not None
    assert (gone.state, gone.reason, gone.finished_at) == ("done", "superseded by aggressive", LATER)


def test_a_higher_level_waits_behind_a_lower_one_that_runs(service_store: ServiceStore):
    service_store.jobs.queue_level("a", "soft", AT)
    soft = claimed(service_store)
    assert service_store.jobs.queue_level("a", "aggressive", AT)
    assert service_store.jobs.claim("w2", AT, LATER) is None
    service_store.jobs.finish(soft, AT)
    assert claimed(service_store, "w2").level == "aggressive"


@pytest.mark.parametrize("is_running", [False, True])
def test_a_lower_level_is_dropped_while_a_higher_one_waits_or_runs(service_store: ServiceStore, is_running: bool):
    service_store.jobs.queue_level("a", "aggressive", AT)
    job = claimed(service_store) if is_running else None
    assert service_store.jobs.queue_level("a", "soft", AT) is None
    assert service_store.jobs.queue_level("a", "", AT) is None
    if job:
        done = service_store.jobs.finish(job, AT)
        assert done is not None
        assert done.is_asked_again


# One at a time and in order


def test_of_one_session_a_single_job_is_given_out_whatever_its_kind(service_store: ServiceStore):
    service_store.jobs.queue("a", "idle", now=AT)
    service_store.jobs.queue_level("a", "soft", AT)
    service_store.jobs.queue_level("b", "soft", AT)
    given = [service_store.jobs.claim(f"w{at}", AT, LATER) for at in range(3)]
    assert [(job.session_id, job.kind) for job in given if job] == [("a", "compact"), ("b", "compact")]


def test_compactions_of_a_session_go_in_the_order_in_which_they_were_asked_for(service_store: ServiceStore):
    service_store.jobs.queue_level("a", "soft", AT)
    soft = claimed(service_store)
    service_store.jobs.queue_level("a", "aggressive", AT)
    service_store.jobs.put_back(soft, LATER, "it failed")
    assert service_store.jobs.claim("w2", AT, LATER) is None  # the one behind it waits too
    assert claimed(service_store, now=LATER).level == "soft"


def test_what_an_agent_waits_for_goes_before_what_it_does_not(service_store: ServiceStore):
    service_store.jobs.queue("a", "idle", now=AT)
    service_store.jobs.queue("b", "extract", now=AT)
    service_store.jobs.queue_level("c", "soft", AT)
    assert [claimed(service_store, f"w{at}").kind for at in range(3)] == ["compact", "extract", "idle"]


def test_a_job_is_not_given_out_before_its_time(service_store: ServiceStore):
    service_store.jobs.queue("a", "idle", now=AT, due_at=LATER)
    assert service_store.jobs.claim("w1", AT, LATER) is None
    assert service_store.jobs.is_idle(AT)
    assert not service_store.jobs.is_idle(LATER)
    assert claimed(service_store, now=LATER).kind == "idle"


# Leases


def test_a_job_is_held_by_who_claimed_it_and_counts_its_attempts(service_store: ServiceStore):
    service_store.jobs.queue_level("a", "soft", AT)
    job = claimed(service_store)
    assert (job.state, job.worker, job.lease_until, job.attempts) == ("running", "w1", LATER, 1)
    assert service_store.jobs.lapsed(AT) == []
    assert service_store.jobs.lapsed(LATEST) == [job]
    assert service_store.jobs.extend([job], LATEST) == {job.id}
    assert service_store.jobs.lapsed(LATER) == []


def test_whoever_has_lost_a_job_can_neither_end_nor_extend_it(service_store: ServiceStore):
    service_store.jobs.queue_level("a", "soft", AT)
    lost = claimed(service_store)
    service_store.jobs.put_back(lost, AT, "no sign of life")
    held = claimed(service_store)  # by the same worker, even
    assert held.attempts == 2
    assert service_store.jobs.finish(lost, AT) is None
    assert service_store.jobs.drop(lost, AT, "") is None
    assert service_store.jobs.put_back(lost, AT, "") is None
    assert service_store.jobs.extend([lost, held], LATEST) == {held.id}
    assert service_store.jobs.finish(held, AT, "it went well")


def test_an_attempt_that_is_not_counted_never_was(service_store: ServiceStore):
    service_store.jobs.queue_level("a", "soft", AT)
    service_store.jobs.put_back(claimed(service_store), AT, "stopped", is_counted=False)
    assert [job.attempts for job in service_store.jobs.open("a")] == [0]


def test_what_is_queued_in_a_transaction_of_the_store_is_taken_back_with_it(service_store: ServiceStore, store: Store):
    def fail() -> None:
        with store.writing("a"):
            service_store.jobs.queue_level("a", "soft", AT)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert service_store.jobs.open("a") == []


def test_processes_that_claim_at_once_never_get_the_same_job_or_session(tmp_path: Path):
    path = str(tmp_path / "sessions.db")
    store = SqliteStore(path)
    service_store = service_store_of(store)
    for at in range(60):
        service_store.jobs.queue_level(f"s{at % 20}", ("soft", "aggressive", "")[at // 20], AT)

    def work(who: int) -> None:
        own = SqliteStore(path)
        jobs = service_store_of(own).jobs
        while job := jobs.claim(f"w{who}", AT, LATER):
            assert [each.id for each in jobs.open(job.session_id) if each.state == "running"] == [job.id]
            assert jobs.finish(job, AT, f"w{who}")
        own.close()

    with started(work, range(4)) as children:
        assert [child.wait() for child in children] == [0] * 4
    done = service_store.jobs.newest(states=["done"], limit=1_000)
    assert sorted(job.session_id for job in done if job.attempts == 1) == sorted(f"s{at}" for at in range(20))
    assert service_store.jobs.is_idle(AT)
    store.close()


# Looking


def test_jobs_are_listed_newest_first_by_session_namespace_and_state(service_store: ServiceStore):
    for session_id in ("a", "team/a", "team/b"):
        service_store.jobs.queue_level(session_id, "soft", AT)
    service_store.jobs.finish(claimed(service_store), AT)
    assert [job.session_id for job in service_store.jobs.newest()] == ["team/b", "team/a", "a"]
    assert [job.session_id for job in service_store.jobs.newest(namespace="team", limit=1)] == ["team/b"]
    assert [job.session_id for job in service_store.jobs.newest(namespace="")] == ["a"]
    assert [job.session_id for job in service_store.jobs.newest(session_id="team/a", states=["waiting", "done"])] == [
        "team/a"
    ]
    assert service_store.jobs.newest(before=1) == []
    assert service_store.jobs.counts() == {("compact", "done"): 1, ("compact", "waiting"): 2}


def test_only_jobs_that_are_over_are_forgotten(service_store: ServiceStore):
    service_store.jobs.queue_level("a", "soft", AT)
    service_store.jobs.finish(claimed(service_store), AT)
    service_store.jobs.queue_level("b", "soft", AT)
    service_store.jobs.drop(claimed(service_store), LATER, "no")
    service_store.jobs.queue_level("c", "soft", AT)
    service_store.jobs.forget(LATER)
    assert [job.session_id for job in service_store.jobs.newest()] == ["c", "b"]
    service_store.jobs.forget(AT, keep=0)
    assert [job.session_id for job in service_store.jobs.newest()] == ["c"]
