"""`compactor compact SESSION`: what `/compact` does, on the command line."""

from __future__ import annotations

import functools
import json
import sqlite3

import pytest

from context_compactor.sessions.session import Session
from context_compactor.store.sqlite import SqliteStore


@pytest.fixture
def whole(run, stored):
    """A session in the store that was not compacted."""
    assert run("undo").code == 0
    return stored


def test_a_session_is_compacted_in_the_store_and_the_report_is_printed(run, whole):
    ran = run("compact", "run-42")
    assert ran.code == 0
    assert "Conversation compacted: " in ran.out
    assert "Tokens: " in ran.out
    assert "`compactor recall ID` prints them" in ran.out
    with Session.open("run-42") as session:
        assert session.compactions()[-1].trigger == "manual"
        assert session.history() == whole.messages


def test_target_level_and_focus_count(run, whole):
    report = run("compact", "run-42", "--target", "20%", "--focus", "part_7", "--json").json["report"]
    assert report["tokens_after"] <= report["target_tokens"] <= report["tokens_before"] // 5
    assert run("undo").code == 0
    assert run("compact", "run-42", "--level", "emergency", "--json").json["report"]["level"] == "emergency"


def test_the_context_goes_where_it_is_asked_for(run, whole, tmp_path):
    output = run("compact", "run-42", "--json").json
    assert run("undo").code == 0
    assert run("compact", "run-42", "-o", "context.json").code == 0
    written = json.loads((tmp_path / "context.json").read_text(encoding="utf-8"))
    with Session.open("run-42") as session:
        assert written == session.context() == output["messages"]


def test_nothing_to_do_is_no_failure(run, tmp_path):
    (tmp_path / "short.json").write_text(json.dumps([{"role": "user", "content": "Hello."}]), encoding="utf-8")
    run("compact", "short.json", "--session", "short")
    ran = run("compact", "short")
    assert (ran.code, ran.out.partition(":")[0]) == (0, "No compaction needed")


def test_a_name_that_is_neither_a_file_nor_a_session_is_told(run, whole):
    ran = run("compact", "run-43")
    assert ran.code == 2
    assert "no file 'run-43'" in ran.err
    assert "run-42" in ran.err


@pytest.mark.parametrize("option", ["--window", "--summarizer", "--session"])
def test_what_a_session_has_of_its_own_is_not_given_again(run, whole, option):
    ran = run("compact", "run-42", option, "5000")
    assert ran.code == 2
    assert option in ran.err


def test_a_target_that_is_none_changes_nothing(run, whole):
    ran = run("compact", "run-42", "--target", "many")
    assert ran.code == 2
    assert "--target" in ran.err or "target" in ran.err
    with Session.open("run-42") as session:
        assert session.context() == whole.messages


def test_a_locked_store_is_told_and_left_as_it_was(run, whole, monkeypatch):
    impatient = functools.partial(SqliteStore, busy_seconds=0.05)
    monkeypatch.setattr("context_compactor.store.connect.SqliteStore", impatient)
    connection = sqlite3.connect(whole.store)
    connection.execute("BEGIN EXCLUSIVE")
    ran = run("compact", "run-42")
    connection.close()
    assert ran.code == 1
    assert "was locked by another process" in ran.err
    assert run("context", "run-42").json == whole.messages
