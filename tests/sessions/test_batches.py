"""However many messages are appended at once, the context stays within its budget and legal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.legality import find_violations
from context_compactor.dialects.transcripts.reader import read_transcript
from context_compactor.sessions.session import Session
from context_compactor.store.sqlite import SqliteStore
from tests.engine.promises import parsed
from tests.sessions.talk import opened

WHOLE = read_transcript(Path(__file__).parents[2] / "examples" / "demo_session.jsonl.gz").messages


def _check(session: Session) -> None:
    """The context is legal as it is."""
    dialect = DIALECTS["anthropic"]
    assert find_violations(parsed(session.context(), dialect.name), dialect) == []


def _tell(session: Session, messages: list[dict[str, Any]], sizes: list[int]) -> list[float]:
    """Append all in batches of these sizes, again and again; how full the context was after each."""
    shares, at, turn = [], 0, 0
    while at < len(messages):
        size = sizes[turn % len(sizes)]
        session.append(messages[at : at + size])
        _check(session)
        shares.append(session.usage().share)
        at, turn = at + size, turn + 1
    return shares


@pytest.mark.parametrize("size", [1, 2, 3, 6, 20])
def test_a_caller_that_appends_results_with_the_next_calls_stays_within_the_budget(size):
    with Session.open("run", window=32_000, dialect="anthropic", store=SqliteStore()) as session:
        shares = _tell(session, WHOLE, [size])
        assert max(shares) < 0.95
        assert session.compactions()
        assert session.history() == WHOLE


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_batches_of_any_sizes_stay_within_the_budget(sizes):
    with opened(SqliteStore(), window=6_000, dialect="anthropic", max_output_tokens=400) as session:
        assert max(_tell(session, WHOLE[:40], sizes)) < 0.95


def test_a_call_that_waits_for_its_result_stays_last_when_a_compaction_comes_with_it():
    with Session.open("run", window=32_000, dialect="anthropic", store=SqliteStore()) as session:
        at = 0
        while not session.compactions():
            session.append(WHOLE[at : at + 2])  # results, and the next calls
            at += 2
        assert session.context()[-1]["content"] == WHOLE[at - 1]["content"]
        session.append(WHOLE[at])
        _check(session)
