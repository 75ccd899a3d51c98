"""`compact FILE --session ID`: a transcript becomes a session, or continues one."""

from __future__ import annotations

import functools
import io
import json
import sqlite3
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.cli.compact_session import CompactOptions, compact_session
from context_compactor.cli.conversation import conversation_of
from context_compactor.dialects.transcripts.reader import parse_transcript
from context_compactor.sessions.session import Session
from context_compactor.settings import Settings
from context_compactor.store.sqlite import SqliteStore
from context_compactor.text import TargetSize
from tests.cli.conftest import conversation
from tests.engine.sessions import sessions
from tests.engine.talks import DIALECT_NAMES


def test_a_transcript_becomes_a_session_that_other_processes_can_use(run, stored):
    with Session.open("run-42") as session:
        assert session.history() == stored.messages
        assert session.context() == stored.context
        assert [report.compaction_id for report in session.compactions()] == [stored.report["compaction_id"]]
    assert stored.report["session_id"] == "run-42"
    assert stored.report["tokens_after"] <= stored.report["target_tokens"]


def test_the_report_says_what_was_stored_and_where_originals_are(run, transcript):
    ran = run("compact", transcript, "--session", "run-42", "--target", "25%")
    assert ran.json
    assert f"session     'run-42': {len(conversation())} messages appended, {len(conversation())} in all" in ran.err
    assert "`compactor recall ID` prints them" in ran.err


def test_without_a_session_nothing_is_stored(run, transcript, tmp_path):
    run("compact", transcript, "--target", "25%")
    assert list(tmp_path.iterdir()) == [transcript]


def test_a_transcript_that_has_grown_continues_its_session(run, stored):
    grown = [*stored.messages, {"role": "assistant", "content": "Going on."}, {"role": "user", "content": "Thanks."}]
    stored.file.write_text(json.dumps(grown))
    ran = run("compact", stored.file, "--session", "run-42")
    assert ran.code == 0
    assert ran.err.startswith("No compaction needed: ")
    assert f"2 messages appended, {len(grown)} in all" in ran.err
    assert ran.json == [*stored.context, *grown[-2:]]
    assert run("history", "run-42").json == grown


def test_the_same_transcript_twice_appends_nothing(run, stored):
    ran = run("compact", stored.file, "--session", "run-42")
    assert "0 messages appended" in ran.err
    assert ran.json == stored.context


def test_fields_in_another_order_are_the_same_message(run, stored):
    turned = [dict(reversed(message.items())) for message in stored.messages]
    stored.file.write_text(json.dumps(turned))
    assert run("compact", stored.file, "--session", "run-42").code == 0


def test_another_conversation_is_refused_with_the_message_where_they_differ(run, stored):
    stored.messages[5]["content"] = "something else"
    stored.file.write_text(json.dumps(stored.messages))
    ran = run("compact", stored.file, "--session", "run-42")
    assert (ran.code, ran.out) == (2, "")
    assert "message 5 of the file is another one" in ran.err


