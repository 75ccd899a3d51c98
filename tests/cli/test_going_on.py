"""Going on elsewhere: checkpoint, resume, handoff; and the archive as files."""

from __future__ import annotations

import json
import sqlite3

import pytest

from context_compactor.archive.export import read_export
from context_compactor.handoff.checkpoint_text import parse_checkpoint
from context_compactor.handoff.context_summary import MOST_TOKENS, count_tokens
from context_compactor.sessions.session import Session

FOLDER = [".tmp", "context-archive", "run-42"]


def test_a_checkpoint_is_printed_and_written(run, stored):
    ran = run("checkpoint", "--note", "the flaky test is known")
    file = stored.store.parent / "progress-checkpoint.md"
    assert parse_checkpoint(file.read_text()).note == "the flaky test is known"
    assert ran.out == file.read_text()
    assert ran.err.splitlines()[-1] == f"written to {file}"
    output = run("checkpoint", "--json").json
    assert (output["session_id"], output["file"], output["note"]) == ("run-42", str(file), "")


def test_resume_prints_what_a_fresh_window_begins_with(run, stored):
    run("checkpoint")
    ran = run("resume")
    assert ran.code == 0
    assert ran.out.startswith(("Ready to go on.", "Needs attention"))
    assert "pytest -q tests/test_parser.py" in ran.out
    output = run("resume", "--tokens", "500", "--json").json
    assert output["status"] in ("ready", "needs_attention")
    assert count_tokens(output["brief"]) <= 500


def test_a_damaged_checkpoint_is_reported_and_written_anew(run, stored):
    run("checkpoint")
    file = stored.store.parent / "progress-checkpoint.md"
    file.write_text(file.read_text()[:700])
    ran = run("resume", "--json")
    assert ran.code == 0
    assert ran.json["status"] == "needs_attention"
    assert "rebuilt from the store" in ran.json["reasons"][0]["what"]
    assert parse_checkpoint(file.read_text()).session_id == "run-42"


def test_resume_leaves_with_one_when_it_is_blocked(run, stored):
    run("checkpoint")
    with Session.open("run-42") as session:
        session.append({"role": "user", "content": "I am at it."})
        ran, found = run("resume"), run("resume", "--json")
    assert (ran.code, found.code) == (1, 1)
    assert ran.out.startswith("Blocked. Session 'run-42'.\n  blocking   session 'run-42' is open in")
    assert found.json["reasons"][0]["severity"] == "blocking"
    assert found.json["reasons"][0]["try"]


def test_a_fresh_window_begins_with_what_must_not_be_forgotten(run, stored):
    run("undo")
    ran = run("resume", "--fresh", "--json")
    assert ran.code == 0
    assert ran.json["report"]["status"] == "success"
    context = json.dumps(run("context", "run-42").json)
    assert len(context) < len(json.dumps(stored.context))
    assert "Never touch legacy/" in context
    assert run("undo", "--json").json["report"] == ran.json["report"]


def test_a_blocked_session_does_not_begin_a_fresh_window(run, stored):
    with Session.open("run-42") as session:
        session.append({"role": "user", "content": "I am at it."})
        ran = run("resume", "--fresh", "--json")
    assert ran.code == 1
    assert ran.json["report"] is None
    assert run("context", "run-42").json == [*stored.context, {"role": "user", "content": "I am at it."}]


# Handoff


ANSWER = {
    "task_id": "t-1",
    "phase": "write",
    "status": "complete",
    "decision": "CLARIFY",
    "findings": {"files_changed": ["src/rules.py"], "questions": ["Which clock?"], "log": "line after line " * 400},
    "context_summary": "The rules are in src/rules.py now.",
}


def test_a_handoff_carries_the_task_and_a_short_summary(run, stored):
    output = run("handoff", "--phase", "write", "--task", "Write the rules.", "--task-id", "t-1", "--json").json
    assert (output["task_id"], output["phase"], output["task"]) == ("t-1", "write", "Write the rules.")
    assert 0 < count_tokens(output["context_summary"]) <= MOST_TOKENS
    assert "Never touch legacy/" in json.dumps(output)
    shown = run("handoff", "--phase", "validate").out
    assert "run-42-validate-" in shown


@pytest.mark.parametrize("form", ["file", "input"])
def test_an_answer_is_taken_in_and_archived(run, stored, tmp_path, monkeypatch, form):
    run("handoff", "--phase", "write", "--task-id", "t-1")
    (tmp_path / "answer.md").write_text(f"Here it is:\n```json\n{json.dumps(ANSWER)}\n```\n")
    if form == "input":
        monkeypatch.setattr("sys.stdin", (tmp_path / "answer.md").open())
    output = run("handoff", "--receive", "-" if form == "input" else "answer.md", "--json").json
    if form == "input":
        import sys

        sys.stdin.close()
    assert (output["decision"], output["files_changed"], output["asked"]) == (
        "CLARIFY",
        ["src/rules.py"],
        "Which clock?",
    )
    assert output["saving"] > 0.8
    assert "line after line" in run("recall", output["id"]).out
    assert "taken in before" in run("handoff", "--receive", "answer.md").out


