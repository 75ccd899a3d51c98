"""The sentences that describe jobs, one test each."""

from __future__ import annotations

from threading import Barrier, Event, Lock
from typing import Any

import pytest
from msgspec import structs

from context_compactor.sessions.core import Core
from context_compactor.sessions.jobs import runner as work_module
from context_compactor.settings import Level, LevelRule
from context_compactor.store.events import Event as Told
from context_compactor.store.rows import Job, timestamp
from context_compactor.summarize.summarizer import ModelSummarizer
from context_compactor.testing import ScriptedModel
from tests.jobs.place import QUICK, WINDOW, Place, Ticking, fill, turn
from tests.waiting import PATIENCE, wait_for


def levels(place: Place, session_id: str = "a") -> list[tuple[str, str]]:
    return [(job.level, job.state) for job in place.jobs(session_id)]


def share(place: Place, session_id: str = "a") -> float:
    with place.session(session_id) as session:
        return session.usage().share


# Levels


def test_after_every_message_the_level_is_checked_and_a_crossing_schedules_a_job(place: Place):
    with place.session() as session:
        fill(session, 0.78)
        number = len(session.history())
        while session.usage().share < 0.80:
            assert place.jobs() == []
            session.append(turn(number, 30))
            number += 2
        assert levels(place) == [("soft", "waiting")]
        assert session.compactions() == []
    with place.engine() as engine:
        assert engine.wait_idle(PATIENCE)
    assert levels(place) == [("soft", "done")]
    assert share(place) <= 0.40


@pytest.mark.parametrize(("filled", "level", "target"), [(0.81, "soft", 0.40), (0.86, "aggressive", 0.25)])
def test_each_level_is_triggered_at_its_share_and_does_its_own_amount(
    place: Place, filled: float, level: str, target: float
):
    with place.session() as session:
        fill(session, filled)
        assert levels(place) == [(level, "waiting")]
        with place.engine() as engine:
            assert engine.wait_idle(PATIENCE)
        (report,) = session.compactions()
        assert (report.level, report.trigger) == (level, "threshold")
        assert session.usage().share <= target


def test_if_context_jumps_from_60_to_88_percent_only_the_aggressive_job_is_scheduled(place: Place):
    with place.session() as session:
        fill(session, 0.60)
        assert place.jobs() == []
        fill(session, 0.88)
    assert levels(place) == [("aggressive", "waiting")]
    assert [event.payload["level"] for event in place.told("threshold.crossed")] == ["aggressive"]


def test_a_waiting_soft_job_is_superseded_by_an_aggressive_one(place: Place):
    with place.session() as session:
        fill(session, 0.82)
        fill(session, 0.87)
    assert levels(place) == [("soft", "done"), ("aggressive", "waiting")]
    with place.engine() as engine:
        assert engine.wait_idle(PATIENCE)
    with place.session() as session:
        assert [report.level for report in session.compactions()] == ["aggressive"]


def test_an_emergency_runs_at_once_in_the_request_with_no_model(place: Place):
    model = ScriptedModel(["a story"])
    with place.session() as session:
        session._core.use_summarizer(ModelSummarizer(model, session.settings))
        fill(session, 0.60)
        report = session.append([message for number in range(40, 80, 2) for message in turn(number, 110)])
        assert report is not None
        assert (report.level, report.changed) == ("emergency", True)
        assert session.usage().share < 0.80
    assert place.jobs() == []
    assert model.requests == []


def test_a_session_whose_compaction_is_off_or_only_by_request_queues_none(place: Place):
    for name, settings in (("off", {"enabled": False}), ("asked", {"automatic": False})):
        with place.session(name, **settings) as session:
            fill(session, 0.88)
        assert place.jobs(name) == []
    assert [event.session_id for event in place.told("threshold.crossed")] == ["asked"]


# Deduplication and ordering


def test_a_job_is_queued_with_the_message_that_crossed_or_not_at_all(place: Place):
    with place.session() as session:
        fill(session, 0.70)
        before = session.history()

        def refuse(*_: Any) -> None:
            raise RuntimeError("the power fails")

        session._core.schedule = refuse
        with pytest.raises(RuntimeError):
            fill(session, 0.88)
        assert session.history() == before
    assert place.jobs() == []


@pytest.mark.parametrize("is_active", [False, True])
def test_if_a_job_is_already_active_or_queued_new_trigger_events_are_silently_dropped(place: Place, is_active: bool):
    begun, go_on = Event(), Event()

    def before(job: Job) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    with place.session() as session:
        fill(session, 0.82)
        with place.engine(before) as engine:
            if is_active:
                wait_for(begun)
            heard = list(place.heard)
            for _ in range(5):  # each of them looks as if the level had never fired
                session._is_checked = False
                session.context()
            assert len(place.jobs()) == 1
            assert place.heard == heard
            go_on.set()
            assert engine.wait_idle(PATIENCE)
        assert len(session.compactions()) == 1


