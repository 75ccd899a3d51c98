from __future__ import annotations

import logging
from datetime import UTC, datetime
from threading import Barrier, Thread

import pytest

from context_compactor.errors import BadSetting
from context_compactor.sessions.events import Bus
from context_compactor.store.events import Event, EventType, make_event

NOON = datetime(2026, 1, 26, 12, 0, tzinfo=UTC)


def event(named: EventType = "session.compacted", session_id: str = "run-1") -> Event:
    return make_event(named, session_id, {}, NOON)


class Kept:
    """A sink that keeps what it was told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        self.events.append(event)


class Broken:
    name = "broken"

    def write(self, event: Event) -> None:
        raise OSError("the disk is full")


def test_objects_and_functions_are_told_in_the_order_they_subscribed():
    bus, events = Bus(), []
    bus.subscribe(lambda event: events.append(("function", event)))
    sink = Kept()
    bus.subscribe(sink)
    first = event()
    bus.emit(first)
    assert events == [("function", first)]
    assert sink.events == [first]


def test_a_sink_hears_only_of_the_types_and_the_session_it_asked_for():
    bus, compacted, mine = Bus(), Kept(), Kept()
    bus.subscribe(compacted, types=["session.compacted"])
    bus.subscribe(mine, session_id="run-2")
    for named, session in (("session.compacted", "run-1"), ("job.queued", "run-1"), ("job.queued", "run-2")):
        bus.emit(event(named, session))
    assert [each.type for each in compacted.events] == ["session.compacted"]
    assert [each.session_id for each in mine.events] == ["run-2"]


def test_after_unsubscribing_nothing_comes_any_more():
    bus, sink = Bus(), Kept()
    unsubscribe = bus.subscribe(sink)
    unsubscribe()
    unsubscribe()
    bus.emit(event())
    assert sink.events == []


def test_a_failing_sink_stops_neither_the_others_nor_the_emitter(caplog):
    bus, before, after = Bus(), Kept(), Kept()
    for sink in (before, Broken(), after):
        bus.subscribe(sink)
    with caplog.at_level(logging.WARNING, "context_compactor"):
        for _ in range(3):
            bus.emit(event())
    assert len(before.events) == len(after.events) == 3
    (failure,) = bus.failures
    assert (failure.sink, failure.count, failure.last_error) == ("broken", 3, "OSError: the disk is full")
    (said,) = caplog.records
    assert "broken" in said.getMessage()
    assert "the disk is full" in said.getMessage()


def test_an_error_that_cannot_be_printed_is_counted_too():
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    def sink(event: Event) -> None:
        raise Mute

    bus = Bus()
    bus.subscribe(sink)
    bus.emit(event())
    assert bus.failures[0].count == 1


def test_an_interrupt_is_not_taken_for_a_failure_and_the_bus_works_on():
    bus, sink = Bus(), Kept()
    interrupts = [KeyboardInterrupt()]

    def interrupted(event: Event) -> None:
        if interrupts:
            raise interrupts.pop()

    bus.subscribe(interrupted)
    bus.subscribe(sink)
    with pytest.raises(KeyboardInterrupt):
        bus.emit(event())
    bus.emit(event())
    assert len(sink.events) == 1


def test_an_event_emitted_by_a_sink_comes_after_the_current_one_for_everybody():
    bus, sink = Bus(), Kept()

    def answering(told: Event) -> None:
        if told.type == "session.compacted":
            bus.emit(event("fact.promoted"))

    bus.subscribe(answering)
    bus.subscribe(sink)
    bus.emit(event())
    assert [each.type for each in sink.events] == ["session.compacted", "fact.promoted"]


def test_a_sink_that_answers_its_own_events_comes_to_an_end_and_is_named():
    bus, sink = Bus(), Kept()

    def echo(told: Event) -> None:
        bus.emit(told)

    bus.subscribe(echo)
    bus.subscribe(sink)
    bus.emit(event())
    assert 1 < len(sink.events) < 10
    assert "echo" in bus.failures[0].sink
    assert "without end" in bus.failures[0].last_error
    bus.emit(event("job.queued"))
    assert sink.events[-1].type == "job.queued"


def test_sinks_may_subscribe_and_unsubscribe_while_they_are_told():
    bus, late, never = Bus(), Kept(), Kept()
    leave = []

    def changing(told: Event) -> None:
        leave[0]()
        bus.subscribe(late)

    bus.subscribe(changing)
    leave.append(bus.subscribe(never))
    bus.emit(event())
    bus.emit(event("job.queued"))
    assert never.events == []
    assert [each.type for each in late.events] == ["job.queued"]


def test_many_threads_emit_and_subscribe_at_once_and_nothing_is_lost():
    bus, sink, threads = Bus(), Kept(), 8
    bus.subscribe(sink)
    bus.subscribe(Broken())
    start = Barrier(threads)

    def work() -> None:
        start.wait()
        for _ in range(100):
            leave = bus.subscribe(lambda event: None)
            bus.emit(event())
            leave()

    workers = [Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(sink.events) == bus.failures[0].count == threads * 100


def test_bad_sinks_and_types_are_refused_by_name():
    async def later(event: Event) -> None: ...

    bus = Bus()
    with pytest.raises(BadSetting, match=r"'a file' cannot receive events"):
        bus.subscribe("a file")  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="synchronous"):
        bus.subscribe(later)
    with pytest.raises(BadSetting, match=r"'session\.compact' is not an event type; known types: threshold\.crossed"):
        bus.subscribe(Kept(), types=["session.compact"])  # type: ignore[list-item]
