"""What is told, and when: the same on every path, nothing while it is off, and never in anybody's way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from context_compactor.errors import BadInput, CompactorError, StoreError
from context_compactor.sessions.events import Bus
from context_compactor.sessions.session import Session
from context_compactor.store.events import Event
from context_compactor.store.rows import NewOriginal
from context_compactor.store.sqlite import SqliteStore
from tests.sessions.talk import illegal, message, messages, opened

COMPACTED = ["summary.applied", "session.compacted"]


class Kept:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.bus = Bus()
        self.bus.subscribe(self)

    def write(self, event: Event) -> None:
        self.events.append(event)

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    with closing(SqliteStore()) as opened_store:
        yield opened_store


def compacted_by_itself(session: Session) -> None:
    number = 0
    while not session.compactions():
        session.append(message(number))
        number += 1


def compacted_by_hand(session: Session) -> None:
    session.append(messages(0, 28))
    session.compact()


def compacted_before_a_handoff(session: Session) -> None:
    session.append(messages(0, 32))
    session.handoff(task="go on")


PATHS = {
    "threshold": compacted_by_itself,
    "manual": compacted_by_hand,
    "pre_handoff": compacted_before_a_handoff,
}


@pytest.mark.parametrize("trigger", list(PATHS))
def test_every_path_tells_the_same_of_a_compaction(store: SqliteStore, kept: Kept, trigger: str):
    with opened(store, bus=kept.bus, automatic=trigger == "threshold") as session:
        PATHS[trigger](session)
        (report,) = session.compactions()
    events = [event for event in kept.events if event.type in COMPACTED]
    assert [event.type for event in events] == COMPACTED
    assert kept.types.index("summary.applied") == len(kept.types) - 2
    for event in events:
        assert event.session_id == "run"
        assert event.payload == {
            "compaction_id": report.compaction_id,
            "trigger": trigger,
            "level": report.level,
            "status": report.status,
            "reason": report.reason,
            "tokens_before": report.tokens_before,
            "tokens_after": report.tokens_after,
            "tokens_saved": report.tokens_saved,
            "messages_removed": report.messages_removed,
            "duration_ms": report.duration_ms,
            "metrics": structs.asdict(report.metrics),
            "model_calls": [],
            "tool_calls": sum("tool_calls" in raw for raw in _history(store)),
        }


def _history(store: SqliteStore) -> list[dict]:
    return [json.loads(entry.body) for entry in store.entries("run", kinds=("message",))]


def test_an_automatic_compaction_is_told_after_the_level_that_started_it(store: SqliteStore, kept: Kept):
    with opened(store, bus=kept.bus) as session:
        compacted_by_itself(session)
    assert kept.types == ["threshold.crossed", *COMPACTED]
    payload = kept.events[0].payload
    assert payload["level"] == "soft"
    assert payload["share"] == round(payload["tokens"] / payload["budget"], 4) >= 0.8


def test_what_changes_nothing_tells_nothing(store: SqliteStore, kept: Kept):
    with opened(store, bus=kept.bus, automatic=False) as session:
        session.append(messages(0, 8))
        before = session.context()
        assert session.compact(dry_run=True).changed in (True, False)
        assert session.undo() is None
        assert session.redo() is None
        assert session.context() == before
    assert kept.types == []


def test_a_dry_run_writes_nothing(store: SqliteStore, kept: Kept):
    with opened(store, bus=kept.bus, automatic=False) as session:
        session.append(messages(0, 28))
        before = store.session("run"), session.context(), store.originals("run")
        assert session.compact(dry_run=True).changed
        assert (store.session("run"), session.context(), store.originals("run")) == before
    assert kept.types == ["threshold.crossed"] * kept.types.count("threshold.crossed")


def test_undo_redo_recall_and_restore_are_told(store: SqliteStore, kept: Kept):
    with opened(store, bus=kept.bus, automatic=False) as session:
        session.append(messages(0, 28))
        report = session.compact()
        kept.events.clear()
        session.undo()
        session.redo()
        ref = next(each.id for each in report.archived if each.id.startswith("file"))
        session.recall(ref)
        session.page(ref)
        session.restore(ref)
    assert [(event.type, event.payload.get("redone"), event.payload.get("ref")) for event in kept.events] == [
        ("compaction.undone", False, None),
        ("compaction.undone", True, None),
        ("item.recalled", None, ref),
        ("item.recalled", None, ref),
        ("item.restored", None, ref),
    ]


def test_a_recall_that_fails_is_not_told(store: SqliteStore, kept: Kept):
    with opened(store, bus=kept.bus, automatic=False) as session:
        session.append(messages(0, 28))
        report = session.compact()
        kept.events.clear()
        ref = report.archived[0].id
        for ask in (
            lambda: session.recall(ref, (5, 1)),
            lambda: session.recall(ref, (10**8, 10**8)),
            lambda: session.page(ref, 10**8),
            lambda: session.recall("tool_999"),
        ):
            with pytest.raises(BadInput):
                ask()
    assert kept.types == []


def test_ids_of_events_only_rise(store: SqliteStore, kept: Kept):
    with opened(store, bus=kept.bus) as session:
        for number in range(120):
            session.append(message(number))
    ids = [event.id for event in kept.events]
    assert len(ids) > 6
    assert ids == sorted(set(ids))


# Sinks


def test_a_failing_sink_stops_nothing(store: SqliteStore, kept: Kept):
    class Broken:
        name = "broken"

        def write(self, event: Event) -> None:
            raise RuntimeError("no")

    bus = Bus()
    bus.subscribe(Broken())
    bus.subscribe(kept)
    with opened(store, bus=bus) as session:
        for number in range(60):
            session.append(message(number))
        session.undo()
        assert session.compactions()
        assert illegal(session.context()) == []
    assert kept.types.count("session.compacted") == kept.types.count("summary.applied") >= 1
    (failure,) = bus.failures
    assert (failure.sink, failure.count) == ("broken", len(kept.events))


def test_a_sink_may_use_the_session_it_hears_of(store: SqliteStore):
    bus, seen = Bus(), []
    with opened(store, bus=bus) as session:
        bus.subscribe(lambda event: seen.append((event.type, len(session.context()), len(session.history()))))
        for number in range(60):
            session.append(message(number))
    assert bus.failures == ()
    assert [kind for kind, _, _ in seen[:3]] == ["threshold.crossed", *COMPACTED]
    assert seen[0][1] > seen[1][1] == seen[2][1]


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path):
    (tmp_path / ".compactor").mkdir()
    (tmp_path / ".compactor" / "logs").write_text("not a folder")
    with opened(tmp_path) as session:
        for number in range(60):
            session.append(message(number))
        assert session.compactions()
        assert session.bus.failures


def test_a_project_whose_readable_archive_cannot_be_written_is_compacted_all_the_same(tmp_path: Path):
    (tmp_path / ".tmp").write_text("not a folder")
    with opened(tmp_path, automatic=False) as session:
        session.append(messages(0, 28))
        assert session.compact().status == "success"
        assert len(session.compactions()) == 1


def test_the_log_of_a_project_has_each_compaction_once_however_often_the_session_was_opened(tmp_path: Path):
    bus = Bus()
    for number in range(3):
        with opened(tmp_path, bus=bus, automatic=False) as session:
            session.append(messages(number * 28, number * 28 + 28))
            assert session.compact().changed
    lines = (tmp_path / ".compactor" / "logs" / "compaction.json").read_text().splitlines()
    events = [line for line in map(json.loads, lines) if line["event"] == "compaction"]
    assert len(events) == 3
    assert len({line["payload"]["compaction_id"] for line in events}) == 3
    assert all(line["session_id"] == "run" and line["reason"] == "manual" for line in events)


# An archive that fails


class Unwilling(SqliteStore):
    """A store whose archive fails some times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def archive(self, session_id: str, items: Sequence[NewOriginal], now: str) -> list[str]:
        super().archive(session_id, items, now)
        if self.times > 0:
            self.times -= 1
            raise StoreError("the disk is full")
        return []