def test_the_next_phase_is_given_what_the_last_one_reported(run, stored, tmp_path):
    spec = "specs/user-auth/requirements.md"
    output = run("handoff", "--phase", "write", "--task-id", "t-1", "--spec-path", spec, "--json").json
    assert (output["feature"], output["spec_path"]) == ("user-auth", spec)
    (tmp_path / "answer.json").write_text(json.dumps({**ANSWER, "decision": "PROCEED"}))
    assert run("handoff", "--receive", "answer.json").code == 0
    output = run("handoff", "--phase", "validate", "--json").json
    assert ANSWER["context_summary"] in output["context_summary"]
    assert "src/rules.py" in output["files"]
    assert (output["feature"], output["spec_path"]) == ("user-auth", spec)
    shown = run("handoff", "--phase", "validate", "--feature", "billing").out
    assert "billing" in shown
    assert spec not in shown


def test_the_measurement_points_are_told(run, stored, tmp_path):
    (tmp_path / "answer.json").write_text(json.dumps(ANSWER))
    run("handoff", "--phase", "write", "--task-id", "t-1")
    run("handoff", "--receive", "answer.json")
    output = run("handoff", "--points", "--json").json
    assert output["points"]["response_tokens"][0] > output["points"]["summary_tokens"][0] > 0
    assert output["figures"]["tool_calls"]["total"] == 32
    assert "tool calls" in run("handoff", "--points").out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "exactly one of"),
        (["--phase", "write", "--points"], "exactly one of"),
        (["--receive", "x", "--task", "y"], "names its own task"),
        (["--receive", "x", "--feature", "y"], "names its own task"),
        (["--phase", "write", "--feature", "two\nlines"], "field 'feature'"),
        (["--phase", "write", "--spec-path", "x" * 501], "500 is the limit"),
        (["--phase", "dream"], "use one of research, write, validate, parallel"),
        (["--receive", "missing.md"], "missing.md cannot be read: No such file"),
        (["--receive", "."], "cannot be read: Is a directory"),
        (["--receive", "odd.bin"], "not UTF-8 text"),
        (["--receive", "prose.md"], "no JSON object"),
    ],
)
def test_a_handoff_that_cannot_be_is_refused_with_a_reason(run, stored, tmp_path, arguments, told):
    (tmp_path / "odd.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "prose.md").write_text("It went well.")
    ran = run("handoff", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


# The archive as files, and its proof


def test_export_writes_every_original(run, stored, tmp_path):
    output = run("export", "run-42", "--json").json
    assert output["folder"] == str(tmp_path.joinpath(*FOLDER))
    exported = read_export(tmp_path.joinpath(*FOLDER))
    assert set(exported.values) == {each["id"] for each in stored.report["archived"]}
    assert output["count"] == len(exported.values)


def test_export_goes_where_it_is_told(run, stored, tmp_path):
    names = ["tool-calls.json", "file-summaries.md", "subagent-outputs.md", "manifest.json"]
    ran = run("export", "run-42", "--dir", "elsewhere")
    assert ran.out.splitlines()[1:] == [f"  elsewhere/run-42/{name}" for name in names]
    assert read_export(tmp_path / "elsewhere" / "run-42").values


def test_export_without_a_folder_is_refused(run, stored, monkeypatch):
    monkeypatch.setenv("COMPACTOR_ARCHIVE_DIR", "none")
    ran = run("export", "run-42")
    assert ran.code == 2
    assert "give a folder" in ran.err
    assert run("export", "run-42", "--dir", " ").code == 2


def test_verify_finds_nothing_where_nothing_was_changed(run, stored):
    ran = run("verify")
    assert ran.code == 0
    assert ran.out.startswith("Everything is as it was stored.")
    assert run("verify", "run-42", "--json").json["problems"] == []


def test_verify_leaves_with_one_when_something_was_changed(run, stored):
    connection = sqlite3.connect(stored.store)
    connection.execute("UPDATE contents SET bytes = x'00' WHERE number = 3")
    connection.commit()
    connection.close()
    ran, found = run("verify"), run("verify", "--json")
    assert (ran.code, found.code) == (1, 1)
    assert "not what its hash says" in ran.out
    assert found.json["problems"]
    assert run("context", "run-42", "--at", "10").code == 1


def test_a_file_that_is_no_store_is_told(run, tmp_path):
    (tmp_path / "letter.db").write_bytes(b"Dear reader, " * 500)
    ran = run("sessions", "--store", "sqlite:///letter.db")
    assert (ran.code, ran.out) == (1, "")
    assert "not a database of this program" in ran.err
