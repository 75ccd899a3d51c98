"""A day in the life of one session: real messages, a small window, three processes, two of them killed."""

from __future__ import annotations

from itertools import count

import pytest

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.legality import find_violations
from context_compactor.dialects.repair import repair
from context_compactor.dialects.turns import split_turns
from context_compactor.engine.result import failures_share
from context_compactor.facts.failures import find_failures
from tools.day import live, open_day, stream

pytestmark = pytest.mark.slow

ANTHROPIC = DIALECTS["anthropic"]
MESSAGES = 900


@pytest.fixture(scope="module")
def messages():
    return stream(MESSAGES)


@pytest.fixture(scope="module")
def lived(tmp_path_factory, messages):
    folder = tmp_path_factory.mktemp("day")
    return folder, live(folder, messages, [300, 600])


@pytest.fixture
def session(lived):
    with open_day(lived[0]) as session:
        yield session


def test_twenty_compactions_and_more_were_made(lived):
    assert lived[1].compactions >= 20
    assert lived[1].kills == 2


def test_nothing_is_missing_and_every_hash_is_right(session, messages):
    assert session.history() == messages
    assert session.verify() == []


def test_every_message_is_recalled_byte_for_byte(session, messages):
    recalled = []
    for number in count(1):
        recalled += session.original(f"turn_{number:03d}").value
        if len(recalled) >= len(messages):
            break
    assert recalled == messages


def test_every_failure_is_still_in_the_context(session, messages):
    turns = split_turns(ANTHROPIC.parse(messages))
    failures = find_failures(turns)
    assert failures
    assert failures_share(failures, turns, ANTHROPIC.parse(session.context())) == 1.0


def test_the_context_is_legal_and_within_its_budget(session):
    assert find_violations(ANTHROPIC.parse(session.context()), ANTHROPIC) == []
    assert session.usage().share < 0.85


def test_undo_goes_back_to_the_first_compaction_and_redo_comes_forward_again(session, messages):
    now = session.context()
    reports = session.compactions()
    for report in reversed(reports[1:]):
        assert session.undo().compaction_id == report.compaction_id
    then = session.context(at=reports[0].messages_before)
    legal, _ = repair(ANTHROPIC.parse([*then, *messages[reports[0].messages_before :]]), ANTHROPIC)
    first = session.context()
    assert first[: len(then)] == then
    assert len(first) == len(legal)
    for report in reports[1:]:
        assert session.redo().compaction_id == report.compaction_id
    assert session.context() == now