def test_the_same_level_never_runs_twice_for_the_same_session_at_the_same_time(place: Place):
    lock, running, most = Lock(), [0], [0]

    def before(job: Job) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        Event().wait(0.02)
        with lock:
            running[0] -= 1

    with place.session() as session, place.engine(before, workers=4) as engine:
        for _ in range(4):
            fill(session, 0.83)
            session._is_checked = False
            session.context()
            assert engine.wait_idle(PATIENCE)
    assert most == [1]


def test_jobs_within_a_session_are_done_one_at_a_time_in_order(place: Place):
    begun: list[tuple[int, str]] = []
    go_on, first = Event(), Event()

    def before(job: Job) -> None:
        begun.append((job.id, job.level))
        first.set()
        assert go_on.wait(PATIENCE)

    with place.session() as session, place.engine(before, workers=4) as engine:
        fill(session, 0.82)
        wait_for(first)
        fill(session, 0.88)
        assert levels(place) == [("soft", "running"), ("aggressive", "waiting")]
        assert [level for _, level in begun] == ["soft"]
        go_on.set()
        assert engine.wait_idle(PATIENCE)
    assert [level for _, level in begun][:2] == ["soft", "aggressive"]
    assert begun == sorted(begun)


def test_multiple_sessions_are_served_independently_and_in_parallel(place: Place):
    together = Barrier(3)

    def before(job: Job) -> None:
        together.wait(PATIENCE)  # nobody comes through unless all three are at work at the same time

    for name in "abc":
        with place.session(name) as session:
            fill(session, 0.82)
    with place.engine(before, workers=3) as engine:
        assert engine.wait_idle(PATIENCE)
    assert [levels(place, name) for name in "abc"] == [[("soft", "done")]] * 3


def test_a_finished_job_looks_again_so_that_no_crossing_is_lost(place: Place, monkeypatch: pytest.MonkeyPatch):
    high = (LevelRule(Level.SOFT, 0.80, 0.74), LevelRule(Level.EMERGENCY, 0.95, 0.15))
    with place.session(levels=high, min_gain_percent=1.0) as session:
        fill(session, 0.81)
        original = place.store.archive

        def archive(*given: Any) -> list[str]:
            """The job has read the session, and not committed: messages come that cross nothing as it stands."""
            monkeypatch.setattr(place.store, "archive", original)
            with place.session(levels=high, min_gain_percent=1.0) as other:
                fill(other, 0.93)
            return original(*given)

        monkeypatch.setattr(place.store, "archive", archive)
        with place.engine() as engine:
            assert engine.wait_idle(PATIENCE)
        assert levels(place) == [("soft", "done"), ("soft", "done")]
        assert [event.payload["level"] for event in place.told("threshold.crossed")] == ["soft", "soft"]
        assert session.usage().share < 0.80


def test_a_trigger_that_was_dropped_after_the_commit_of_the_job_is_not_lost(place: Place):
    crossings = [0.83]

    def heard(event: Told) -> None:
        if crossings:  # the compaction is committed, its job is not yet done
            with place.session() as other:
                fill(other, crossings.pop())
                assert levels(place) == [("soft", "running")]

    place.bus.subscribe(heard, types=("session.compacted",))
    with place.session() as session:
        fill(session, 0.82)
        with place.engine() as engine:
            assert engine.wait_idle(PATIENCE)
        assert levels(place) == [("soft", "done"), ("soft", "done")]
        assert len(session.compactions()) == 2
        assert session.usage().share <= 0.40


def test_a_job_whose_level_was_left_meanwhile_changes_nothing(place: Place):
    with place.session() as session:
        fill(session, 0.82)
        session.compact()
        with place.engine() as engine:
            assert engine.wait_idle(PATIENCE)
        assert len(session.compactions()) == 1
    assert [job.reason for job in place.jobs()] == ["there was nothing left to do"]


def test_what_cannot_be_made_smaller_is_not_tried_without_end(place: Place):
    rules = [f"Rule {at}: never touch release {at * 7}, whoever asks for part {at}." for at in range(310)]
    wall = {"role": "system", "content": "\n".join(rules)}
    with place.session() as session:
        session.append([wall, *turn(1, 60), *turn(3, 60)])
        assert 0.80 <= session.usage().share < 0.95
        with place.engine() as engine:
            assert engine.wait_idle(PATIENCE)
    assert len(place.jobs()) == 1


