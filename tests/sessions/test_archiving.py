"""Originals are in the archive before they leave the context; when that fails, nothing leaves."""

from __future__ import annotations

import pytest

from context_compactor import Session, Settings
from context_compactor.errors import StoreError
from context_compactor.handoff.checkpoint_text import parse_checkpoint
from context_compactor.sessions import checkpoints
from context_compactor.store.sqlite import SqliteStore
from tests.engine.talks import bash, talk_in
from tests.failures.scenarios import fill, listing, working

QUIET = Settings(idle_seconds=0, retry_delay_seconds=0)


class FullStore(SqliteStore):
    """A store whose disk is full for so many attempts to archive."""

    failing = 0

    def archive(self, session_id, items, now):
        if self.failing:
            self.failing -= 1
            raise StoreError("the disk is full; nothing was written")
        return super().archive(session_id, items, now)


@pytest.fixture
def store(tmp_path):
    store = FullStore(str(tmp_path / "store.db"))
    yield store
    store.close()


@pytest.fixture
def session(store):
    with Session.open("run", window=1_000_000, store=store, settings=QUIET) as session:
        session.append(fill(working("anthropic", 12), 30, 12).messages)
        yield session


def heard(session):
    events = []
    session.bus.subscribe(events.append)
    return events


def test_archiving_that_fails_twice_is_tried_a_third_time(session, store):
    events = heard(session)
    store.failing = 2
    assert session.compact(target_tokens=3_000).changed
    assert [event.type for event in events][:2] == ["job.retried", "job.retried"]
    assert "disk is full" in events[0].payload["reason"]
    assert session.recall("turn_002")


def test_no_checkpoint_is_written_while_the_archive_lacks_what_it_would_name(session, store):
    store.failing = 99
    with pytest.raises(StoreError, match="disk is full"):
        session.compact(target_tokens=3_000)
    assert checkpoints.stored_checkpoint(session._core) is None
    store.failing = 0
    assert session.compact(target_tokens=3_000).changed
    named = {line.id for line in parse_checkpoint(checkpoints.stored_checkpoint(session._core)).archive}
    assert named
    assert named <= {original.ref for original in store.originals("run")}


def test_archiving_that_never_succeeds_leaves_the_old_context(session, store):
    before = session.context()
    store.failing = 99
    with pytest.raises(StoreError, match="disk is full"):
        session.compact(target_tokens=3_000)
    assert session.context() == before
    assert session.totals().compactions == 0
    store.failing = 0
    assert session.compact(target_tokens=3_000).changed


def test_an_automatic_compaction_that_cannot_archive_does_not_stop_the_agent(session, store):
    events = heard(session)
    with Session.open("run", window=9_000, store=store, settings=QUIET) as small:
        small.bus.subscribe(events.append)
        store.failing = 99
        report = small.append({"role": "user", "content": "Go on."})
        assert small.history()[-1] == {"role": "user", "content": "Go on."}
    assert report.status == "failed"
    assert "disk is full" in report.reason
    assert "compaction.failed" in [event.type for event in events]
    assert "session.compacted" not in [event.type for event in events]


def test_three_failures_open_the_breaker_and_the_report_says_so(session, store):
    store.failing = 99
    with Session.open("run", window=9_000, store=store, settings=QUIET) as small:
        words = "Some words to grow by. " * 120
        reports = [small.append({"role": "user", "content": f"{number} {words}"}) for number in range(24)]
    found = [report for report in reports if report]
    assert [report.status for report in found[:3]] == ["failed"] * 3
    assert all("compactions failed" in report.reason for report in found[3:])
    assert len(found) > 3


def test_a_text_that_was_recalled_is_not_archived_as_new(store):
    with Session.open("run", window=1_000_000, store=store, settings=QUIET) as session:
        talk = talk_in("anthropic").user("Look.").step(bash("ls -R", listing(60)))
        session.append(fill(talk, 20).messages)
        session.compact(target_tokens=2_000)
        messages = len(talk.messages)
        talk.user("And again.").step(bash("recall tool_001", session.recall("tool_001")))
        session.append(fill(talk, 20, 20).messages[messages:])
        session.compact(target_tokens=2_000)
        twins = {item.ref: item.same_as for item in store.originals("run")}
        assert twins["tool_022"] == "tool_001"
        hits = [hit.id for hit in session.search("folder_59") if "folder_59" in hit.text]
        assert hits == ["tool_001"]


def test_redaction_comes_before_anything_is_written(tmp_path):
    address = f"sqlite:///{tmp_path}/.compactor/compactor.db"
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    with Session.open(
        "run", store=address, window=9_000, settings=Settings(redact_secrets=True, idle_seconds=0)
    ) as session:
        talk = talk_in("anthropic").user(f"Use the token {secret} to push.").step(bash("env", f"GITHUB_TOKEN={secret}"))
        session.append(fill(talk, 40).messages)
        session.compact(level="emergency")
        assert secret not in str(session.history())
        assert "redacted" in session.recall("tool_001")
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes()


def test_files_are_their_owners_alone_and_kept_out_of_commits(tmp_path):
    address = f"sqlite:///{tmp_path}/.compactor/compactor.db"
    with Session.open("run", store=address, window=9_000, settings=QUIET) as session:
        session.append(fill(working("anthropic", 12), 30, 12).messages)
        session.compact(level="emergency")
        for path in [tmp_path / ".compactor", *(tmp_path / ".compactor").rglob("*"), *(tmp_path / ".tmp").rglob("*")]:
            if path.name != ".gitignore":
                assert path.stat().st_mode & 0o077 == 0, path
    assert (tmp_path / ".compactor/.gitignore").read_text() == "*\n"