def test_an_archive_that_fails_is_tried_again_and_told(kept: Kept):
    with closing(Unwilling(2)) as store, opened(store, bus=kept.bus, automatic=False, retry_delay_seconds=0) as session:
        session.append(messages(0, 28))
        kept.events.clear()
        assert session.compact().status == "success"
        assert kept.types == ["job.retried", "job.retried", *COMPACTED]
        assert [event.payload["attempt"] for event in kept.events[:2]] == [1, 2]
        assert "the disk is full" in kept.events[0].payload["reason"]


def test_an_archive_that_keeps_failing_leaves_the_old_context(kept: Kept):
    with closing(Unwilling(99)) as store, opened(store, bus=kept.bus, retry_delay_seconds=0) as session:
        reports = [session.append(message(number)) for number in range(40)]
        failed = next(report for report in reports if report is not None)
        assert (failed.status, failed.reason) == ("failed", "the disk is full")
        assert session.context() == session.history() == messages(0, 40)
        assert store.originals("run") == []
        assert kept.types[:4] == ["threshold.crossed", "job.retried", "job.retried", "compaction.failed"]
        with pytest.raises(CompactorError, match="the disk is full"):
            session.compact()
        assert session.context() == messages(0, 40)
        store.times = 0
        assert session.compact().changed
        assert illegal(session.context()) == []


