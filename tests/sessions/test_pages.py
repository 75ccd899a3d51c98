"""Pages of a history: every message once, and each compaction behind the messages it was made after."""

from __future__ import annotations

import pytest

from context_compactor.sessions.views import HistoryPage, history_page
from tests.sessions.talk import messages, opened


@pytest.fixture
def told(tmp_path):
    """A session of 48 messages that was compacted after 20 and after 36 of them, the second one taken back."""
    with opened(tmp_path, window=100_000) as session:
        session.append(messages(0, 20))
        session.compact(target_tokens=500)
        session.append(messages(20, 36))
        session.compact(target_tokens=500)
        session.undo()
        session.append(messages(36, 48))
        yield session


def page(session, *args) -> HistoryPage:
    return history_page(session._core, *args)


@pytest.mark.parametrize("size", [1, 3, 16, 20, 47, 48, 100])
def test_pages_of_any_size_hold_every_message_once_and_every_compaction_in_its_place(told, size):
    pages = [page(told, first, size) for first in range(0, 48, size)]
    assert [raw for each in pages for raw in each.messages] == messages(0, 48)
    placed = [made for each in pages for made in each.compactions]
    assert [(made.message, made.is_active) for made in placed] == [(20, True), (36, False)]
    reports = told.compactions()
    assert [(made.id, made.tokens_before, made.tokens_after, made.messages_removed) for made in placed] == [
        (report.compaction_id, report.tokens_before, report.tokens_after, report.messages_removed) for report in reports
    ]
    assert all(each.total == 48 for each in pages)


def test_without_an_index_it_is_the_end(told):
    last = page(told, None, 5)
    assert (last.first, last.messages, last.compactions) == (43, messages(43, 48), [])
    assert page(told).messages == messages(0, 48)


@pytest.mark.parametrize(("first", "count"), [(48, 5), (99, 5), (10, 0), (-3, 0)])
def test_where_there_is_nothing_the_page_is_empty_and_says_how_many_there_are(told, first, count):
    empty = page(told, first, count)
    assert (empty.messages, empty.compactions, empty.total) == ([], [], 48)


def test_a_session_in_which_nothing_was_said_has_an_empty_page(tmp_path):
    with opened(tmp_path) as session:
        assert page(session, None, 40) == HistoryPage([], 0, 0, [])


def test_a_compaction_behind_the_last_message_is_on_the_page_of_that_message(told):
    told.compact(target_tokens=400)
    assert [made.message for made in page(told, 47, 1).compactions] == [48]
    assert page(told, 46, 1).compactions == []
