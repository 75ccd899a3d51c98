"""A compaction that a user asks for: what it keeps in any case, however often it is asked for."""

from __future__ import annotations

import pytest

from context_compactor.sessions.session import Session
from tests.sessions.talk import CALM, Raw, opened

DECISION = "We decided to keep the queue in SQLite instead of Redis, because one file is easier to back up."


def chat(first: int, last: int) -> list[Raw]:
    """Questions and answers; no two are the same."""
    return [
        {"role": role, "content": text}
        for at in range(first, last)
        for role, text in (
            ("user", f"What does step_{at} in src/steps/step_{at}.py do?"),
            ("assistant", "\n".join(f"It adds part_{at}_{line} to the plan of step_{at}." for line in range(12))),
        )
    ]


@pytest.mark.parametrize("count", [0, 1, 5, 9])
def test_the_last_turns_stay_word_for_word_as_many_as_the_setting_says(tmp_path, count):
    said = chat(0, 30)
    with opened(tmp_path, window=40_000, preserve_recent_turns=count) as session:
        session.append(said)
        assert session.compact().changed
        seen = session.context()
    assert seen[len(seen) - count :] == said[len(said) - count :]
    assert len(seen) < len(said) / 2


def test_a_decision_stays_however_often_the_context_is_halved():
    with Session.open("run", window=40_000, store="memory:", settings=CALM) as session:
        session.append([*chat(0, 2), {"role": "user", "content": "Redis?"}, {"role": "assistant", "content": DECISION}])
        for at in range(6):
            session.append(chat(10 + 10 * at, 20 + 10 * at))
            assert session.compact().changed
            assert DECISION in str(session.context())
