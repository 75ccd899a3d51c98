"""Which command is registered: one that works from any shell."""

from __future__ import annotations

import shlex
import subprocess
import tempfile

import pytest

from context_compactor.agents.known import AGENTS
from context_compactor.errors import BadSetting
from context_compactor.install.ours import is_our_hook, is_our_server, is_our_status_line
from context_compactor.install.program import is_fleeting, own_program
from context_compactor.install.wanted import hook_groups, mcp_server, status_line


def script(folder, name="compactor"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text('#!/bin/sh\necho "$@"\n')
    path.chmod(0o755)
    return path


def test_the_script_that_runs_now_is_named_by_its_whole_path(tmp_path, monkeypatch):
    path = script(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(path.parent))
    monkeypatch.chdir(path.parent)
    for started_as in (str(path), "./compactor", "compactor"):
        assert own_program(started_as) == str(path)


def test_a_link_to_the_script_stays_a_link_since_it_outlives_an_upgrade(tmp_path):
    path = script(tmp_path / "venv")
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "compactor"
    link.symlink_to(path)
    assert own_program(str(link)) == str(link)


def test_started_in_another_way_the_script_of_this_environment_is_named():
    assert own_program("/usr/bin/pytest").endswith("/compactor")


def test_a_path_that_no_settings_file_can_hold_is_refused(tmp_path):
    path = script(tmp_path / "new\nline")
    with pytest.raises(BadSetting, match="another folder"):
        own_program(str(path))


@pytest.mark.parametrize("folder", ["plain", "with space", "quote'd", 'double"', "$HOME", "semi;colon", "ünïcödé"])
def test_a_shell_runs_what_is_registered_wherever_the_script_lies(tmp_path, folder):
    path = str(script(tmp_path / folder))
    group = hook_groups(AGENTS["claude-code"], path)["PreCompact"]
    ran = subprocess.run(["sh", "-c", group["hooks"][0]["command"]], capture_output=True, text=True, check=True)
    assert ran.stdout == "hook pre-compact\n"
    assert is_our_hook(group["hooks"][0])
    assert is_our_status_line(status_line(path))
    assert is_our_server(mcp_server(AGENTS["codex"], path))


@pytest.mark.parametrize(
    "command",
    [
        "compactorx hook stop",
        "x compactor hook stop",
        "echo 'compactor hook stop'",
        "compactor 'unclosed",
        "compactor",
        "",
    ],
)
def test_a_command_of_somebody_else_is_not_taken_for_ours(command):
    assert not is_our_hook({"type": "command", "command": command})


def test_a_setting_before_our_command_does_not_hide_it():
    assert is_our_hook({"type": "command", "command": f"A=1 B='x y' {shlex.quote('/a b/compactor')} hook stop"})


def test_a_program_in_a_cache_or_a_temporary_folder_is_known_as_fleeting():
    assert is_fleeting("/home/me/.cache/uv/archive-v0/abc/bin/compactor")
    assert is_fleeting(f"{tempfile.gettempdir()}/x/compactor")
    assert not is_fleeting("/home/me/.local/bin/compactor")
