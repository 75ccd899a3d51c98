"""Automatic compactions begin only when the context, as it is at that moment, is at their level."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_session_state
from context_compactor.store.sqlite import SqliteStore
from tests.sessions.talk import Raw, messages, opened
from tests.sessions.talk import count as count_tokens


def loud() -> list[Raw]:
    """So much that any context is in an emergency behind it."""
    turn = messages(400, 404)
    turn[2]["content"] = "\n".join(f"row {number} of the table holds {number * 7}" for number in range(160))
    return turn


class Interruption:
    """Counts tokens; when it is armed, somebody else does something to the session first, once."""

    def __init__(self) -> None:
        self.work: Callable[[], object] | None = None

    def __call__(self, text: str) -> int:
        work, self.work = self.work, None
        if work is not None:
            work()
        return count_tokens(text)


@pytest.fixture
def interruption() -> Interruption:
    return Interruption()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "sessions.db")) as store:
        yield store


@pytest.fixture
def session(store: SqliteStore, interruption: Interruption) -> Iterator[Session]:
    with opened(store, count_tokens=interruption) as session:
        yield session


def compact_elsewhere(store: SqliteStore) -> None:
    with opened(store, automatic=False) as other:
        assert other.compact(level="emergency").changed


def filled(session: Session, share: float = 0.7) -> int:
    """Append messages up to this share of the budget; how many there are."""
    count = 0
    while session.usage().share < share:
        session.append(messages(count, count + 4))
        count += 4
    assert session.compactions() == []
    return count


def test_an_emergency_that_somebody_else_has_answered_is_not_answered_again(session: Session, store: SqliteStore):
    filled(session)
    watched = session.record(loud())
    compact_elsewhere(store)
    before = session.context()
    assert session.answer(watched) is None
    assert session.context() == before
    assert len(session.compactions()) == 1


def test_of_two_emergencies_seen_before_either_was_answered_one_is_answered(session: Session):
    filled(session)
    seen = [session.record(loud()), session.record({"role": "user", "content": "Well?"})]
    reports = [session.answer(watched) for watched in seen]
    assert [report.level for report in reports if report] == ["emergency"]
    assert len(session.compactions()) == 1


def test_a_compaction_that_came_too_late_is_not_followed_by_a_fresh_window(
    session: Session, store: SqliteStore, interruption: Interruption
):
    filled(session)
    watched = session.record(loud())
    interruption.work = lambda: compact_elsewhere(store)
    assert session.answer(watched) is None
    assert interruption.work is None
    assert [report.trigger for report in session.compactions()] == ["manual"]
    assert session.usage().share < 0.8


def test_a_compaction_that_is_refused_reports_the_size_of_the_context_that_is_there(
    session: Session, store: SqliteStore, interruption: Interruption
):
    filled(session)
    interruption.work = lambda: compact_elsewhere(store)
    refused = session.compact()
    assert refused.status == "unchanged"
    assert refused.tokens_before == refused.tokens_after == session.compactions()[0].tokens_after


def test_a_compaction_that_came_too_late_is_made_of_the_context_that_is_there_while_that_is_full(
    session: Session, store: SqliteStore, interruption: Interruption
):
    count = filled(session)
    long = messages(count + 20, count + 24)
    long[2]["content"] = "one line of many\n" * 6_000

    def append_a_long_output() -> None:
        with opened(store, automatic=False, max_output_tokens=100) as other:
            other.append(long)

    watched = session.record(loud())
    interruption.work = append_a_long_output
    report = session.answer(watched)
    assert interruption.work is None
    assert report is not None
    assert report.changed
    assert session.usage().share < 0.8
    assert len(session.compactions()) == 1


def test_usage_of_a_request_that_was_sent_before_a_compaction_says_nothing_of_the_new_context(
    session: Session, store: SqliteStore
):
    count, hidden = 0, 300
    while session.usage().share < 0.6:
        session.append(messages(count, count + 4), usage=usage(counted(store) + hidden))
        count += 4
    late = usage(counted(store) + hidden)
    session.compact(level="emergency")
    assert session.append({"role": "assistant", "content": "Done."}, usage=late) is None
    assert session.usage().tokens == pytest.approx(counted(store) + hidden, rel=0.2)
    session.append({"role": "assistant", "content": "And more."}, usage=usage(counted(store) + hidden))
    assert session.usage().tokens == pytest.approx(counted(store) + hidden, rel=0.1)


def test_usage_that_stays_far_from_what_was_expected_is_believed_after_a_while(session: Session, store: SqliteStore):
    """A prompt that has grown out of sight looks like the old context, but not for ever."""
    filled(session, 0.5)
    old = counted(store)
    session.append({"role": "assistant", "content": "Yes."}, usage=usage(old))
    session.compact(level="emergency")
    for _ in range(3):
        session.append({"role": "assistant", "content": "Yes."}, usage=usage(old))
    assert session.usage().tokens >= old


def test_usage_without_a_prompt_changes_nothing(session: Session):
    filled(session, 0.5)
    before = session.usage().tokens
    session.append({"role": "assistant", "content": "Yes."}, usage={"prompt_tokens": 0, "completion_tokens": 5})
    assert session.usage().tokens >= before


def usage(prompt: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": 5}


def counted(store: SqliteStore) -> int:
    """Our own count of the context, whatever a provider has reported."""
    return read_session_state(store.session("run").state).gauge.tokens
