"""A compaction that a job is at can be dropped: here at once, in another process at the next sign of life."""

from __future__ import annotations

from context_compactor.sessions.jobs.schedule import Schedule, cancel_compactions
from context_compactor.sessions.lifecycle import continue_core
from context_compactor.sessions.session import Session
from context_compactor.summarize.summarizer import ModelSummarizer
from tests.jobs.place import Place
from tests.sessions.summarizing import FIRST, Slow, step, steps
from tests.sessions.talk import opened
from tests.waiting import wait_for


def full(place: Place) -> Session:
    """A session whose compaction waits for a worker."""
    session = opened(
        place.store,
        "a",
        window=32_000,
        bus=place.bus,
        clock=place.clock,
        schedule=Schedule(place.service_store),
        idle_seconds=0,
    )
    session.append([*FIRST, *steps(0, 34)])
    number = 34
    while not place.jobs():
        session.append(step(number))
        number += 1
    return session


def dropped(place: Place) -> list[int]:
    core = continue_core("a", place.store, place.bus, clock=place.clock)
    return [job.id for job in cancel_compactions(core, place.service_store)]


def test_a_compaction_that_is_dropped_is_ended_by_its_own_engine_and_nothing_is_changed(place: Place):
    model = Slow()
    with full(place) as session, place.engine(summarizer=ModelSummarizer(model, session.settings)) as engine:
        before = session.context()
        wait_for(model.begun)
        (job,) = place.jobs()
        assert dropped(place) == [job.id]
        assert [each.id for each in engine.cancel([job])] == [job.id]
        wait_for(lambda: not engine.cancel([job]))
        assert [(each.state, each.reason) for each in place.jobs()] == [("dropped", "cancelled")]
        assert (session.compactions(), session.context()) == ([], before)
        assert [event.payload["reason"] for event in place.told("compaction.refused", "job.dropped")] == [
            "cancelled"
        ] * 2
        assert dropped(place) == []


def test_one_that_is_dropped_by_another_process_is_ended_at_the_next_sign_of_life(place: Place, url: str):
    model = Slow()
    with full(place) as session, place.engine(summarizer=ModelSummarizer(model, session.settings)) as engine:
        wait_for(model.begun)
        other = Place(url)
        assert len(dropped(other)) == 1
        other.close()
        wait_for(lambda: engine.status().running == ())
        assert session.compactions() == []
        assert [job.state for job in place.jobs()] == ["dropped"]


def test_what_only_waits_is_not_dropped_and_an_engine_ends_no_job_that_it_does_not_hold(place: Place):
    with full(place) as session:
        assert dropped(place) == []
        waiting = place.jobs()
        with place.engine(summarizer=ModelSummarizer(Slow(), session.settings), workers=1) as engine:
            assert engine.cancel(waiting) == []
            wait_for(lambda: place.jobs()[0].state == "running")
            assert engine.cancel(waiting) == []  # that was an attempt before this one