# Off


def broken_talk(after: int) -> list[dict]:
    """A conversation with a long output, a lost result and an empty answer in it."""
    return [raw for number, raw in enumerate(messages(0, after)) if number % 11 != 2]


def test_off_changes_nothing_anywhere_and_tells_nothing(tmp_path: Path, kept: Kept):
    said = broken_talk(80)
    with opened(
        tmp_path, bus=kept.bus, enabled=False, max_output_tokens=50, suggest_tool_results=2, suggest_files=2
    ) as session:
        for raw in said:
            assert session.append(raw) is None
        assert session.compact().status == "unchanged"
        assert session.compact(level="emergency").status == "unchanged"
        assert session.compact(target_tokens=10).status == "unchanged"
        session.prepare()
        assert session.context() == session.history() == said
        assert session.compactions() == []
        session.handoff(task="go on")
        assert session.context() == said
    with opened(tmp_path, bus=kept.bus, enabled=False) as session:
        assert session.context() == said
    assert kept.types == []
    with closing(SqliteStore(str(tmp_path / "sessions.db"))) as store:
        assert store.originals("run") == []
        assert {entry.kind for entry in store.entries("run")} == {"message"}


def test_without_automatic_compaction_levels_are_told_and_nothing_is_done(store: SqliteStore, kept: Kept):
    with opened(store, bus=kept.bus, automatic=False, suggest_tool_results=0, suggest_files=0) as session:
        for number in range(120):
            assert session.append(message(number)) is None
        assert session.compactions() == []
        assert session.context() == session.history() == messages(0, 120)
    assert set(kept.types) <= {"threshold.crossed", "compaction.suggested"}
    levels = [event.payload["level"] for event in kept.events if event.type == "threshold.crossed"]
    assert list(dict.fromkeys(levels)) == ["soft", "aggressive", "emergency"]
    assert levels == sorted(levels, key=["soft", "aggressive", "emergency"].index)


def test_a_session_that_is_turned_off_later_shows_what_was_appended_since_as_it_is(store: SqliteStore, kept: Kept):
    with opened(store) as session:
        compacted_by_itself(session)
        context, there = session.context(), len(session.history())
    with opened(store, bus=kept.bus, enabled=False) as session:
        session.append(messages(there, there + 60))
        assert session.context() == [*context, *messages(there, there + 60)]
    assert kept.types == []
