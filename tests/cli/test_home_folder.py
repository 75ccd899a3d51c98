"""Whatever makes the folder `.compactor` of a project keeps it out of commits and for its owner alone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests import warm
from tests.server.fleet import Machine

STORE = "sqlite:///.compactor/compactor.db"
CALL = {"session_id": "s", "hook_event_name": "SessionStart", "source": "startup"}
MESSAGES = [{"role": "user", "content": "Fix the parser."}, {"role": "assistant", "content": "It is fixed."}]
LINE = {"type": "user", "uuid": "1", "sessionId": "s", "message": MESSAGES[0]}
ENDING = {
    "compact": ("compact", "talk.json", "--session", "a"),
    "import": ("import", "log.jsonl"),
    "token": ("token", "add", "ci"),
    "migrate": ("migrate",),
    "copy": ("copy", "--from", "sqlite:///other.db", "--to", STORE),
    "hook": ("hook", "session-start"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a conversation, a log and a store elsewhere, and nothing of ours in it."""
    folder = tmp_path / "project"
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    (folder / "talk.json").write_text(json.dumps(MESSAGES))
    (folder / "log.jsonl").write_text(json.dumps(LINE) + "\n")
    assert warm.run("migrate", "--store", "sqlite:///other.db", cwd=folder, env=_env(folder)).returncode == 0
    return folder


def _env(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COMPACTOR_", "CLAUDE_"))}
    return kept | {"HOME": str(folder.parent)}


def _is_kept_out(folder: Path) -> None:
    home = folder / ".compactor"
    assert (home / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    listed = subprocess.run(["git", "status", "--short"], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert ".compactor" not in listed


@pytest.mark.parametrize("name", ENDING)
def test_a_command_that_makes_the_folder_keeps_it_out_of_commits(project: Path, name: str):
    said = json.dumps(CALL | {"cwd": str(project)}).encode()
    ran = warm.run(*ENDING[name], cwd=project, env=_env(project), said=said)
    assert ran.returncode == 0, ran.stderr
    _is_kept_out(project)


def test_a_server_that_makes_the_folder_keeps_it_out_of_commits(project: Path):
    server = Machine("server", ["serve", "--port", "0"], project)
    try:
        server.start().wait_until_ready()
        _is_kept_out(project)
    finally:
        server.remove()


def test_a_folder_that_was_made_by_hand_is_kept_out_of_commits_by_the_first_command_that_writes_there(project: Path):
    (project / ".compactor").mkdir(mode=0o700)
    assert warm.run("migrate", cwd=project, env=_env(project)).returncode == 0
    _is_kept_out(project)


def test_a_link_in_the_place_of_the_list_is_not_followed(project: Path):
    (project / ".compactor").mkdir(mode=0o700)
    (project / ".compactor" / ".gitignore").symlink_to(project / "elsewhere")
    assert warm.run("migrate", cwd=project, env=_env(project)).returncode == 0
    assert not (project / "elsewhere").exists()
