"""`compactor install` and `compactor uninstall`, as a user runs them."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import shlex
import stat
import sysconfig
import tomllib
from pathlib import Path

import pytest

from context_compactor.agents.coding_agents import CLAUDE_CODE, CODEX
from context_compactor.agents.install.commands import BY_NAME
from context_compactor.agents.install.targets import mod_files
from tests.install.conftest import start

AGENTS = ("claude-code", "codex")
PROGRAM = str(Path(sysconfig.get_path("scripts")) / "compactor").encode()
SCOPES = ("--user", "--project")
TABBED = '\ufeff{\r\n\t"model": "opus",\r\n\t"hooks": {"PreCompact": [ ]}\r\n}'


def fill(place) -> None:
    """Settings of both agents, for the user and for the project."""
    for folder in (place.home, place.project):
        place.write(folder / ".claude" / "settings.json", TABBED, 0o640)
        place.write(folder / ".codex" / "config.toml", 'model = "x" # mine\n[tui]\na = 1')
    place.write(place.state, '{"oauth": {"secret": 1}, "mcpServers": {}}', 0o600)
    place.write(place.home / ".codex" / "hooks.json", '{"hooks":{"PreCompact":[{"hooks":[]}]}}')


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("prepare", [fill, lambda _: None], ids=["settings", "nothing"])
def test_an_uninstall_leaves_every_file_as_it_was_before_the_install(place, run, agent, scope, prepare):
    prepare(place)
    before = place.tree()
    assert run("install", agent, scope, "--yes").code == 0
    assert place.tree() != before
    assert run("uninstall", agent, scope, "--yes").code == 0
    assert place.tree() == before


@pytest.mark.parametrize("agent", AGENTS)
def test_a_dry_run_shows_the_changes_and_writes_nothing(place, run, agent):
    fill(place)
    before = place.tree()
    ran = run("install", agent, "--dry-run")
    assert ran.code == 0
    assert "+++ " in ran.out
    assert "hook pre-compact" in ran.out
    assert place.tree() == before
    assert not (place.home / ".local").exists()


@pytest.mark.parametrize("agent", AGENTS)
def test_a_second_install_says_so_and_changes_nothing(place, run, agent):
    run("install", agent, "--yes")
    before = place.tree()
    ran = run("install", agent)
    assert (ran.code, place.tree()) == (0, before)
    assert "already; nothing was changed" in ran.out


def test_without_a_terminal_and_without_yes_nothing_is_written(place, run):
    before = place.tree()
    ran = run("install", "claude-code")
    assert (ran.code, place.tree()) == (2, before)
    assert "+++ " in ran.out
    assert "--yes" in ran.err


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_on_a_terminal_the_user_is_asked(place, answer, code):
    ours, theirs = pty.openpty()
    running = start("install", "claude-code", stdin=theirs)
    os.write(ours, answer)
    out, err = running.communicate()
    os.close(ours)
    os.close(theirs)
    assert running.returncode == code
    assert b"+++ " in out
    assert b"Write this?" in err
    assert place.settings.exists() is (code == 0)


def test_what_is_registered_is_what_the_table_of_the_agent_says(place, run):
    run("install", "claude-code", "--yes")
    hooks = json.loads(place.settings.read_text())["hooks"]
    assert list(hooks) == [hook.event for hook in CLAUDE_CODE.hooks]
    for hook in CLAUDE_CODE.hooks:
        (group,) = hooks[hook.event]
        (entry,) = group["hooks"]
        program, *rest = shlex.split(entry["command"])
        assert os.access(program, os.X_OK)
        assert rest[:3] == ["hook", hook.word, "||"]
        assert (entry["timeout"], group.get("matcher")) == (hook.timeout, hook.matcher)
    server = json.loads(place.state.read_text())["mcpServers"]["compactor"]
    assert (server["type"], server["args"]) == ("stdio", ["mcp"])
    assert stat.S_IMODE(place.state.stat().st_mode) == 0o600


def test_codex_gets_its_hooks_and_its_server(place, run):
    run("install", "codex", "--yes")
    hooks = json.loads((place.home / ".codex" / "hooks.json").read_text())
    assert list(hooks) == ["hooks"]
    assert list(hooks["hooks"]) == [hook.event for hook in CODEX.hooks]
    server = tomllib.loads((place.home / ".codex" / "config.toml").read_text())["mcp_servers"]["compactor"]
    assert server["args"] == ["mcp"]


def test_settings_of_a_project_name_the_command_without_a_path(place, run, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    ran = run("install", "claude-code", "--project", "--yes")
    settings = (place.project / ".claude" / "settings.json").read_text()
    server = (place.project / ".mcp.json").read_text()
    assert "compactor hook pre-compact" in settings
    assert all(folder not in settings + server for folder in (str(place.home), sysconfig.get_path("scripts")))
    assert "not found on the PATH" in ran.out
    assert "Approve the MCP server" in ran.out


@pytest.mark.parametrize("agent", AGENTS)
def test_an_install_after_a_move_brings_every_path_up_to_date_and_an_uninstall_still_gives_what_was(place, run, agent):
    fill(place)
    before = place.tree()
    run("install", agent, "--yes")
    files = [path for path in place.home.rglob("*") if path.is_file() and PROGRAM in path.read_bytes()]
    assert len(files) == (
        4 if agent == "claude-code" else 3
    )  # those of the agent, and where the command is written down
    for path in files:
        path.write_bytes(path.read_bytes().replace(PROGRAM, b"/old/place/compactor"))
    assert run("install", agent, "--yes").code == 0
    assert not any(b"/old/place" in path.read_bytes() for path in files)
    assert all(PROGRAM in path.read_bytes() for path in files)
    for path in files[:2]:
        path.write_bytes(path.read_bytes().replace(PROGRAM, b"/old/place/compactor"))
    run("uninstall", agent, "--yes")
    assert place.tree() == before


@pytest.mark.parametrize("agent", AGENTS)
def test_entries_by_the_bare_name_become_ones_with_a_path_and_are_taken_out(place, run, agent):
    """As early versions wrote them."""
    fill(place)
    before = place.tree()
    run("install", agent, "--yes")
    hooks = place.settings if agent == "claude-code" else place.home / ".codex" / "hooks.json"
    text = re.sub(r' \|\| [^\n]*?(?<!\\)"', '"', hooks.read_text(encoding="utf-8-sig")).replace(
        PROGRAM.decode(), "compactor"
    )
    old = place.write(hooks, text, 0o640).read_bytes()
    assert b'"compactor hook pre-compact"' in old
    run("install", agent, "--yes")
    assert b'"compactor hook' not in hooks.read_bytes()
    place.write(hooks, old)
    run("uninstall", agent, "--yes")
    assert json.loads(hooks.read_text(encoding="utf-8-sig")) == json.loads(
        before[str(hooks.relative_to(place.home))][1].decode("utf-8-sig")
    )


def test_where_the_command_is_written_down_goes_with_the_last_install(place, run):
    launcher = place.home / ".local/state/compactor/bin/compactor"
    run("install", "claude-code", "--yes")
    run("install", "codex", "--project", "--yes")
    assert os.access(launcher, os.X_OK)
    assert stat.S_IMODE(launcher.stat().st_mode) == 0o700
    run("uninstall", "claude-code", "--yes")
    assert launcher.exists()
    run("uninstall", "codex", "--project", "--yes")
    assert not launcher.parent.exists()


def test_the_folders_that_the_agents_were_told_are_used(place, run, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(place.home / "c"))
    monkeypatch.setenv("CODEX_HOME", str(place.home / "x"))
    run("install", "claude-code", "--yes")
    run("install", "codex", "--yes")
    assert sorted(each.name for each in (place.home / "c").iterdir()) == [".claude.json", "settings.json", "skills"]
    assert sorted(each.name for each in (place.home / "x").iterdir()) == ["config.toml", "hooks.json"]


def test_a_project_whose_plugin_folder_leads_elsewhere_is_refused(place, run):
    elsewhere = place.home / "elsewhere"
    elsewhere.mkdir()
    (place.project / ".claude" / "skills").mkdir(parents=True)
    (place.project / ".claude" / "skills" / "compactor").symlink_to(elsewhere)
    ran = run("install", "claude-code", "--project", "--yes")
    assert ran.code == 2
    assert "leads out of the project" in ran.err
    assert list(elsewhere.iterdir()) == []


def test_one_file_that_cannot_be_read_keeps_all_others_as_they_are(place, run):
    fill(place)
    place.write(place.state, '{\n"mcpServers": [],\n}')
    before = place.tree()
    ran = run("install", "claude-code", "--yes")
    assert (ran.code, place.tree()) == (2, before)
    assert f"{place.state}, line 2" in ran.err or f"{place.state}, line 3" in ran.err
    assert "Try: " in ran.err


def test_a_file_that_is_not_utf8_is_refused_with_its_line(place, run):
    place.write(place.settings, b'{\n"a": "\xff"}')
    ran = run("install", "claude-code", "--yes")
    assert ran.code == 2
    assert "line 2: this is not UTF-8" in ran.err


def test_when_the_second_file_cannot_be_written_the_first_is_put_back(place):
    fill(place)
    place.write(place.state, json.dumps({"big": "x" * 200_000}))
    before = place.tree()

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    running = start("install", "claude-code", "--yes", "--json", preexec_fn=small_disk)
    out, err = running.communicate()
    assert (running.returncode, out) == (1, b"")
    assert f"cannot write {place.state}".encode() in err
    assert place.tree() == before
    assert [each.name for each in (place.home / ".local/state/compactor/installs").iterdir()] == [".lock"]


def test_a_read_only_file_is_not_replaced(place, run):
    place.write(place.settings, "{}", 0o444)
    before = place.tree()
    ran = run("install", "claude-code", "--yes")
    assert (ran.code, place.tree()) == (1, before)
    assert f"cannot write {place.settings}: it is read-only. Try: chmod u+w" in ran.err


def test_a_link_stays_a_link_and_its_target_is_written(place, run):
    target = place.write(place.home / "dotfiles" / "claude.json", '{"a": 1}\n', 0o600)
    place.settings.parent.mkdir()
    place.settings.symlink_to("../dotfiles/claude.json")
    before = place.tree()
    run("install", "claude-code", "--yes")
    assert place.settings.is_symlink()
    assert "compactor hook" in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    run("uninstall", "claude-code", "--yes")
    assert place.tree() == before


def test_what_the_user_and_the_agent_change_in_between_stays(place, run):
    fill(place)
    run("install", "claude-code", "--yes")
    place.write(place.settings, place.settings.read_bytes().replace(b'"opus"', b'"haiku"'))
    state = json.loads(place.state.read_text())
    place.write(place.state, json.dumps({**state, "numStartups": 4}, indent=2))
    ran = run("uninstall", "claude-code", "--yes", "--json")
    assert place.settings.read_bytes() == TABBED.encode().replace(b'"opus"', b'"haiku"')
    assert json.loads(place.state.read_text()) == {"oauth": {"secret": 1}, "mcpServers": {}, "numStartups": 4}
    assert [each["as_before"] for each in ran.json["files"]][:2] == [False, False]
    assert all(each["as_before"] for each in ran.json["files"][2:])


def test_a_file_made_for_us_stays_if_somebody_else_has_used_it(place, run):
    run("install", "claude-code", "--yes")
    settings = json.loads(place.settings.read_text())
    place.write(place.settings, json.dumps({**settings, "model": "opus"}, indent=2))
    run("uninstall", "claude-code", "--yes")
    assert place.settings.read_text() == '{\n  "model": "opus"\n}'


def test_without_the_ledger_an_uninstall_still_takes_everything_out(place, run):
    fill(place)
    run("install", "claude-code", "--yes")
    for record in (place.home / ".local/state/compactor/installs").glob("*.json"):
        record.write_text("{damaged")
    run("uninstall", "claude-code", "--yes")
    left = place.settings.read_text(encoding="utf-8-sig")
    assert json.loads(left) == {"model": "opus"}
    assert "compactor" not in place.state.read_text()


def test_an_install_after_edits_and_an_uninstall_give_the_edited_file(place, run):
    fill(place)
    run("install", "claude-code", "--yes")
    edited = place.settings.read_bytes().replace(b'"opus"', b'"haiku"').replace(b"hook pre-compact", b"hook old-word")
    place.write(place.settings, edited, 0o640)
    run("install", "claude-code", "--yes")
    assert b"old-word" not in place.settings.read_bytes()
    run("uninstall", "claude-code", "--yes")
    assert place.settings.read_bytes() == TABBED.encode().replace(b'"opus"', b'"haiku"')


def test_the_status_line_of_somebody_else_is_left_alone_and_this_is_said(place, run):
    theirs = '{"statusLine": {"type": "command", "command": "theirs"}}'
    place.write(place.settings, theirs)
    ran = run("install", "claude-code", "--yes", "--json")
    assert json.loads(place.settings.read_text())["statusLine"]["command"] == "theirs"
    assert any("status line stays" in warning for warning in ran.json["warnings"])
    run("uninstall", "claude-code", "--yes")
    assert place.settings.read_text() == theirs


def test_a_project_does_not_override_the_status_line_of_its_user(place, run):
    place.write(place.settings, '{"statusLine": {"type": "command", "command": "theirs"}}')
    run("install", "claude-code", "--project", "--yes")
    assert "statusLine" not in (place.project / ".claude" / "settings.json").read_text()


def test_where_the_plugin_is_switched_on_only_the_status_line_is_added(place, run):
    run("install", "claude-code", "--yes")
    settings = json.loads(place.settings.read_text())
    place.write(place.settings, json.dumps({**settings, "enabledPlugins": {"compactor@context-compactor": True}}))
    ran = run("install", "claude-code", "--yes", "--json")
    left = json.loads(place.settings.read_text())
    assert sorted(left) == ["enabledPlugins", "statusLine"]
    assert json.loads(place.state.read_text()) == {}
    assert any("plugin" in warning for warning in ran.json["warnings"])


def test_settings_are_as_they_were_also_when_the_plugin_came_in_between(place, run):
    fill(place)
    before = place.tree()
    run("install", "claude-code", "--yes")
    switched_on = b'"enabledPlugins": {"compactor@here": true}, "model"'
    place.write(place.settings, place.settings.read_bytes().replace(b'"model"', switched_on), 0o640)
    assert run("install", "claude-code", "--yes").code == 0
    assert b"compactor hook" not in place.settings.read_bytes()
    place.write(place.settings, place.settings.read_bytes().replace(switched_on, b'"model"'), 0o640)
    run("uninstall", "claude-code", "--yes")
    assert place.tree() == before


def test_a_file_that_holds_no_hooks_of_the_agent_may_have_any_other_use_of_the_word(place, run):
    before = place.write(place.state, '{"hooks": ["mine"]}', 0o600).read_bytes()
    assert run("install", "claude-code", "--yes").code == 0
    run("uninstall", "claude-code", "--yes")
    assert place.state.read_bytes() == before


def test_hooks_that_would_run_twice_are_pointed_out(place, run):
    run("install", "codex", "--user", "--yes")
    ran = run("install", "codex", "--project", "--yes", "--json")
    assert any("compactor uninstall codex --user" in warning for warning in ran.json["warnings"])


def test_reviews_that_codex_keeps_of_our_hooks_go_with_them(place, run):
    fill(place)
    before = place.tree()
    run("install", "codex", "--yes")
    hooks, config = (place.home / ".codex" / name for name in ("hooks.json", "config.toml"))
    state = f'\n[hooks.state]\n\n[hooks.state."{hooks}:session_start:0:0"]\ntrusted_hash = "sha256:0"\n'
    reviewed = f'\n[hooks.state."{hooks}:pre_compact:1:0"]\ntrusted_hash = "sha256:0"\n'
    config.write_text(config.read_text() + state + reviewed)
    run("uninstall", "codex", "--yes")
    assert place.tree() == before


def test_reviews_of_the_hooks_of_a_project_are_taken_from_the_settings_of_the_user(place, run):
    run("install", "codex", "--project", "--yes")
    hooks = place.project / ".codex" / "hooks.json"
    theirs = place.write(
        place.home / ".codex" / "config.toml",
        f'a = 1\n\n[hooks.state."{hooks}:pre_compact:0:0"]\ntrusted_hash = "sha256:0"\n',
    )
    ran = run("uninstall", "codex", "--project", "--yes")
    assert (ran.code, theirs.read_text()) == (0, "a = 1\n")


def test_a_hooks_file_that_codex_would_ignore_is_refused(place, run):
    place.write(place.home / ".codex" / "hooks.json", '{\n"$schema": "x",\n"hooks": {}}')
    ran = run("install", "codex", "--yes")
    assert ran.code == 2
    assert "line 2: the agent ignores the whole file because of the key '$schema'" in ran.err


def test_installs_at_the_same_time_register_everything_once(place):
    fill(place)
    running = [start("install", "claude-code", "--yes", "--json") for _ in range(4)]
    said = [each.communicate() for each in running]
    assert [each.returncode for each in running] == [0, 0, 0, 0], said
    settings = json.loads(place.settings.read_text(encoding="utf-8-sig"))
    counted = {event: len(groups) for event, groups in settings["hooks"].items()}
    assert counted == {hook.event: 1 for hook in CLAUDE_CODE.hooks}
    statuses = [each["status"] for out, _ in said for each in json.loads(out)["files"]]
    once = 2 + len(mod_files(BY_NAME))
    assert (statuses.count("changed"), statuses.count("unchanged")) == (2, 3 * once)


def test_one_document_says_what_was_done_and_how_to_take_it_back(place, run):
    ran = run("install", "claude-code", "--yes", "--json")
    found = ran.json
    assert (found["agent"], found["scope"], found["dry_run"]) == ("claude-code", "user", False)
    assert {each["status"] for each in found["files"]} == {"created"}
    assert found["files"][1]["registered"] == ["MCP server: compactor"]
    assert found["undo"] == "compactor uninstall claude-code --user"
    assert found["next"]
    assert ran.err == ""


@pytest.mark.parametrize("arguments", [("nobody",), ("codex", "--user", "--project")])
def test_a_wrong_use_is_refused_with_what_to_try(place, run, arguments):
    ran = run("install", *arguments, "--yes")
    assert ran.code == 2
    assert "Try: " in ran.err


def test_an_uninstall_where_nothing_was_installed_says_so(place, run):
    fill(place)
    before = place.tree()
    ran = run("uninstall", "claude-code")
    assert (ran.code, place.tree()) == (0, before)
    assert "no entry of compactor" in ran.out
