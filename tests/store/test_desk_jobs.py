"""Jobs as rows: what may be queued, who may have it, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_compactor.protocols import Desk, Store
from context_compactor.store.desk import desk_of
from context_compactor.store.desk_rows import Job
from context_compactor.store.sqlite import SqliteStore
from tests.store.children import started
from tests.store.rows import AT, LATER, LATEST


@pytest.fixture
def desk(store: Store) -> Desk:
    return desk_of(store)


def claimed(desk: Desk, worker: str = "w1", now: str = AT) -> Job:
    job = desk.jobs.claim(worker, now, LATER)
    assert job is not None
    return job


# At most one of a session and level


def test_a_second_job_of_a_session_and_level_is_dropped_while_the_first_waits(desk: Desk):
    first = desk.jobs.queue_level("a", "soft", AT)
    assert first is not None
    assert (first.state, first.attempts, first.due_at) == ("waiting", 0, AT)
    assert desk.jobs.queue_level("a", "soft", AT) is None
    assert desk.jobs.open("a") == [first]


def test_it_is_dropped_while_the_first_runs_which_then_knows_of_it(desk: Desk):
    desk.jobs.queue_level("a", "soft", AT)
    job = claimed(desk)
    assert not job.is_asked_again
    assert desk.jobs.queue_level("a", "soft", AT) is None
    done = desk.jobs.finish(job, AT)
    assert done is not None
    assert done.is_asked_again


def test_when_the_first_is_over_a_second_is_a_new_job_with_a_higher_id(desk: Desk):
    first = desk.jobs.queue_level("a", "soft", AT)
    desk.jobs.finish(claimed(desk), AT)
    second = desk.jobs.queue_level("a", "soft", AT)
    assert first is not None
    assert second is not None
    assert second.id > first.id


def test_other_sessions_and_other_kinds_have_jobs_of_their_own(desk: Desk):
    assert all(desk.jobs.queue_level(session_id, "soft", AT) for session_id in ("a", "b", "team/a"))
    assert desk.jobs.queue("a", "extract", now=AT)
    assert desk.jobs.queue("a", "idle", now=AT)
    assert len(desk.jobs.open("a")) == 3


def test_a_higher_level_supersedes_a_lower_one_that_waits(desk: Desk):
    soft = desk.jobs.queue_level("a", "soft", AT)
    desk.jobs.queue_level("a", "aggressive", LATER)
    assert [job.level for job in desk.jobs.open("a")] == ["aggressive"]
    assert soft is not None
    gone = desk.jobs.find(soft.id)
    assert gone is not None
    assert (gone.state, gone.reason, gone.finished_at) == ("done", "superseded by aggressive", LATER)


def test_a_higher_level_waits_behind_a_lower_one_that_runs(desk: Desk):
    desk.jobs.queue_level("a", "soft", AT)
    soft = claimed(desk)
    assert desk.jobs.queue_level("a", "aggressive", AT)
    assert desk.jobs.claim("w2", AT, LATER) is None
    desk.jobs.finish(soft, AT)
    assert claimed(desk, "w2").level == "aggressive"


@pytest.mark.parametrize("is_running", [False, True])
def test_a_lower_level_is_dropped_while_a_higher_one_waits_or_runs(desk: Desk, is_running: bool):
    desk.jobs.queue_level("a", "aggressive", AT)
    job = claimed(desk) if is_running else None
    assert desk.jobs.queue_level("a", "soft", AT) is None
    assert desk.jobs.queue_level("a", "", AT) is None
    if job:
        done = desk.jobs.finish(job, AT)
        assert done is not None
        assert done.is_asked_again


# One at a time and in order


def test_of_one_session_a_single_job_is_given_out_whatever_its_kind(desk: Desk):
    desk.jobs.queue("a", "idle", now=AT)
    desk.jobs.queue_level("a", "soft", AT)
    desk.jobs.queue_level("b", "soft", AT)
    given = [desk.jobs.claim(f"w{at}", AT, LATER) for at in range(3)]
    assert [(job.session_id, job.kind) for job in given if job] == [("a", "compact"), ("b", "compact")]


def test_compactions_of_a_session_go_in_the_order_in_which_they_were_asked_for(desk: Desk):
    desk.jobs.queue_level("a", "soft", AT)
    soft = claimed(desk)
    desk.jobs.queue_level("a", "aggressive", AT)
    desk.jobs.put_back(soft, LATER, "it failed")
    assert desk.jobs.claim("w2", AT, LATER) is None  # the one behind it waits too
    assert claimed(desk, now=LATER).level == "soft"


def test_what_an_agent_waits_for_goes_before_what_it_does_not(desk: Desk):
    desk.jobs.queue("a", "idle", now=AT)
    desk.jobs.queue("b", "extract", now=AT)
    desk.jobs.queue_level("c", "soft", AT)
    assert [claimed(desk, f"w{at}").kind for at in range(3)] == ["compact", "extract", "idle"]


def test_a_job_is_not_given_out_before_its_time(desk: Desk):
    desk.jobs.queue("a", "idle", now=AT, due_at=LATER)
    assert desk.jobs.claim("w1", AT, LATER) is None
    assert desk.jobs.is_idle(AT)
    assert not desk.jobs.is_idle(LATER)
    assert claimed(desk, now=LATER).kind == "idle"


# Leases


def test_a_job_is_held_by_who_claimed_it_and_counts_its_attempts(desk: Desk):
    desk.jobs.queue_level("a", "soft", AT)
    job = claimed(desk)
    assert (job.state, job.worker, job.lease_until, job.attempts) == ("running", "w1", LATER, 1)
    assert desk.jobs.lapsed(AT) == []
    assert desk.jobs.lapsed(LATEST) == [job]
    assert desk.jobs.extend([job], LATEST) == {job.id}
    assert desk.jobs.lapsed(LATER) == []


def test_whoever_has_lost_a_job_can_neither_end_nor_extend_it(desk: Desk):
    desk.jobs.queue_level("a", "soft", AT)
    lost = claimed(desk)
    desk.jobs.put_back(lost, AT, "no sign of life")
    held = claimed(desk)  # by the same worker, even
    assert held.attempts == 2
    assert desk.jobs.finish(lost, AT) is None
    assert desk.jobs.drop(lost, AT, "") is None
    assert desk.jobs.put_back(lost, AT, "") is None
    assert desk.jobs.extend([lost, held], LATEST) == {held.id}
    assert desk.jobs.finish(held, AT, "it went well")


def test_an_attempt_that_is_not_counted_never_was(desk: Desk):
    desk.jobs.queue_level("a", "soft", AT)
    desk.jobs.put_back(claimed(desk), AT, "stopped", is_counted=False)
    assert [job.attempts for job in desk.jobs.open("a")] == [0]


def test_what_is_queued_in_a_transaction_of_the_store_is_taken_back_with_it(desk: Desk, store: Store):
    def fail() -> None:
        with store.writing("a"):
            desk.jobs.queue_level("a", "soft", AT)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert desk.jobs.open("a") == []


def test_processes_that_claim_at_once_never_get_the_same_job_or_session(tmp_path: Path):
    path = str(tmp_path / "sessions.db")
    store = SqliteStore(path)
    desk = desk_of(store)
    for at in range(60):
        desk.jobs.queue_level(f"s{at % 20}", ("soft", "aggressive", "")[at // 20], AT)

    def work(who: int) -> None:
        own = SqliteStore(path)
        jobs = desk_of(own).jobs
        while job := jobs.claim(f"w{who}", AT, LATER):
            assert [each.id for each in jobs.open(job.session_id) if each.state == "running"] == [job.id]
            assert jobs.finish(job, AT, f"w{who}")
        own.close()

    with started(work, range(4)) as children:
        assert [child.wait() for child in children] == [0] * 4
    done = desk.jobs.newest(states=["done"], limit=1_000)
    assert sorted(job.session_id for job in done if job.attempts == 1) == sorted(f"s{at}" for at in range(20))
    assert desk.jobs.is_idle(AT)
    store.close()


# Looking


def test_jobs_are_listed_newest_first_by_session_namespace_and_state(desk: Desk):
    for session_id in ("a", "team/a", "team/b"):
        desk.jobs.queue_level(session_id, "soft", AT)
    desk.jobs.finish(claimed(desk), AT)
    assert [job.session_id for job in desk.jobs.newest()] == ["team/b", "team/a", "a"]
    assert [job.session_id for job in desk.jobs.newest(namespace="team", limit=1)] == ["team/b"]
    assert [job.session_id for job in desk.jobs.newest(namespace="")] == ["a"]
    assert [job.session_id for job in desk.jobs.newest(session_id="team/a", states=["waiting", "done"])] == ["team/a"]
    assert desk.jobs.newest(before=1) == []
    assert desk.jobs.counts() == {("compact", "done"): 1, ("compact", "waiting"): 2}


def test_only_jobs_that_are_over_are_forgotten(desk: Desk):
    desk.jobs.queue_level("a", "soft", AT)
    desk.jobs.finish(claimed(desk), AT)
    desk.jobs.queue_level("b", "soft", AT)
    desk.jobs.drop(claimed(desk), LATER, "no")
    desk.jobs.queue_level("c", "soft", AT)
    desk.jobs.forget(LATER)
    assert [job.session_id for job in desk.jobs.newest()] == ["c", "b"]
    desk.jobs.forget(AT, keep=0)
    assert [job.session_id for job in desk.jobs.newest()] == ["c"]
