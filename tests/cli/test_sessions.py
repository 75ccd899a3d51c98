"""Sessions of a store: which there are, what they hold, and which one a command means."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from context_compactor.sessions.session import Session
from tests.cli.conftest import conversation

READING = [
    ["sessions"],
    ["context", "run-42"],
    ["history", "run-42"],
    ["recall", "file_001"],
    ["recall", "--search", "parser"],
    ["restore", "file_001"],
    ["undo"],
    ["redo"],
    ["diff"],
    ["facts"],
    ["checkpoint"],
    ["resume"],
    ["handoff", "--phase", "write"],
    ["handoff", "--points"],
    ["export", "run-42"],
    ["verify"],
]
every_command = pytest.mark.parametrize("arguments", READING, ids=" ".join)


@every_command
def test_a_store_that_is_not_there_is_told_and_not_made(run, tmp_path, arguments):
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "there is no store at" in ran.err
    assert list(tmp_path.iterdir()) == []


@every_command
def test_an_unknown_session_is_told_with_those_there_are_and_not_made(run, stored, arguments):
    named = arguments[1:] == ["run-42"]
    asked = [*arguments[:1], "nobody"] if named else [*arguments, "--session", "nobody"]
    if arguments[0] in ("sessions", "verify"):
        asked = ["verify", "nobody"]
    ran = run(*asked)
    assert (ran.code, ran.out) == (2, "")
    assert "no session 'nobody'" in ran.err
    assert "'run-42'" in ran.err
    assert [each["id"] for each in run("sessions", "--json").json["sessions"]] == ["run-42"]


@every_command
def test_json_is_one_document_and_nothing_else(run, stored, arguments):
    ran = run(*arguments, "--json")
    assert ran.code == 0
    assert isinstance(ran.json, dict)


@every_command
def test_words_for_people_fit_into_80_columns_and_are_not_coloured(run, stored, arguments):
    ran = run(*arguments)
    assert ran.code == 0
    assert "\x1b" not in ran.out + ran.err
    if arguments[0] not in ("context", "history", "recall", "checkpoint", "resume", "export"):  # texts and paths
        assert max(map(len, ran.out.splitlines())) <= 80


def test_sessions_are_listed_with_the_one_used_last_first(run, stored):
    with Session.open("later", window=9_000) as session:
        session.append({"role": "user", "content": "Hello."})
    listed = run("sessions", "--json").json["sessions"]
    assert [each["id"] for each in listed] == ["later", "run-42"]
    assert listed[1]["messages"] == len(stored.messages)
    assert listed[0]["window"] == 9_000
    lines = run("sessions", "--limit", "1").out.splitlines()
    assert [line.split()[0] for line in lines] == ["session", "later"]


def test_an_empty_store_has_no_session_to_mean(run, stored, tmp_path):
    from context_compactor.store.connect import connect

    connect("sqlite:///empty.db").close()
    assert "no session" in run("sessions", "--store", "sqlite:///empty.db").out
    ran = run("facts", "--store", "sqlite:///empty.db")
    assert ran.code == 2
    assert "compactor compact FILE --session ID" in ran.err


def test_the_only_session_needs_no_name_and_is_told_beside_the_output(run, stored):
    ran = run("undo", "--json")
    assert ran.json["session_id"] == "run-42"
    assert ran.err == "session 'run-42': the only one\n"
    assert run("undo", "--session", "run-42", "--json").err == ""


def test_of_several_sessions_the_one_used_last_is_meant(run, stored):
    with Session.open("later") as session:
        session.append({"role": "user", "content": "Hello."})
    ran = run("history", "--json")
    assert ran.json["session_id"] == "later"
    assert ran.err == "session 'later': the one used last of 2; --session chooses\n"


def test_when_two_sessions_were_used_last_one_has_to_be_named(run, tmp_path):
    for name in ("one", "two"):
        with Session.open(name, clock=lambda: datetime(2026, 1, 26, tzinfo=UTC)) as session:
            session.append({"role": "user", "content": "Hello."})
    ran = run("facts")
    assert (ran.code, ran.out) == (2, "")
    assert "'one', 'two'" in ran.err


def test_a_store_can_be_named(run, stored):
    run("compact", stored.file, "--session", "elsewhere", "--store", "sqlite:///other/store.db", "--json")
    ids = [each["id"] for each in run("sessions", "--store", "sqlite:///other/store.db", "--json").json["sessions"]]
    assert ids == ["elsewhere"]
    ran = run("sessions", "--store", "other/store.db")
    assert ran.code == 2
    assert "is not a store URL" in ran.err


# What the model sees, and what was said


def test_context_prints_what_the_compaction_printed(run, stored):
    ran = run("context", "run-42")
    assert ran.json == stored.context
    assert ran.err == f"{len(stored.context)} messages in the context; {len(stored.messages)} in the history\n"
    assert run("context", "run-42", "--json").json["messages"] == stored.context


def test_context_at_a_message_is_what_was_sent_then(run, stored):
    assert run("context", "run-42", "--at", "7").json == stored.messages[:7]
    assert run("context", "run-42", "--at", "0").json == []
    ran = run("context", "run-42", "--at", "10000")
    assert ran.code == 2
    assert f"this session has {len(stored.messages)} messages" in ran.err


def test_looking_at_a_full_context_does_not_compact_it(run):
    with Session.open("full", window=1_000_000) as session:
        session.append(conversation())
    with Session.open("full", window=8_000):
        pass
    assert run("show", "full", "--json").json["usage"]["level"] == "emergency"
    assert run("context", "full").json == conversation()
    assert run("history", "full", "--json").json["totals"]["compactions"] == 0


def test_history_is_everything_that_went_in(run, stored):
    ran = run("history", "run-42")
    assert ran.json == stored.messages
    assert "compacted once" in ran.err


def test_history_lists_compactions(run, stored):
    run("compact", stored.file, "--session", "run-42", "--target", "1500")
    run("undo")
    ran = run("history", "run-42", "--reports")
    assert ran.out.splitlines()[0].split()[2] == stored.report["compaction_id"]
    assert "compacted 2 times, 1 undone" in ran.out
    output = run("history", "run-42", "--reports", "--json").json
    assert output["compactions"][0] == stored.report
    assert output["totals"]["undone"] == 1


def test_show_tells_of_a_session_what_it_tells_of_a_file_and_its_compactions(run, stored):
    ran = run("show", "run-42")
    assert ran.code == 0
    for text in ("summaries", "in all", "soft", "aggressive", "emergency", "files loaded", "compacted once"):
        assert text in ran.out
    assert stored.report["compaction_id"] in ran.out
    shown = run("show", "run-42", "--json").json
    assert sum(shown["usage"]["sections"].values()) == shown["usage"]["tokens"] == stored.report["tokens_after"]
    assert shown["last_compaction"] == stored.report


def test_a_file_of_the_same_name_as_a_session_is_shown(run, stored, tmp_path):
    (tmp_path / "run-42").write_bytes(stored.file.read_bytes())
    assert run("show", "run-42", "--json").json["source"] != "session"


def test_show_says_when_there_is_neither_a_file_nor_a_session(run, tmp_path, stored):
    ran = run("show", "nothing")
    assert (ran.code, ran.out) == (2, "")
    assert "there is no file 'nothing', and no session 'nothing'" in ran.err
    stored.store.unlink()
    ran = run("show", "nothing")
    assert ran.code == 2
    assert "nothing: there is no such file" in ran.err


def test_a_look_cannot_change_the_window_of_a_session(run, stored):
    ran = run("show", "run-42", "--window", "5k")
    assert ran.code == 2
    assert "already has these" in ran.err
