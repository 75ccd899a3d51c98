"""When not to try again: after failures, without a gain, too often. What a user asks for is always tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from context_compactor.sessions.events import Bus
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import CompactionGuard
from context_compactor.store.events import Event
from context_compactor.store.sqlite import SqliteStore
from tests.sessions.talk import count, message, messages, opened

WAIT, REST = 60.0, 300.0


def objection(
    guard: CompactionGuard, what: str = "input", *, tokens: int = 100, messages: int = 100, now: float = 0.0
) -> str:
    return guard.objection(what, tokens, messages, now, WAIT, REST)


# The value


def test_a_new_guard_has_nothing_to_object():
    assert objection(CompactionGuard()) == ""


def test_the_input_that_failed_is_left_alone_until_the_wait_is_over_or_it_changes():
    guard = CompactionGuard().failed("input", now=1_000.0)
    assert "same context" in objection(guard, now=1_000.0)
    assert "59 s ago" in objection(guard, now=1_059.0)
    assert objection(guard, "another input", now=1_001.0) == ""
    assert objection(guard, now=1_060.0) == ""


def test_after_three_failures_everything_rests_for_a_while():
    guard = CompactionGuard()
    for number in range(3):
        assert objection(guard, f"input {number}", now=1_000.0) == ""
        guard = guard.failed(f"input {number}", now=1_000.0)
    assert "the last 3 compactions failed" in objection(guard, "another input", now=1_299.0)
    assert objection(guard, "another input", now=1_300.0) == ""


def test_a_success_forgets_the_failures():
    guard = CompactionGuard().failed("a", 1.0).failed("b", 2.0).succeeded(messages=10)
    assert objection(guard.failed("c", 3.0), "d", now=4.0, messages=100) == ""


def test_two_compactions_that_gained_nothing_are_enough_until_the_context_has_grown():
    guard = CompactionGuard().gained_nothing(1_000)
    assert objection(guard, tokens=1_000) == ""
    guard = guard.gained_nothing(1_000)
    assert "gained too little" in objection(guard, tokens=1_049)
    assert objection(guard, tokens=1_050) == ""


def test_three_compactions_within_eight_messages_do_not_help():
    guard = CompactionGuard().succeeded(10).succeeded(12).succeeded(14)
    assert "3 compactions came within 7 messages" in objection(guard, messages=17)
    assert objection(guard, messages=18) == ""
    assert objection(CompactionGuard().succeeded(10).succeeded(14), messages=15) == ""


def test_a_clock_that_goes_backwards_ends_every_wait():
    guard = CompactionGuard().failed("input", now=1_000.0)
    assert objection(guard, now=400.0) == ""
    for _ in range(2):
        guard = guard.failed("input", now=1_000.0)
    assert objection(guard, "another", now=400.0) == ""


# The session


class Clock:
    """A clock that stands still until it is moved, in either direction."""

    def __init__(self) -> None:
        self.time = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def move(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class BreakableSession:
    """A session whose counter breaks down during compactions for as long as it is told to."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.clock = Clock()
        self.is_broken = False
        self._is_compacting = False
        self.events: list[tuple[str, str]] = []
        self.session = self.open()

    def open(self) -> Session:
        bus = Bus()
        bus.subscribe(self._hear)
        return opened(self.store, bus=bus, clock=self.clock, count_tokens=self._count)

    def _hear(self, event: Event) -> None:
        self.events.append((event.type, str(event.payload.get("reason", ""))))
        self._is_compacting = event.type == "threshold.crossed"

    def _count(self, text: str) -> int:
        if self.is_broken and self._is_compacting:
            raise RuntimeError("no counter today")
        return count(text)

    def fill(self) -> None:
        """Append until a level is reached for the first time."""
        while not self.events:
            self.say()

    def say(self, length: int = 200) -> str:
        """One more question and answer; what became of a compaction, if there was one."""
        number = self.store.session("run").messages
        self._is_compacting = False
        report = self.session.append(
            [
                {"role": "user", "content": f"Request {number}: what about src/part_{number}.py?"},
                {"role": "assistant", "content": f"Part {number}: " + "so it is. " * (length // 10)},
            ]
        )
        self._is_compacting = False
        return "" if report is None else report.status

    def types(self) -> list[str]:
        return [kind for kind, _ in self.events]


@pytest.fixture
def guarded() -> Iterator[BreakableSession]:
    with closing(SqliteStore()) as store:
        made = BreakableSession(store)
        yield made
        made.session.close()


def test_a_failed_compaction_stops_nobody_and_leaves_the_context(guarded: BreakableSession):
    guarded.is_broken = True
    guarded.fill()
    assert guarded.types() == ["threshold.crossed", "compaction.failed"]
    assert "no counter today" in guarded.events[-1][1]
    assert guarded.session.compactions() == []
    assert guarded.session.context() == guarded.session.history()
    assert guarded.session.append({"role": "user", "content": "go on"}) is None


def test_an_append_whose_compaction_fails_answers_with_a_report_that_says_why(guarded: BreakableSession):
    guarded.is_broken = True
    status = ""
    while not status:
        status = guarded.say()
    assert status == "failed"
    assert len(guarded.session.history()) == guarded.store.session("run").messages


def test_after_three_failures_a_session_rests_and_then_tries_again(guarded: BreakableSession):
    guarded.is_broken = True
    guarded.fill()
    for _ in range(2):
        guarded.clock.move(61)
        assert guarded.say(10) == "failed"
    guarded.clock.move(61)
    assert guarded.say(10) == "unchanged"
    assert guarded.events[-1][0] == "compaction.refused"
    assert "the last 3 compactions failed" in guarded.events[-1][1]
    assert guarded.types().count("compaction.failed") == 3
    guarded.is_broken = False
    guarded.clock.move(301)
    assert guarded.say(10) == "success"
    assert guarded.types()[-2:] == ["summary.applied", "session.compacted"]


def test_the_same_input_is_not_tried_again_after_reopening_until_the_wait_is_over(guarded: BreakableSession):
    guarded.is_broken = True
    guarded.fill()
    guarded.session.close()
    guarded.events.clear()
    guarded.clock.move(10)
    guarded.session = guarded.open()
    guarded.session.context()
    assert guarded.types() == ["threshold.crossed", "compaction.refused"]
    assert "the same context could not be compacted 10 s ago" in guarded.events[-1][1]
    guarded.session.close()
    guarded.events.clear()
    guarded.is_broken = False
    guarded.clock.move(51)
    guarded.session = guarded.open()
    guarded.session.context()
    assert guarded.types() == ["threshold.crossed", "summary.applied", "session.compacted"]


def test_what_a_user_asks_for_is_tried_whatever_the_guard_says(guarded: BreakableSession):
    guarded.is_broken = True
    guarded.fill()
    for _ in range(2):
        guarded.clock.move(61)
        guarded.say(10)
    guarded.is_broken = False
    assert guarded.session.compact().changed


def test_a_success_by_hand_ends_the_rest(guarded: BreakableSession):
    guarded.is_broken = True
    guarded.fill()
    for _ in range(2):
        guarded.clock.move(61)
        guarded.say(10)
    guarded.is_broken = False
    guarded.session.compact()
    guarded.events.clear()
    while not guarded.events:
        guarded.say()
    assert guarded.types() == ["threshold.crossed", "summary.applied", "session.compacted"]


def test_compactions_that_come_too_close_together_are_refused_and_said(guarded: BreakableSession):
    statuses: list[str] = []
    for number in range(5):
        usage = guarded.session.usage()
        room = 4 * (int(0.84 * usage.budget_tokens) - usage.tokens)
        report = guarded.session.append(
            {"role": "assistant", "content": f"Part {number}: " + "so it is. " * (room // 10)}
        )
        statuses.append(report.status if report else "")
    assert statuses[:4] == ["success", "success", "success", "unchanged"]
    assert ("compaction.refused", "3 compactions came within 3 messages: it does not help") in guarded.events
    assert len(guarded.session.history()) == 5


def test_a_context_that_is_about_to_burst_is_compacted_however_often(guarded: BreakableSession):
    statuses = [guarded.say(length=9_000) for _ in range(8)]
    assert statuses[1:] == ["success"] * 7


def test_after_a_clock_that_went_backwards_a_failed_compaction_is_tried_again(guarded: BreakableSession):
    guarded.is_broken = True
    guarded.fill()
    guarded.is_broken = False
    guarded.clock.move(-86_400)
    tried = [guarded.say(10) for _ in range(3)]
    assert "success" in tried


def test_a_clock_that_goes_backwards_disturbs_neither_the_order_nor_the_context(guarded: BreakableSession):
    for number in range(40):
        guarded.session.append(message(number))
        guarded.clock.move(-3_600)
    guarded.session.compact()
    guarded.clock.move(-3_600)
    assert guarded.session.history() == messages(0, 40)
    assert guarded.session.undo() is not None
    guarded.clock.move(-86_400 * 400)
    assert guarded.session.redo() is not None
    with closing(guarded.open()) as again:
        assert again.context() == guarded.session.context()
    assert list(guarded.store.verify()) == []
