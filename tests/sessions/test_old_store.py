"""A store that an earlier version wrote: every operation gives what that version gave.

`before_rebuild.db.gz` is a made-up conversation with compactions, an undo, tiers set by the user, a handoff, a
checkpoint, facts, archived originals, a prepared summary, a job, an event, a webhook and an idempotency key.
`before_rebuild.json.gz` is what the version that wrote it answered.
"""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from context_compactor.engine.report import Report
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_session_state
from context_compactor.store.connect import connect
from context_compactor.store.service_store import service_store_of
from context_compactor.testing import ScriptedModel
from tests.sessions.talk import count

STORES = Path(__file__).parent.parent / "fixtures" / "stores"
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
ID = "team-a/frozen"
# With `told_by` under its present name.
EXPECTED: dict[str, Any] = json.loads(
    gzip.decompress((STORES / "before_rebuild.json.gz").read_bytes()).replace(b'"told_by"', b'"summarized_by"')
)
SUMMARY = """## Where things stand
- doing: the agent looks around with `ls`, one folder after the other, 24 areas each
## Findings and decisions
- the folders hold 12 files each and nothing of interest for the refresh
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = tmp_path / ".compactor" / "compactor.db"
    store.parent.mkdir()
    store.write_bytes(gzip.decompress((STORES / "before_rebuild.db.gz").read_bytes()))
    return store


@pytest.fixture
def session(path: Path):
    model = ScriptedModel([SUMMARY])
    with Session.open(
        ID, store=f"sqlite:///{path}", count_tokens=count, clock=lambda: NOW, summarizer=model
    ) as session:
        yield session


def plain(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


def report(made: Report | None) -> Any:
    found = plain(made)
    assert found.pop("notes") == []  # later versions have it
    for name in ("duration_ms", "compaction_id", "metrics", "location", "checkpoint"):
        found.pop(name, None)
    for item in found["archived"]:
        item.pop("location", None)
    return found


def test_what_was_said_and_what_the_model_was_shown_are_read_as_before(session: Session) -> None:
    assert session.verify() == []
    assert session.history() == EXPECTED["history"]
    assert session.history(4, 3) == EXPECTED["history page"]
    for at in (4, 30, 50):
        assert session.context(at) == EXPECTED[f"context at {at}"]
    assert session.context() == EXPECTED["context"]
    assert plain(session.usage()) == EXPECTED["usage"]
    assert session.diff(10, 40).to_text() == EXPECTED["diff"]


def test_facts_reports_and_tiers_are_read_as_before(session: Session) -> None:
    assert plain(session.facts()) == EXPECTED["facts"]
    assert plain(session.facts("error")) == EXPECTED["errors"]
    assert [report(each) for each in session.compactions()] == EXPECTED["compactions"]
    assert plain(session.totals()) == EXPECTED["totals"]
    assert {str(turn): tier for turn, tier in session.tiers().items()} == EXPECTED["tiers"]
    decided = [
        [each.turn, each.tier, each.tokens_before, each.tokens_after]
        for each in session.plan(target_tokens=9_000).turns()
    ]
    assert decided == EXPECTED["plan"]


def test_originals_are_recalled_and_found_as_before(session: Session) -> None:
    assert [[each.id, each.number, each.tokens] for each in session.turns()] == EXPECTED["turns"]
    assert {ref: session.recall(ref) for ref in EXPECTED["recall"]} == EXPECTED["recall"]
    assert session.original("turn_003").text == EXPECTED["original"]
    assert plain(session.search("which cookie was chosen for the refresh token")) == EXPECTED["search"]
    assert plain(session.restore_rate()) == EXPECTED["restore rate"]


def test_a_handoff_and_a_checkpoint_are_continued_as_before(session: Session) -> None:
    assert plain(session.orchestrator()) == EXPECTED["orchestrator"]
    assert [session.resume().status, session.resume().brief] == EXPECTED["resume"]


def test_the_undo_is_redone_and_the_prepared_summary_is_used_as_before(session: Session) -> None:
    session.tools()  # records of then named `recall`
    assert report(session.redo()) == EXPECTED["redone"]
    assert session.context() == EXPECTED["context after redo"]
    assert report(session.undo()) == EXPECTED["undone"]
    made = session.compact(level="soft")
    archived = [each.id for each in made.archived]
    figures = [made.status, made.level, made.tokens_before, made.tokens_after, made.messages_removed]
    assert [*figures, archived, made.summarized_by] == EXPECTED["compacted"]
    assert session.context() == EXPECTED["context after compaction"]
    assert plain(session.restore("file_001")) == EXPECTED["restored"]
    assert session.context() == EXPECTED["context after restore"]


def test_what_a_service_stored_is_read_as_before(path: Path) -> None:
    store = connect(f"sqlite:///{path}")
    service = service_store_of(store)
    assert read_session_state(store.session(ID).state).presummary, "a prepared summary is in the state"
    assert list(store.holders(ID)) == ["other-machine:1:2:3"]
    assert [(job.kind, job.level, job.state) for job in service.jobs.open(ID)] == [("compact", "soft", "waiting")]
    events = service.events.newest(session_id=ID)
    assert [(each.event.type, each.event.payload) for each in events] == [
        ("session.compacted", {"tokens_before": 9, "tokens_after": 5})
    ]
    hooks = service.webhooks.all("team-a")
    assert [(hook.url, hook.types) for hook in hooks] == [("https://example.test/hook", ("session.compacted",))]
    known = service.answers.find(ID, "key-1", "abcd")
    assert known is not None
    assert known.answer == '{"ok":true}'
    store.close()