def test_a_limit_that_cannot_be_reached_is_not_tried_without_end(place: Place):
    with place.session(model_auto_compact_token_limit=100) as session:
        fill(session, 0.6)
        with place.engine() as engine:
            assert engine.wait_idle(PATIENCE)
        assert session.usage().tokens > 100
        assert len(place.jobs()) == 1


def test_a_job_does_not_repeat_what_a_user_has_taken_back(place: Place):
    with place.session() as session:
        fill(session, 0.82)
        session.compact()
        session.undo()
        with place.engine() as engine:
            assert engine.wait_idle(PATIENCE)
        assert session.usage().share > 0.80
        assert len(session.compactions()) == 1


# Reliability


def failing(times: int) -> tuple[list[int], Any]:
    attempts: list[int] = []

    def before(job: Job) -> None:
        attempts.append(job.attempts)
        if len(attempts) <= times:
            raise TimeoutError("the model call times out")

    return attempts, before


def test_failed_jobs_are_retried_up_to_three_times_with_a_growing_delay(still: Place, clock: Ticking):
    attempts, before = failing(2)
    with still.session(retry_delay_seconds=2.0) as session:
        fill(session, 0.82)
        with still.engine(before) as engine:
            for wait in (2.0, 4.0):
                assert engine.wait_idle(PATIENCE)
                (job,) = still.jobs()
                assert (job.state, job.reason) == ("waiting", "TimeoutError: the model call times out")
                assert job.due_at == still.told("job.retried")[-1].payload["due_at"]
                clock.go_on(wait - 0.1)
                assert engine.wait_idle(PATIENCE)
                assert still.jobs() == [job]
                clock.go_on(0.2)
            assert engine.wait_idle(PATIENCE)
        assert len(session.compactions()) == 1
    assert attempts == [1, 2, 3]
    assert levels(still) == [("soft", "done")]
    assert [event.payload["attempt"] for event in still.told("job.retried")] == [1, 2]
    assert still.told("job.dropped") == []


def drop_one(place: Place, clock: Ticking) -> None:
    """A job that fails three times."""
    attempts, before = failing(3)
    with place.engine(before) as engine:
        for _ in range(3):
            assert engine.wait_idle(PATIENCE)
            clock.go_on(10.0)
        assert engine.wait_idle(PATIENCE)
    assert attempts == [1, 2, 3]
    assert levels(place) == [("soft", "dropped")]
    (dropped,) = place.told("job.dropped")
    assert dropped.payload["reason"] == "TimeoutError: the model call times out"


def test_after_three_failures_the_job_is_dropped_and_the_next_crossing_schedules_a_fresh_one(
    still: Place, clock: Ticking
):
    with still.session() as session:
        fill(session, 0.82)
        drop_one(still, clock)
        assert session.compactions() == []
        fill(session, 0.87)
        assert levels(still)[1:] == [("aggressive", "waiting")]
        with still.engine() as engine:
            assert engine.wait_idle(PATIENCE)
        assert len(session.compactions()) == 1


def test_after_the_wait_a_message_in_the_same_band_schedules_a_fresh_one(still: Place, clock: Ticking):
    with still.session() as session:
        fill(session, 0.82)
        drop_one(still, clock)
        session.append(turn(900, 20))
        assert len(still.jobs()) == 1
        clock.go_on(60.0)
        session.append(turn(902, 20))
        assert levels(still)[1:] == [("soft", "waiting")]
        with still.engine() as engine:
            assert engine.wait_idle(PATIENCE)
        assert len(session.compactions()) == 1


def test_a_job_of_a_session_that_is_gone_is_dropped_at_once(still: Place, clock: Ticking):
    with still.session() as session:
        fill(session, 0.82)
        job = still.jobs()[0]
    still.store.expire("9999")
    assert still.jobs() == []
    still.service_store.jobs.queue(
        job.session_id, job.kind, level=job.level, now=job.created_at
    )  # by whoever did not know
    with still.engine() as engine:
        assert engine.wait_idle(PATIENCE)
    assert [(job.state, job.attempts, job.reason) for job in still.jobs()] == [
        ("dropped", 1, "its session is no longer there")
    ]


def test_a_session_that_stays_open_for_days_never_hits_the_limit(still: Place, clock: Ticking):
    """Messages every few minutes, and jobs of which every fourth fails."""
    began, number, jobs = clock(), 0, [0]

    def before(job: Job) -> None:
        jobs[0] += 1
        if jobs[0] % 4 == 0:
            raise TimeoutError("the model call times out")

    patient = structs.replace(QUICK, lease=86_400.0)  # the clock goes on while jobs run
    with still.session() as session, still.engine(before, pace=patient):
        while (clock() - began).days < 3:
            session.append(turn(number, 120))
            number += 2
            usage = session.usage()
            assert usage.share < 1.0
            assert usage.tokens < WINDOW
            clock.go_on(30 * 60.0)
            wait_for(lambda: not still.service_store.jobs.newest(states=["running"]))
        assert session.history() == [raw for at in range(0, number, 2) for raw in turn(at, 120)]
        assert len(session.compactions()) >= 5
    assert still.told("job.retried")