def test_a_shorter_transcript_is_refused(run, stored):
    stored.file.write_text(json.dumps(stored.messages[:10]))
    ran = run("compact", stored.file, "--session", "run-42")
    assert (ran.code, ran.out) == (2, "")
    assert f"the session has {len(stored.messages)} messages and the file only the first 10" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--session", "run-42", "--target", "0"],
        ["--session", "run-42", "--window", "many"],
        ["--session", "run-42", "--window", "1"],
        ["--session", " "],
        ["--session", "run\n42"],
        ["--session", "run-42", "--store", "mysql://x"],
        ["--store", "sqlite:///x.db"],
    ],
)
def test_wrong_usage_stores_nothing(run, transcript, tmp_path, arguments):
    ran = run("compact", transcript, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert list(tmp_path.iterdir()) == [transcript]


def test_levels_and_focus_work_as_without_a_session(run, transcript):
    asked = ["--window", "40k", "--level", "aggressive", "--focus", "part 7", "--json"]
    kept = run("compact", transcript, "--session", "run-42", *asked).json["report"]
    alone = run("compact", transcript, *asked).json["report"]
    assert (kept["level"], kept["status"]) == ("aggressive", "success")
    assert kept["target_tokens"] == alone["target_tokens"]
    assert run("sessions", "--json").json["sessions"][0]["window"] == 40_000


def test_nothing_is_compacted_while_messages_are_appended(run, transcript):
    run("compact", transcript, "--session", "run-42", "--window", "20k")
    output = run("history", "run-42", "--reports", "--json").json
    assert [report["messages_before"] for report in output["compactions"]] == [len(conversation())]


def test_settings_of_a_session_are_not_changed_by_feeding_it(run, transcript):
    with Session.open("mine", window=50_000, settings=Settings(automatic=False, preserve_recent_turns=9)):
        pass
    run("compact", transcript, "--session", "mine", "--target", "25%")
    with Session.open("mine") as session:
        assert (session.settings.automatic, session.settings.preserve_recent_turns) == (False, 9)


def test_turned_off_means_that_it_is_kept_and_not_compacted(run, transcript, monkeypatch):
    monkeypatch.setenv("COMPACTOR_ENABLED", "off")
    ran = run("compact", transcript, "--session", "run-42", "--target", "10%")
    assert ran.json == conversation()
    assert "turned off" in ran.err
    assert run("history", "run-42").json == conversation()


def test_secrets_are_replaced_before_anything_is_written(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COMPACTOR_REDACT_SECRETS", "on")
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    messages = [{"role": "user", "content": f"My token is {secret}."}, {"role": "assistant", "content": "Noted."}]
    (tmp_path / "agent.json").write_text(json.dumps(messages))
    assert run("compact", "agent.json", "--session", "s").code == 0
    assert run("compact", "agent.json", "--session", "s").code == 0
    assert secret not in run("history", "s").out
    assert secret.encode() not in (tmp_path / ".compactor" / "compactor.db").read_bytes()


def test_a_locked_store_is_told_and_left_as_it_was(run, stored, monkeypatch):
    impatient = functools.partial(SqliteStore, busy_seconds=0.05)
    monkeypatch.setattr("context_compactor.store.connect.SqliteStore", impatient)
    connection = sqlite3.connect(stored.store)
    connection.execute("BEGIN EXCLUSIVE")
    ran = run("compact", stored.file, "--session", "run-42")
    undone = run("undo")
    connection.close()
    assert (ran.code, undone.code) == (1, 1)
    assert "was locked by another process" in ran.err
    assert run("context", "run-42").json == stored.context


@pytest.mark.parametrize("command", ["compact", "sessions", "facts"])
def test_a_store_in_a_folder_that_cannot_be_used_is_told(run, locked, monkeypatch, command):
    monkeypatch.chdir(locked.parent)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(conversation()).encode())))
    asked = ["-", "--session", "x"] if command == "compact" else []
    ran = run(command, *asked, "--store", f"sqlite:///{locked}/a.db")
    assert (ran.code, ran.out) == (1, "")
    assert "ermission denied" in ran.err
    assert str(locked) in ran.err


def test_two_at_once_append_every_message_once(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    found = conversation_of(parse_transcript(json.dumps(conversation())), Settings())
    workers = [
        threading.Thread(target=compact_session, args=(found, "run-42", url, CompactOptions())) for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with Session.open("run-42", store=url) as session:
        assert session.history() == conversation()


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_however_a_conversation_comes_in_pieces_it_is_the_same_history(dialect, tmp_path_factory):
    @given(sessions(dialect, 3, 10), st.floats(0.1, 0.9))
    def check(drawn, share):
        url = f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
        cut = max(1, int(len(drawn.messages) * share))
        for part in (drawn.messages[:cut], drawn.messages):
            found = conversation_of(parse_transcript(json.dumps(part)), Settings())
            fed = compact_session(found, "run-42", url, CompactOptions(target=TargetSize(percent=50.0)))
        with Session.open("run-42", store=url, dialect=found.transcript.dialect) as session:
            assert session.history() == drawn.messages
            assert session.context(len(drawn.messages)) == fed.messages

    check()
