"""A project may have come from anywhere: what lies in it leads nobody out of it and runs nothing."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from context_compactor.agents.hook_state import STATE_FILE
from context_compactor.agents.paths import project_root
from tests.hooks.place import Place, Talk, worked
from tests.warm import COMMAND


def spoken(place: Place, talk: Talk) -> list[subprocess.CompletedProcess[bytes]]:
    """What an agent does in a while: each hook leaves with 0 and without a traceback."""
    talk_of = (("SessionStart", "session-start"), ("PreCompact", "pre-compact"), ("SessionEnd", "session-end"))
    ran = [place.run(word, talk.said(event, source="compact", trigger="auto")) for event, word in talk_of]
    assert [each.returncode for each in ran] == [0, 0, 0]
    assert all(b"Traceback" not in each.stderr for each in ran)
    return ran


@pytest.mark.parametrize(
    "name",
    [
        "progress-checkpoint.md",
        "logs",
        "logs/hooks.jsonl",
        "learned",
        "locks",
        STATE_FILE,
        "compactor.db",
        ".gitignore",
        "",
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_no_link_in_the_folder_of_a_project_is_followed(place: Place, talk: Talk, name: str, is_there: bool):
    worked(talk)
    outside = place.home / "outside"
    outside.mkdir()
    target = outside / "target"
    if is_there and name in ("", "logs", "learned", "locks"):
        target.mkdir()
    elif is_there:
        target.write_text("alias x=y\n")
    link = place.project / ".compactor" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    before = [(path, path.read_bytes()) for path in outside.rglob("*") if path.is_file()]
    spoken(place, talk)
    assert [(path, path.read_bytes()) for path in outside.rglob("*") if path.is_file()] == before
    assert target.exists() == is_there


@pytest.mark.parametrize(
    "store", ["postgresql://u@127.0.0.1:{port}/db", "sqlite:///../out.db", "sqlite:///{home}/out.db"]
)
def test_the_settings_of_a_project_send_what_is_said_nowhere_else(place: Place, talk: Talk, store: str):
    worked(talk)
    (place.project / ".compactor").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        url = store.format(port=server.getsockname()[1], home=place.home)
        (place.project / ".compactor/config.toml").write_text(f'store = "{url}"\n')
        spoken(place, talk)
        with pytest.raises(TimeoutError):
            server.accept()
    assert not (place.project.parent / "out.db").exists()
    assert not (place.home / "out.db").exists()
    assert any("COMPACTOR_STORE" in str(line.get("problem")) for line in place.hook_log())


def test_a_repository_within_the_files_of_a_project_runs_nothing(place: Place, talk: Talk):
    worked(talk)
    ran = place.home / "ran"
    subprocess.run(["git", "init", "-q", "--bare", str(place.project)], check=True)
    config = f'[core]\nbare = false\nworktree = .\n[filter "evil"]\nclean = sh -c "echo ran > {ran}; cat"\n'
    (place.project / "config").write_text(config)
    (place.project / ".gitattributes").write_text("* filter=evil\n")
    (place.project / "file.txt").write_text("changed\n")
    spoken(place, talk)
    assert not ran.exists()


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">/dev/full", "2>/dev/full", "| true", "<&-"])
@pytest.mark.parametrize("command", ["hook session-start", "hook pre-compact", "hook nonsense", "statusline"])
def test_a_stream_that_is_closed_full_or_left_stops_nobody(place: Place, talk: Talk, command: str, streams: str):
    worked(talk)
    said = place.home / "said.json"
    said.write_text(json.dumps(talk.said("SessionStart", source="compact", trigger="auto")))
    line = f"set -o pipefail; {shlex.quote(COMMAND)} {command} < {shlex.quote(str(said))} {streams}"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, check=False, cwd=place.project, env=place.env)
    assert ran.returncode == 0
    assert b"Traceback" not in ran.stderr


def test_what_a_tool_printed_drives_no_terminal(talk: Talk):
    talk.user("Go on.")
    talk.run("make", "Error: \x1b]52;c;aGk=\x07 \u202eboom", is_error=True)
    talk.hook("SubagentStop", "subagent-stop", agent_id="a", agent_type="", last_assistant_message="Nothing.")
    answer = talk.hook("SessionStart", "session-start", source="compact")
    for text in (answer["systemMessage"], answer["hookSpecificOutput"]["additionalContext"]):
        assert "boom" in text
        assert not set(text) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.parametrize("spoil", [b"this is no database at all\n" * 50, b"", b"SQLite format 3\0" + bytes(84)])
def test_a_damaged_tally_is_put_aside_and_everything_else_is_done(place: Place, talk: Talk, spoil: bytes):
    worked(talk)
    (place.project / ".compactor").mkdir()
    (place.project / ".compactor" / STATE_FILE).write_bytes(spoil)
    place.call("post-tool-use", talk.said("PostToolUse", tool_name="Bash", tool_response="ok"))
    place.call("pre-compact", talk.said("PreCompact", trigger="auto"))
    assert place.rows()[talk.id].calls == 1
    with place.session(talk.id) as session:
        assert "KeyError" in session.recall("tool_007")


def test_a_tally_that_holds_nonsense_is_read_as_nothing(place: Place, talk: Talk):
    worked(talk)
    talk.hook("Stop", "stop")
    with sqlite3.connect(place.project / ".compactor" / STATE_FILE) as rows:
        rows.execute("UPDATE sessions SET calls = 'many', events = 'nonsense', transcript = x'ff00', owed = 3")
    rows.close()
    assert place.rows()[talk.id].calls == 0
    place.call("post-tool-use", talk.said("PostToolUse", tool_name="Bash", tool_response="ok"))


@pytest.mark.parametrize("line", [b"\0" * 500, b"nonsense", b"[1, 2]", b'{"type": '])
def test_a_damaged_line_costs_nothing_but_itself(place: Place, talk: Talk, line: bytes):
    worked(talk)
    lines = talk.path.read_bytes().splitlines(keepends=True)
    talk.path.write_bytes(b"".join((*lines[:5], line + b"\n", *lines[5:])))
    place.call("pre-compact", talk.said("PreCompact", trigger="auto"))
    assert any(line["what"] == "lines passed over" and line["damaged"] == 1 for line in place.hook_log())
    with place.session(talk.id) as session:
        assert "KeyError" in session.recall("tool_007")


def test_a_pipe_in_the_place_of_a_copy_lets_nobody_wait(place: Place, talk: Talk):
    worked(talk)
    pipe = place.home / "pipe"
    os.mkfifo(pipe)
    response = {"stdout": "line\n" * 10_000, "stderr": "", "interrupted": False, "persistedOutputPath": str(pipe)}
    said = talk.said("PostToolUse", tool_name="Bash", tool_use_id="x", tool_response=response)
    assert "recall" in place.call("post-tool-use", said)


def test_a_folder_of_somebody_else_above_a_project_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / ".compactor").mkdir()
    assert project_root(str(work), {}) == str(tmp_path)
    assert project_root(str(work), {"HOME": str(tmp_path)}) == str(work)  # nor is the home of all projects
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert project_root(str(work), {}) == str(work)


def test_an_installation_without_a_home_is_refused(place: Place):
    for home in ("", "relative", "/nonexistent/home"):
        env = place.env | {"HOME": home}
        ran = subprocess.run(
            [sys.executable, "-c", "from context_compactor.start import main; main()", "install", "codex", "--yes"],
            capture_output=True,
            check=False,
            cwd=place.project,
            env=env,
        )
        assert ran.returncode == 2
        assert b"HOME" in ran.stderr
    assert list(place.project.iterdir()) == []
