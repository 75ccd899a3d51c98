"""Which command is registered: one that works from any shell, and of which its user hears when it does not."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from context_compactor.agents.coding_agents import AGENTS
from context_compactor.agents.install.commands import (
    BY_NAME,
    hook_command,
    is_our_hook,
    is_our_server,
    is_our_status_line,
    is_temporary,
    launcher,
    launcher_command,
    launcher_text,
    own_command,
)
from context_compactor.agents.install.targets import hook_groups, mcp_server, status_line
from context_compactor.errors import BadSetting

FOLDERS = ["plain", "with space", "quote'd", 'double"', "$HOME", "semi;colon", "ünïcödé"]
# Claude Code takes the first, Codex the user's own.
SHELLS = [name for name in ("sh", "bash", "zsh", "fish") if shutil.which(name)]


def script(folder, name="compactor", says=""):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "{says and says + ":"}$@"\n')
    path.chmod(0o755)
    return path


def printed(line, shell="sh", env=None):
    """What a shell prints for a line that must not fail."""
    ran = subprocess.run([shell, "-c", line], env=env or dict(os.environ), capture_output=True, text=True, check=True)
    return ran.stdout


def test_the_script_that_runs_now_is_named_by_its_whole_path(tmp_path, monkeypatch):
    path = script(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(path.parent))
    monkeypatch.chdir(path.parent)
    for started_as in (str(path), "./compactor", "compactor"):
        assert own_command(started_as) == (str(path),)


def test_a_link_to_the_script_stays_a_link_since_it_outlives_an_upgrade(tmp_path):
    path = script(tmp_path / "venv")
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "compactor"
    link.symlink_to(path)
    assert own_command(str(link)) == (str(link),)


def test_started_in_another_way_the_script_of_this_environment_is_named():
    assert own_command("/usr/bin/pytest") == (str(Path(sys.executable).with_name("compactor")),)


def test_a_path_that_no_settings_file_can_hold_is_refused(tmp_path):
    path = script(tmp_path / "new\nline")
    with pytest.raises(BadSetting, match="another folder"):
        own_command(str(path))


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_shell_runs_what_is_registered_wherever_the_script_lies(tmp_path, folder):
    command = (str(script(tmp_path / folder)),)
    for group in hook_groups(AGENTS["claude-code"], command).values():
        (hook,) = group["hooks"]
        said = printed(hook["command"])
        assert said.startswith("hook ")
        assert said.count("\n") == 1
        assert hook_command(hook) == command
    assert printed(status_line(command)["command"]) == "statusline\n"
    assert is_our_status_line(status_line(command))
    assert is_our_server(mcp_server(AGENTS["codex"], command))


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("is_there", [False, True], ids=["gone", "without its Python"])
def test_of_a_command_that_has_gone_the_user_hears_once_in_a_session_and_in_the_status_line(
    tmp_path, shell, folder, is_there
):
    path = script(tmp_path / folder)
    path.write_text("#!/gone/python\n")
    if not is_there:
        path.unlink()
    for agent in (agent for agent in AGENTS.values() if not agent.extension):
        groups = hook_groups(agent, (str(path),))
        said = {event: printed(group["hooks"][0]["command"], shell) for event, group in groups.items()}
        found = json.loads(said.pop("SessionStart"))
        assert list(found) == ["systemMessage"]
        assert "\n" not in found["systemMessage"]
        assert str(path) in found["systemMessage"]
        assert f"compactor install {agent.name}" in found["systemMessage"]
        assert set(said.values()) == {""}
    shown = printed(status_line((str(path),))["command"], shell)
    assert "does not run" in shown
    assert shown.count("\n") == 1


def test_settings_without_a_path_find_the_command_on_the_path_then_where_an_install_wrote_it_down(tmp_path):
    on_path, recorded = script(tmp_path / "bin", says="on the PATH"), script(tmp_path / "a b", says="recorded")
    env = {"HOME": str(tmp_path), "PATH": f"{on_path.parent}:/usr/bin:/bin"}
    place = launcher(env)
    place.parent.mkdir(parents=True)
    place.write_bytes(launcher_text((str(recorded),)))
    place.chmod(0o700)
    assert launcher_command(env) == (str(recorded),)
    lines = [group["hooks"][0]["command"] for group in hook_groups(AGENTS["claude-code"], BY_NAME).values()]
    lines.append(status_line(BY_NAME)["command"])
    server = mcp_server(AGENTS["codex"], BY_NAME)
    lines.append(shlex.join([server["command"], *server["args"]]))
    assert {printed(line, env=env).split(":")[0] for line in lines} == {"on the PATH"}
    on_path.unlink()
    assert {printed(line, env=env).split(":")[0] for line in lines} == {"recorded"}
    recorded.unlink()
    assert "compactor is not there" in json.loads(printed(lines[0], env=env))["systemMessage"]
    assert is_our_hook({"command": lines[0]})
    assert is_our_server(server)


def test_without_a_script_python_runs_the_package_and_takes_nothing_from_the_project(tmp_path):
    """An environment with the package in it and no script, as a copied folder on PYTHONPATH or a zip is."""
    venv, home, project = tmp_path / "odd 'place'", tmp_path / "home", tmp_path / "project"
    home.mkdir()
    (project / ".git").mkdir(parents=True)
    (project / "msgspec.py").write_text("raise SystemExit('code of the project was run')")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/*/site-packages")
    there = [*(path for path in sys.path if path.endswith(("site-packages", "src"))), sysconfig.get_path("purelib")]
    (packages / "there.pth").write_text("".join(f"{path}\n" for path in there))
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [venv / "bin" / "python", "-P", "-m", "context_compactor", *arguments]
        return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=True)

    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model":   "opus"}')
    run("install", "claude-code", "--yes")
    hooks = json.loads(settings.read_text())["hooks"]
    (hook,) = hooks["SessionStart"][0]["hooks"]
    assert hook_command(hook) == (str(venv / "bin" / "python"), "-P", "-m", "context_compactor")
    said = {"hook_event_name": "SessionStart", "session_id": "s", "cwd": str(project), "source": "startup"}
    ran = subprocess.run(
        ["sh", "-c", hook["command"]],
        input=json.dumps(said),
        cwd=project,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    assert (project / ".compactor" / "agents.db").exists()
    server = json.loads((home / ".claude.json").read_text())["mcpServers"]["compactor"]
    assert is_our_server(server)
    run("uninstall", "claude-code", "--yes")
    assert settings.read_text() == '{"model":   "opus"}'
    assert not (home / ".claude.json").exists()
    assert not launcher(env).parent.exists()


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


def test_a_hook_is_known_as_ours_however_older_versions_wrote_it():
    for line in ("compactor hook stop", r"/old\ place/compactor hook stop", "A=1 compactor hook x"):
        assert is_our_hook({"type": "command", "command": line})
    assert is_our_server({"command": "compactor", "args": ["mcp"]})


def test_a_setting_before_our_command_does_not_hide_it():
    assert is_our_hook({"type": "command", "command": f"A=1 B='x y' {shlex.quote('/a b/compactor')} hook stop"})


def test_a_program_in_a_cache_or_a_temporary_folder_is_known_as_fleeting():
    assert is_temporary(("/home/me/.cache/uv/archive-v0/abc/bin/compactor",))
    assert is_temporary((f"{tempfile.gettempdir()}/x/compactor",))
    assert not is_temporary(("/home/me/.local/bin/compactor",))
