"""Rows that need a model at work for a session: faults at each step, messages and changes meanwhile, and cancelling."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Lock

import pytest

from context_compactor.errors import (
    CompactorError,
    ModelDenied,
    ModelOverflow,
    ModelStopped,
    ModelUnavailable,
    StoreError,
)
from context_compactor.sessions.session import Session
from context_compactor.sessions.summaries import PRESUMMARY
from context_compactor.store.sqlite import SqliteStore
from context_compactor.summarize.model import ModelAnswer
from context_compactor.testing import ScriptedModel
from tests.sessions.summarizing import FIRST, PLAIN, Ears, Slow, opened, step, steps
from tests.sessions.talk import illegal
from tests.summarize.samples import GOOD
from tests.waiting import PATIENCE

TALK = [*FIRST, *steps(0, 34)]
DONE = ("summary.applied", "session.compacted")


class Faulty(SqliteStore):
    """A store in which one verb fails."""

    fails = ""

    def __getattribute__(self, name: str):
        if name == super().__getattribute__("fails"):
            raise StoreError(f"the disk is full ({name})")
        return super().__getattribute__(name)


def log_of(session: Session) -> list[tuple[int, str, str]]:
    return [(entry.position, entry.kind, entry.hash) for entry in session._core.store.entries("run")]


# Row 35


@pytest.mark.parametrize("verb", ["put", "archive", "append", "save_state", "put_facts", "drop_facts", "originals"])
@pytest.mark.parametrize("model", [None, ScriptedModel([GOOD])], ids=["without a model", "with one"])
def test_a_fault_at_any_step_leaves_history_and_context_and_tells_no_success(verb, model):
    """Row 35."""
    ears = Ears()
    with closing(Faulty()) as store, opened(model, store, ears=ears, retry_attempts=1) as session:
        session.append(TALK)
        log, before = log_of(session), session.context()
        store.fails = verb
        with pytest.raises(CompactorError, match="disk is full"):
            session.compact()
        store.fails = ""
        assert log_of(session) == log
        assert session.context() == before
        assert session.history() == TALK
        assert not set(DONE) & set(ears.types)
        assert session.compact().changed
        assert session.history() == TALK


FAULTS = {
    "a wrong key": ModelDenied("wrong key"),
    "too long": ModelOverflow("too long"),
    "not there": ModelUnavailable("503"),
    "a fault of its author": ZeroDivisionError("oops"),
    "nothing": "",
    "a refusal": "I'm sorry, but I can't help with that.",
    "half an answer": ModelAnswer(text=GOOD[:30], stop="length"),
    "a call": ModelAnswer(text="", stop="tool_call", tool_calls=1),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_model_that_fails_deletes_nothing_and_nobody_is_told_that_it_summarized(fault):
    """Row 35: the digest stands, and the event says so."""
    ears = Ears()
    with opened(ScriptedModel([fault]), ears=ears) as session:
        session.append(TALK)
        report = session.compact()
        assert report.changed
        assert report.summarized_by == ""
        assert session.history() == TALK
        assert all(session.recall(item.id) for item in report.archived)
    (reason,) = ears.reasons("summary by a model")
    assert "the one without a model stands" in reason


# Row 36


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_failed_is_never_shown_as_the_summary_so_far(fault):
    """Row 36: neither to the model nor to the agent, after a compaction and after a summary told ahead."""
    words = fault.text if isinstance(fault, ModelAnswer) else str(fault)
    marks = [mark for mark in (words[:30], "could not be used", "stopped", "failed with ZeroDivision") if mark]
    model = ScriptedModel([fault])
    with opened(model) as session:
        session.append(TALK)
        session.prepare()
        session.compact()
        first = len(model.requests)
        session.append(steps(34, 60))
        session.compact()
        later = "\n".join(message.text for request in model.requests[first:] for message in request.messages)
        assert words[:30] not in later.partition("conversation begins")[0] or not words
        assert not [mark for mark in marks if mark in json.dumps(session.context())]


# Row 59


@pytest.mark.parametrize("moment", ["while the model thinks", "while originals are archived", "amid the commit"])
def test_messages_that_come_at_any_moment_are_there_once_in_order_and_behind_the_record(moment, tmp_path):
    """Row 59."""
    came: list[int] = []
    one_by_one = Lock()  # a model may be asked several things at once

    def come(session: Session) -> None:
        with one_by_one:
            if len(came) < 2:
                came.append(34 + len(came))
                session.append(step(came[-1]))

    class Meanwhile(SqliteStore):
        moved: Callable[[], object] = staticmethod(lambda: None)

        def archive(self, *given):
            if moment == "while originals are archived":
                self.moved()
            return super().archive(*given)

        def put_facts(self, *given):
            if moment == "amid the commit":
                self.moved()
            return super().put_facts(*given)

    path = tmp_path / "sessions.db"
    model = ScriptedModel([lambda _: (come(other), GOOD)[1] if moment == "while the model thinks" else GOOD])
    with closing(Meanwhile(str(path))) as store, opened(model, store) as session, opened(None, tmp_path) as other:
        session.append(TALK)
        with ThreadPoolExecutor(1) as pool:
            store.moved = lambda: pool.submit(come, other)  # amid a transaction others wait for its end
            report = session.compact()
        assert report.changed
        assert came
        assert session.history() == [*TALK, *(raw for number in came for raw in step(number))]
        assert session.context()[-2 * len(came) :] == [raw for number in came for raw in step(number)]
        assert other.context() == session.context()
        assert illegal(session.context()) == []
        assert session.verify() == []


# Row 60


def test_a_summary_of_a_context_that_was_changed_meanwhile_is_dropped_and_its_archive_kept(tmp_path):
    """Row 60: somebody else compacts while the model thinks."""
    ears, model = Ears(), Slow()
    with opened(model, tmp_path, ears=ears) as session, opened(None, tmp_path) as other, ThreadPoolExecutor(1) as pool:
        session.append(TALK)
        made = pool.submit(session.compact)
        assert model.begun.wait(PATIENCE)
        theirs = other.compact(level="emergency")
        after = other.context()
        model.go.set()
        report = made.result(PATIENCE)
        assert report.status == "unchanged"
        assert "discarded" in report.reason
        assert session.context() == after
        assert [each.compaction_id for each in session.compactions()] == [theirs.compaction_id]
        assert not set(DONE) & set(ears.types)
        assert ears.types[-1] == "compaction.refused"
        assert session.recall("turn_002")
        assert session.verify() == []


def test_a_summary_told_ahead_of_a_context_that_was_changed_is_never_swapped_in(tmp_path):
    """Row 60, in the background: by an undo, in another process."""
    ears = Ears()
    with opened(ScriptedModel([PLAIN]), tmp_path, ears=ears) as session, opened(None, tmp_path) as other:
        session.append(TALK)
        session.compact(level="emergency")
        session.append(steps(34, 62))
        assert session.prepare().summarized
        other.undo()
        report = session.compact()
        assert "told" not in report.reason.partition("could not be used")[0]
        assert session.history() == [*TALK, *steps(34, 62)]
    assert ears.reasons(PRESUMMARY) == ["what it was made from has changed"]


# Row 82


def test_a_model_that_never_ends_is_ended_by_the_deadline_and_the_digest_serves():
    """Row 82."""
    model = Slow()
    with opened(model, deadline_seconds=0.3) as session:
        session.append(TALK)
        report = session.compact()
        assert report.changed
        assert report.summarized_by == ""
        assert "deadline" in report.reason
        assert session.prepare().summarized == 0


def test_what_hangs_can_be_cancelled_and_everything_is_as_it_was():
    """Row 82: the other moments are in tests/sessions/test_cancel.py."""
    model, ears = Slow(), Ears()
    with opened(model, ears=ears) as session, ThreadPoolExecutor(1) as pool:
        session.append(TALK)
        log, before = log_of(session), session.context()
        made = pool.submit(session.compact)
        assert model.begun.wait(PATIENCE)
        session.cancel()
        with pytest.raises(ModelStopped):
            made.result(PATIENCE)
        assert log_of(session) == log
        assert session.context() == before
        assert not set(DONE) & set(ears.types)