# What gets published


def test_threshold_crossed_is_told_when_a_level_has_been_reached_and_a_job_has_been_created(place: Place):
    with place.session() as session:
        fill(session, 0.82)
        fill(session, 0.84)
    assert [event.type for event in place.heard] == ["threshold.crossed", "job.queued"]
    assert place.heard[0].payload["level"] == "soft"
    assert place.heard[1].payload == {"job": place.jobs()[0].id, "what": "compact", "level": "soft"}


def test_summary_applied_is_told_when_a_compaction_job_completes_successfully(place: Place):
    with place.session() as session:
        fill(session, 0.82)
    assert place.told("summary.applied") == []
    with place.engine() as engine:
        assert engine.wait_idle(PATIENCE)
    (applied,) = place.told("summary.applied")
    assert applied.session_id == "a"
    assert applied.payload["tokens_saved"] > 0


# Quiet work


def test_idle_work_is_a_job_that_every_message_puts_off(still: Place, clock: Ticking):
    with still.session(idle_seconds=5.0) as session:
        fill(session, 0.3)
        clock.go_on(4.0)
        session.append(turn(100, 30))
        with still.engine() as engine:
            clock.go_on(4.0)
            assert engine.wait_idle(PATIENCE)
            assert [job.state for job in still.jobs()] == ["waiting"]
            assert session._core.store.facts("a") == []
            clock.go_on(1.1)
            wait_for(lambda: [job.state for job in still.jobs()] == ["done"])
        assert session._core.store.facts("a")
        assert not session._idle._thread
    assert still.heard == []


def test_a_message_that_comes_just_before_idle_work_puts_it_off(still: Place, clock: Ticking):
    begun, go_on = Event(), Event()

    def before(job: Job) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    with still.session(idle_seconds=5.0) as session:
        fill(session, 0.3)
        clock.go_on(5.0)
        with still.engine(before) as engine:
            wait_for(begun)
            session.append(turn(100, 30))
            go_on.set()
            assert engine.wait_idle(PATIENCE)
        (job,) = still.jobs()
        assert (job.kind, job.state, job.attempts) == ("idle", "waiting", 0)
        assert job.due_at == timestamp(clock(), 5.0)


def test_a_message_that_comes_while_idle_work_is_done_gets_idle_work_of_its_own(
    still: Place, clock: Ticking, monkeypatch: pytest.MonkeyPatch
):
    with still.session(idle_seconds=5.0) as session:

        def interrupted(core: Core) -> None:
            session.append(turn(100, 30))

        monkeypatch.setattr(work_module, "prepare_compaction", interrupted)
        fill(session, 0.3)
        clock.go_on(5.0)
        with still.engine() as engine:
            wait_for(lambda: len(still.jobs()) > 1)
            assert engine.wait_idle(PATIENCE)
        assert [(job.kind, job.state) for job in still.jobs()] == [("idle", "done"), ("idle", "waiting")]


def test_periodic_fact_extraction_is_a_job(still: Place, clock: Ticking):
    with still.session() as session:
        fill(session, 0.3)
        clock.go_on(31 * 60.0)
        session.append(turn(100, 30))
        session.append(turn(102, 30))
        assert [(job.kind, job.state) for job in still.jobs()] == [("extract", "waiting")]
        assert session._core.store.facts("a") == []
        with still.engine() as engine:
            assert engine.wait_idle(PATIENCE)
        assert session._core.store.facts("a")
        session.append(turn(104, 30))
    assert [(job.kind, job.state) for job in still.jobs()] == [("extract", "done")]


def test_counters_that_compact_queue_a_job_of_no_level(place: Place):
    with place.session(counters_compact=True, suggest_files=0, suggest_tool_results=4) as session:
        fill(session, 0.5)
        calls = [{"id": f"c{at}", "type": "function", "function": {"name": "ls", "arguments": "{}"}} for at in range(4)]
        results = [{"role": "tool", "tool_call_id": f"c{at}", "content": f"file_{at}.py"} for at in range(4)]
        session.append([{"role": "assistant", "content": None, "tool_calls": calls}, *results])
        assert levels(place) == [("", "waiting")]
        with place.engine() as engine:
            assert engine.wait_idle(PATIENCE)
        assert [report.level for report in session.compactions()] == ["soft"]
