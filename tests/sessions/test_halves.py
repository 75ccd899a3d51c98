"""What a server needs of a session: appending in two halves, a page of a history, and a twin for another thread."""

from __future__ import annotations

import pytest

from context_compactor.errors import BadSetting, CompactorError
from context_compactor.sessions.session import Session
from context_compactor.store.sqlite import SqliteStore
from tests.cli.conftest import conversation
from tests.sessions.talk import CALM


@pytest.fixture
def session():
    with Session.open("run", store=SqliteStore(), window=200_000, settings=CALM) as opened:
        yield opened


def _said(count: int) -> list[dict]:
    return [{"role": "user", "content": f"number {at}"} for at in range(count)]


def test_record_writes_and_answer_does_what_follows(session):
    events = []
    session.bus.subscribe(events.append)
    with Session.open("small", store=session._core.store, window=40_000, settings=CALM, bus=session.bus) as small:
        watched = small.record(conversation())
        assert small.history() == conversation()
        assert events == []
        assert not watched.is_quiet
        report = small.answer(watched)
        assert report is not None
        assert report.changed
        assert events != []


def test_a_look_after_an_append_says_how_full_the_context_is(session):
    watched = session.record(_said(3))
    assert watched.is_quiet
    assert watched.messages == 3
    assert watched.tokens == session.usage().tokens
    assert 0 < watched.share < 1
    assert session.record(_said(2)).messages == 5


def test_many_sessions_are_recorded_in_one_transaction_and_one_that_fails_takes_back_only_its_own(session):
    store = session._core.store
    with Session.open("other", store=store, window=200_000, settings=CALM) as other:
        other.append(_said(1))
        with store.writing("run"):
            session.record(_said(2))
            with pytest.raises(CompactorError):
                other.record([{"role": "wizard"}])
        assert (len(session.history()), len(other.history())) == (2, 1)


@pytest.mark.parametrize(
    ("after", "limit", "first", "last"), [(0, None, 0, 7), (0, 3, 0, 3), (5, 9, 5, 7), (7, 1, 7, 7)]
)
def test_a_page_of_the_history(session, after, limit, first, last):
    session.append(_said(7))
    assert session.history(after, limit) == _said(7)[first:last]


def test_pages_of_a_compacted_history_are_pages_of_what_was_said(session):
    session.append(conversation())
    session.compact(target_tokens=9_000)
    found = [message for at in range(0, len(conversation()), 10) for message in session.history(at, 10)]
    assert found == conversation()


def test_preserve_is_for_one_compaction(session):
    session.append(conversation())

    def kept(preserve: int | None) -> int:
        session.compact(target_tokens=9_000, preserve=preserve)
        count = sum(message in session.context() for message in conversation())
        session.undo()
        return count

    few, as_set, many = kept(1), kept(None), kept(8)
    assert few < as_set < many
    with pytest.raises(BadSetting):
        kept(-1)


def test_a_twin_compacts_while_the_other_goes_on(session):
    session.append(conversation())
    with session.clone() as twin:
        assert twin.compact(target_tokens=9_000).changed
        session.append(_said(1))
    assert session.context()[-1] == _said(1)[0]
    assert len(session.compactions()) == 1
