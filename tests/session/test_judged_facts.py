"""Facts that only a model says: a session shows them as such, and briefs nobody with them."""

from __future__ import annotations

import json

from msgspec import structs

from context_compactor import Session
from context_compactor.facts.fact import Fact
from context_compactor.facts.promote import promote
from context_compactor.testing import ScriptedModel
from tests.engine.test_model import DAY, TARGET
from tests.session.talk import CALM

JUDGING = structs.replace(CALM, plan_with_model=True, retry_delay_seconds=0.0)
CONTENT = "verifyToken(token: string) does return check(token)"
SAID = json.dumps(
    {"turns": [], "facts": [{"kind": "file_state", "content": CONTENT, "source": "turn_002"}]}
)  # fmt: skip


def test_a_session_tells_who_said_it_and_briefs_nobody_with_it():
    judge = ScriptedModel([SAID])
    with Session.open("run", window=1_000_000, store="memory:", settings=JUDGING, summarizer=judge) as session:
        session.append(DAY)
        session.compact(target_tokens=TARGET)
        (fact,) = [fact for fact in session.facts("file_state") if fact.told_by]
        assert (fact.content, fact.ref, fact.told_by) == (CONTENT, "turn_002", "scripted")
        assert CONTENT not in str(session.checkpoint())
        assert CONTENT not in str(session.handoff(phase="write"))


def test_it_is_no_lesson_for_other_sessions(tmp_path):
    words = "We decided to use PostgreSQL instead of MySQL as the database, because of its JSON columns."
    fact = Fact("decision", words, 3, "assistant", "", "", 1, 3, "turn_003")
    told = structs.replace(fact, told_by="scripted")
    assert promote([told], tmp_path, "ann", session_id="run", day="2026-01-26", seen={}) == []
    assert promote([fact], tmp_path, "ann", session_id="run", day="2026-01-26", seen={})
