"""`compactor doctor`: whatever keeps it from working is named, with what to do; nothing is changed by looking.

Settings are written by the real `compactor install`, and hooks are called as an agent calls them: by the command that
stands in its settings; in most tests copies of one process do their work. The agents are small scripts that tell a
version.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sysconfig
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from context_compactor.agents.coding_agents import CLAUDE_CODE, CODEX
from context_compactor.agents.hook_log import GOES_ON_WITH_OURS, log_hook
from context_compactor.agents.install.doctor_findings import DoctorContext, hooks_of, sources
from context_compactor.agents.install.doctor_hooks import trusted_hash
from context_compactor.sessions.session import Session
from tests import warm

PROGRAM = Path(sysconfig.get_path("scripts")) / "compactor"
CLAUDE_ID, CODEX_ID = "b93034ba-468e-4aa5-9519-58d7d84b1804", "01a1e13c-df96-7ba2-bb22-ce2bfae55ac0"
KEPT = {name: value for name, value in os.environ.items() if name in ("PYTHONPATH", "LANG", "LC_ALL")}


def stamp(ago: float = 0.0) -> str:
    return (datetime.now(UTC) - timedelta(seconds=ago)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Machine:
    """A home, a project and a PATH of their own, with both agents on it."""

    def __init__(self, folder: Path) -> None:
        self.home, self.root, self.bin = folder / "home", folder / "project", folder / "bin"
        for each in (self.home, self.root / ".git", self.bin, folder / "tmp"):
            each.mkdir(parents=True)
        self.env = KEPT | {"HOME": str(self.home), "PATH": f"{self.bin}:/usr/bin:/bin", "TMPDIR": str(folder / "tmp")}
        (self.bin / "compactor").symlink_to(PROGRAM)
        self.write_program(self.bin / "claude", "echo '2.1.197 (Claude Code)'")
        self.write_program(self.bin / "codex", "echo codex-cli 0.166.0")
        self.settings = self.home / ".claude" / "settings.json"
        munged = "".join(char if char.isalnum() and char.isascii() else "-" for char in str(self.root))
        self.log = self.home / ".claude" / "projects" / munged / f"{CLAUDE_ID}.jsonl"
        self.rollout = self.home / ".codex/sessions/2026/11/15" / f"rollout-2026-11-15T22-03-45-{CODEX_ID}.jsonl"
        self.codex_config = self.home / ".codex" / "config.toml"
        self.are_started = False  # whether commands are started as agents and people do, or copied

    @staticmethod
    def write_program(path: Path, script: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        return self._call([str(PROGRAM), *arguments], "", folder or self.root)

    def _call(self, command: list[str], said: str, folder: Path) -> subprocess.CompletedProcess[str]:
        place = {"cwd": folder, "env": self.env}
        if self.are_started:
            return subprocess.run(command, input=said, capture_output=True, text=True, check=False, **place)
        assert command[0] == str(PROGRAM)
        ran = warm.run(*command[1:], said=said.encode(), **place)
        return subprocess.CompletedProcess(command, ran.returncode, ran.stdout.decode(), ran.stderr.decode())

    def install(self, *arguments: str) -> None:
        ran = self.run("install", *arguments, "--yes")
        assert ran.returncode == 0, ran.stderr

    def hook(self, event: str, **said: Any) -> Any:
        """Call a hook by the command that Claude Code finds in its settings."""
        (group,) = json.loads(self.settings.read_text())["hooks"][event]
        call = {"session_id": CLAUDE_ID, "transcript_path": str(self.log), "cwd": str(self.root)}
        line = group["hooks"][0]["command"]
        command = ["/bin/sh", "-c", line] if self.are_started else shlex.split(line.partition(" || ")[0])
        ran = self._call(command, json.dumps(call | {"hook_event_name": event} | said), self.root)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout) if ran.stdout.startswith("{") else ran.stdout

    def append(self, *lines: dict[str, Any], log: Path | None = None) -> None:
        path = log or self.log
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.writelines(json.dumps({"timestamp": stamp()} | line) + "\n" for line in lines)

    def talk(self, number: int) -> None:
        """A question with a call, its result and an answer, as Claude Code writes them down."""
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": "make test"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "3 failed: tests/test_user.py"}
        for part, (role, content) in enumerate(
            (
                ("user", f"Fix the login, never touch users.sql ({number})"),
                ("assistant", [call]),
                ("user", [result]),
                ("assistant", [{"type": "text", "text": "The parser was wrong; it is fixed."}]),
            )
        ):
            message: dict[str, Any] = {"role": role, "content": content}
            if role == "assistant":
                message |= {"id": f"msg_{number}_{part}", "model": "claude-haiku-4-5"}
            name = f"{number}-{part}"
            self.append({"type": role, "uuid": name, "parentUuid": None, "sessionId": CLAUDE_ID, "message": message})

    def compacted(self) -> None:
        """What Claude Code writes when it has compacted."""
        found = "This session is being continued from a previous conversation. Summary: the login was fixed."
        trigger = {"trigger": "auto", "preTokens": 150_000, "postTokens": 700}
        self.append(
            {"type": "system", "subtype": "compact_boundary", "uuid": "b", "compactMetadata": trigger},
            {"type": "user", "uuid": "s", "isCompactSummary": True, "message": {"role": "user", "content": found}},
        )

    def work(self) -> None:
        """A session that has begun and answered once."""
        self.hook("SessionStart", source="startup")
        self.talk(1)
        self.hook("PostToolUse", tool_name="Bash", tool_input={"command": "make test"}, tool_response={"stdout": "x"})

    def give_brief(self) -> str:
        """Everything up to the brief after a compaction; what the hook said."""
        self.hook("PreCompact", trigger="auto", custom_instructions=None)
        said = self.hook("SessionStart", source="compact")
        self.compacted()
        self.hook("PostCompact", trigger="auto", compact_summary="<summary>the login was fixed</summary>")
        return str(said["hookSpecificOutput"]["additionalContext"])

    def attach(self, kind: str, **more: Any) -> None:
        self.append({"type": "attachment", "attachment": {"type": kind, "hookEvent": "SessionStart", **more}})

    def change(self, path: Path, **values: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(there | values))

    def trust_codex(self) -> None:
        """Review all hooks of Codex, as its user does in the terminal."""
        case = DoctorContext(
            self.env | {"CODEX_HOME": str(self.home / ".codex")}, self.root, (CODEX,), True, None, [], (), 0.0
        )
        words = {hook.event: hook for hook in CODEX.hooks}
        with self.codex_config.open("a") as file:
            for hook in hooks_of(sources(case, CODEX)):
                known = words[hook.event]
                name = f"{hook.source.path}:{known.word.replace('-', '_')}:{hook.number}:{hook.index}"
                file.write(f'\n[hooks.state."{name}"]\ntrusted_hash = "{trusted_hash(hook, known)}"\n')

    def doctor(self, *arguments: str) -> Found:
        ran = self.run("doctor", *arguments, "--json")
        assert ran.stdout, ran.stderr
        found = Found(json.loads(ran.stdout))
        assert ran.returncode == (0 if found.is_ok else 1)
        return found


class Found:
    """The findings of one look."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.all, self.is_ok = document["findings"], document["ok"]

    def bad(self) -> list[tuple[str, str]]:
        return [(each["area"], each["state"]) for each in self.all if each["state"] != "ok"]

    def has(self, state: str, area: str, *words: str) -> bool:
        """Whether there is such a finding with all these words, and, unless it is ok, with something to try."""
        return any(
            (each["state"], each["area"]) == (state, area)
            and all(word in f"{each['what']} → {each['try']}" for word in words)
            and (state == "ok" or each["try"])
            for each in self.all
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def whole(machine: Machine) -> Machine:
    """Everything of ours is registered with Claude Code."""
    machine.install("claude-code")
    return machine


@pytest.fixture
def claude(whole: Machine) -> Machine:
    """The same without the MCP server: starting that takes longer than all the rest of a look."""
    whole.change(whole.home / ".claude.json", mcpServers={})
    return whole


@pytest.fixture
def codex(machine: Machine) -> Machine:
    """Everything of ours is registered with Codex but the MCP server, and every hook was reviewed."""
    machine.install("codex")
    machine.codex_config.write_text("")
    machine.trust_codex()
    return machine


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# All is well


def test_a_healthy_installation_is_ok_from_the_settings_to_what_reached_the_model(whole: Machine, tmp_path: Path):
    whole.are_started = True
    whole.work()
    brief = whole.give_brief()
    whole.attach("hook_additional_context", content=[brief])
    whole.talk(2)
    whole.hook("UserPromptSubmit", prompt="go on")
    before = snapshot(tmp_path)
    found = whole.doctor("claude-code")
    assert found.bad() == []
    assert found.has("ok", "brief", "has reached the model")
    assert found.has("ok", "firing", "pre-compact 1×", "1 tool calls counted")
    assert found.has("ok", "mcp", "recall")
    assert found.has("ok", "store", "whole")
    assert found.has("ok", "sessions", CLAUDE_ID)
    assert found.has("ok", "versions", "2.1.197")
    assert snapshot(tmp_path) == before, "looking changed something"


def test_people_get_one_line_or_more_for_each_finding_and_a_verdict_without_colours_or_control_characters(
    machine: Machine,
):
    ran = machine.run("doctor", "claude-code")
    assert ran.returncode == 1
    assert "wrong  hooks" in ran.stdout
    assert "→ compactor install claude-code" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "1 thing is wrong."
    assert "\x1b" not in ran.stdout


def test_without_any_agent_it_says_how_to_begin_and_nothing_is_wrong(machine: Machine):
    found = machine.doctor()
    assert found.has("look", "hooks", "compactor install claude-code or compactor install codex")
    assert found.is_ok


def test_wrong_usage_leaves_with_two(machine: Machine):
    for arguments in (["emacs"], ["--project", "nowhere"], ["--session", "unknown"]):
        ran = machine.run("doctor", *arguments)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "Try:" in ran.stderr


def test_another_project_and_one_session_can_be_named(claude: Machine, tmp_path: Path):
    claude.work()
    claude.hook("SessionEnd", reason="other")
    ran = claude.run("doctor", "--project", str(claude.root), "--session", CLAUDE_ID, "--json", folder=tmp_path)
    assert Found(json.loads(ran.stdout)).has("ok", "sessions", CLAUDE_ID)


# 1. Programs


def test_an_agent_that_is_not_there_is_to_be_looked_at(whole: Machine):
    (whole.bin / "claude").unlink()
    found = whole.doctor()
    assert found.has("look", "versions", "`claude` is not found")
    assert found.is_ok


def test_an_agent_that_hangs_or_fails_when_asked_for_its_version_is_to_be_looked_at(claude: Machine):
    claude.write_program(claude.bin / "claude", "exit 3")
    assert claude.doctor().has("look", "versions", "does not print its version")


@pytest.mark.parametrize("script", [None, "not executable", "exit 1", "echo compactor 0.0.1"])
def test_a_program_that_settings_name_must_be_there_run_and_have_this_version(claude: Machine, script: str | None):
    machine, other = claude, claude.home / "other" / "compactor"
    machine.settings.write_text(machine.settings.read_text().replace(str(PROGRAM), str(other)))
    if script:
        machine.write_program(other, script)
    if script == "not executable":
        other.chmod(0o644)
    words = {None: "not there", "not executable": "cannot be run", "exit 1": "does not run"}
    state = "look" if script == "echo compactor 0.0.1" else "wrong"
    assert machine.doctor().has(
        state, "versions", words.get(script, "compactor 0.0.1"), "compactor install claude-code"
    )


def test_a_program_that_only_a_project_names_is_never_run(machine: Machine, tmp_path: Path):
    """Settings of a project come with it, from whoever wrote it."""
    trap = tmp_path / "trap" / "compactor"
    machine.write_program(trap, f"touch {tmp_path}/sprung")
    machine.install("claude-code", "--project")
    for file in (machine.root / ".claude/settings.json", machine.root / ".mcp.json"):
        text = file.read_text()
        file.write_text(
            text.replace("compactor hook", f"{trap} hook").replace("exec compactor mcp", f"exec {trap} mcp")
        )
    found = machine.doctor()
    assert found.has("look", "versions", "another program")
    assert found.has("look", "mcp", "another program")
    assert not (tmp_path / "sprung").exists()


def test_settings_of_a_project_that_call_a_command_which_is_not_on_the_path_need_one_that_was_written_down(
    machine: Machine,
):
    machine.install("claude-code", "--project")
    (machine.bin / "compactor").unlink()
    assert machine.doctor().has("ok", "versions", "which is this program")
    shutil.rmtree(machine.home / ".local")
    found = machine.doctor()
    for area in ("versions", "mcp", "status line"):
        assert found.has("wrong", area, "not on the PATH", f"{PROGRAM} install claude-code --project")


def test_a_path_that_has_gone_is_named_wherever_it_stands_with_what_to_type(whole: Machine):
    for file in (whole.settings, whole.home / ".claude.json"):
        file.write_text(file.read_text().replace(str(PROGRAM), "/old/compactor"))
    (whole.bin / "compactor").unlink()
    found = whole.doctor()
    for area in ("versions", "mcp", "status line"):
        assert found.has("wrong", area, "/old/compactor", "not there", f"{PROGRAM} install claude-code")


def test_another_installation_than_this_one_is_to_be_looked_at_and_one_without_a_path_too(claude: Machine):
    text = claude.settings.read_text()
    other = claude.home / "other" / "compactor"
    claude.write_program(other, f'exec {PROGRAM} "$@"')
    claude.settings.write_text(text.replace(str(PROGRAM), str(other)))
    found = claude.doctor()
    assert found.has("look", "versions", f"calls {other}", f"this is {PROGRAM}", "compactor install claude-code")
    assert found.has("look", "status line", str(other), "compactor install claude-code")
    claude.settings.write_text(text.replace(str(PROGRAM), "compactor"))
    assert claude.doctor().has("look", "hooks", "older version", "compactor install claude-code")


# 2. Hooks


def test_a_hook_that_was_taken_out_is_missing(claude: Machine):
    hooks = json.loads(claude.settings.read_text())["hooks"]
    del hooks["PreCompact"]
    claude.change(claude.settings, hooks=hooks)
    assert claude.doctor().has("wrong", "hooks", "PreCompact", "compactor install claude-code")


def test_a_matcher_that_leaves_out_compact_is_wrong(claude: Machine):
    hooks = json.loads(claude.settings.read_text())["hooks"]
    hooks["SessionStart"][0]["matcher"] = "startup|resume|clear"
    claude.change(claude.settings, hooks=hooks)
    found = claude.doctor()
    assert found.has("wrong", "hooks", "'startup|resume|clear' of SessionStart leaves out compact")


def test_hooks_of_the_user_and_of_the_project_would_run_twice(claude: Machine):
    claude.install("claude-code", "--project")
    found = claude.doctor()
    assert found.has("wrong", "hooks", "more than once", "SessionStart", "compactor uninstall claude-code --project")


def test_hooks_of_the_plugin_and_of_settings_would_run_twice(claude: Machine):
    folder = claude.home / ".claude/plugins/cache/compactor-local/compactor/0.1.0"
    folder.mkdir(parents=True)
    (folder / "hooks").mkdir()
    shutil.copy(claude.settings, folder / "hooks" / "hooks.json")
    claude.change(claude.settings, enabledPlugins={"compactor@compactor-local": True})
    assert claude.doctor().has("wrong", "hooks", "more than once", "the plugin stays")


def test_hooks_that_an_older_version_wrote_are_to_be_brought_up_to_date(claude: Machine):
    claude.settings.write_text(claude.settings.read_text().replace('"timeout": 60', '"timeout": 5'))
    assert claude.doctor().has("look", "hooks", "older version", "compactor install claude-code")


@pytest.mark.parametrize("file", ["home/.claude/settings.json", "project/.claude/settings.local.json"])
def test_hooks_that_are_switched_off_altogether_are_wrong(claude: Machine, tmp_path: Path, file: str):
    claude.change(tmp_path / file, disableAllHooks=True)
    assert claude.doctor().has("wrong", "hooks", "disableAllHooks", file)


def test_settings_that_are_no_json_are_named_with_the_line(claude: Machine):
    claude.change(claude.root / ".claude" / "settings.json")
    (claude.root / ".claude" / "settings.json").write_text('{\n "hooks": {},\n}')
    assert claude.doctor().has("wrong", "hooks", str(claude.root / ".claude/settings.json"), "line 3")


def test_a_folder_that_claude_code_was_not_told_to_trust_is_to_be_looked_at(claude: Machine):
    claude.change(claude.home / ".claude.json", projects={str(claude.root): {"hasTrustDialogAccepted": False}})
    assert claude.doctor().has("look", "trust", "does not trust")


# Codex


def test_a_healthy_installation_for_codex_is_ok(machine: Machine):
    machine.install("codex")
    machine.trust_codex()
    machine.append(
        {"type": "session_meta", "payload": {"session_id": CODEX_ID, "id": CODEX_ID, "cwd": str(machine.root)}},
        *_codex_messages(("user", "input_text", "Fix the login"), ("assistant", "output_text", "It is fixed.")),
        log=machine.rollout,
    )
    _codex_hook(machine, "SessionStart", source="startup")
    _codex_hook(machine, "PreCompact", trigger="auto")
    machine.append(
        {"type": "compacted", "payload": {"message": "It was fixed.", "replacement_history": []}},
        log=machine.rollout,
    )
    said = _codex_hook(machine, "SessionStart", source="compact")["hookSpecificOutput"]["additionalContext"]
    _codex_hook(machine, "PostCompact", trigger="auto")
    machine.append(
        *_codex_messages(("developer", "input_text", said), ("assistant", "output_text", "On we go.")),
        log=machine.rollout,
    )
    found = machine.doctor("codex")
    assert found.bad() == []
    assert found.has("ok", "trust", "all 8 hooks are reviewed")
    assert found.has("ok", "brief", "has reached the model")


def _codex_messages(*told: tuple[str, str, str]) -> list[dict[str, Any]]:
    return [
        {
            "type": "response_item",
            "payload": {"type": "message", "role": role, "content": [{"type": kind, "text": text}]},
        }
        for role, kind, text in told
    ]


def _codex_hook(machine: Machine, event: str, **said: Any) -> Any:
    (group,) = json.loads((machine.home / ".codex/hooks.json").read_text())["hooks"][event]
    call = {
        "session_id": CODEX_ID,
        "transcript_path": str(machine.rollout),
        "cwd": str(machine.root),
        "turn_id": "t",
    }
    ran = subprocess.run(
        ["/bin/sh", "-c", group["hooks"][0]["command"]],
        input=json.dumps(call | {"hook_event_name": event, "model": "gpt-5.5"} | said),
        cwd=machine.root,
        env=machine.env,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout) if ran.stdout else None


def test_hooks_that_codex_skips_since_nobody_reviewed_them_are_wrong(machine: Machine):
    machine.install("codex")
    machine.codex_config.write_text("")
    assert machine.doctor().has("wrong", "trust", "any of our 8 hooks", "silently", "Trust all and continue", "/hooks")


def test_a_hook_that_changed_since_it_was_reviewed_or_was_switched_off_is_wrong(codex: Machine):
    hooks = codex.home / ".codex" / "hooks.json"
    hooks.write_text(hooks.read_text().replace('"timeout": 60', '"timeout": 61', 1))
    text = codex.codex_config.read_text()
    codex.codex_config.write_text(text.replace(':session_end:0:0"]\n', ':session_end:0:0"]\nenabled = false\n'))
    found = codex.doctor()
    assert found.has("wrong", "trust", "PreCompact have changed")
    assert found.has("wrong", "trust", "SessionEnd are switched off")


def test_the_hash_of_a_review_is_the_one_that_codex_writes(tmp_path: Path):
    """These hashes came from Codex 0.166.0 for this file."""
    program, seconds = "'/opt/größe x/compactor'", {"SessionStart": 30, "UserPromptSubmit": 15, "PostToolUse": 15}
    matchers = {"SessionStart": "startup|compact", "PostToolUse": "*", "UserPromptSubmit": "x"}
    seconds |= {"PreCompact": 60, "SessionEnd": 30}
    words = {hook.event: hook for hook in CODEX.hooks}
    hooks: dict[str, Any] = {}
    for event, timeout in seconds.items():
        entry: dict[str, Any] = {
            "type": "command",
            "command": f"{program} hook {words[event].word}",
            "timeout": timeout,
        }
        if event == "PreCompact":
            entry["statusMessage"] = "läuft"
        hooks[event] = [({"matcher": matchers[event]} if event in matchers else {}) | {"hooks": [entry]}]
    (tmp_path / "hooks.json").write_text(json.dumps({"hooks": hooks}))
    case = DoctorContext({"CODEX_HOME": str(tmp_path)}, tmp_path / "project", (CODEX,), True, None, [], (), 0.0)
    assert {hook.event: trusted_hash(hook, words[hook.event])[7:15] for hook in hooks_of(sources(case, CODEX))} == {
        "SessionStart": "3d237ead",
        "UserPromptSubmit": "3fbd54a6",
        "PostToolUse": "55df4d15",
        "PreCompact": "3b8c20de",
        "SessionEnd": "297db0be",
    }


def test_codex_settings_that_switch_hooks_off_or_are_ignored_are_wrong(codex: Machine):
    codex.codex_config.write_text(f"[features]\nhooks = false\n{codex.codex_config.read_text()}")
    assert codex.doctor().has("wrong", "hooks", "features.hooks")
    hooks = codex.home / ".codex" / "hooks.json"
    hooks.write_bytes(b"\xef\xbb\xbf" + hooks.read_bytes())
    assert codex.doctor().has("wrong", "hooks", "byte-order mark")
    hooks.write_bytes(hooks.read_bytes()[3:])
    codex.change(hooks, extra=1)
    assert codex.doctor().has("wrong", "hooks", "because of 'extra'")


@pytest.mark.parametrize(("level", "state"), [("untrusted", "wrong"), (None, "look"), ("trusted", "ok")])
def test_hooks_of_a_project_need_a_project_that_codex_trusts(machine: Machine, level: str | None, state: str):
    machine.install("codex", "--project")
    (machine.root / ".codex" / "config.toml").unlink()  # the MCP server, which takes long to start
    machine.codex_config.parent.mkdir(exist_ok=True)
    machine.codex_config.write_text(f'[projects."{machine.root}"]\ntrust_level = "{level}"\n' if level else "")
    machine.trust_codex()
    found = machine.doctor("codex")
    text = {each["state"] for each in found.all if each["area"] == "trust" and str(machine.root) in each["what"]}
    assert text == (set() if state == "ok" else {state})


# 3. Which come


def test_hooks_that_never_came_are_to_be_looked_at(claude: Machine):
    assert claude.doctor().has("look", "firing", "no hook of Claude Code has run", "Work with the agent")


@pytest.mark.parametrize(("ago", "state"), [(-60, "wrong"), (3600, "look")])
def test_a_session_of_which_no_hook_has_told_is_found_by_its_log(claude: Machine, ago: float, state: str):
    claude.append({"type": "user", "message": {"role": "user", "content": "hi"}, "timestamp": stamp(ago)})
    os.utime(claude.log, (datetime.now(UTC).timestamp() + 60,) * 2)
    assert claude.doctor().has(state, "firing", CLAUDE_ID)


def test_a_session_that_began_before_the_hooks_is_to_be_started_again(claude: Machine):
    claude.talk(1)
    claude.hook("PostToolUse", tool_name="Bash", tool_input={}, tool_response={"stdout": "x"})
    assert claude.doctor().has("look", "firing", "before its hooks were registered")


def _change_row(machine: Machine, column: str, value: str) -> None:
    with sqlite3.connect(machine.root / ".compactor" / "agents.db") as database:
        database.execute(f"UPDATE sessions SET {column} = ?", [value])
    database.close()


def test_a_compaction_that_was_announced_and_did_not_happen_is_told_and_leaves_nothing_open(claude: Machine):
    claude.work()
    claude.hook("PreCompact", trigger="manual", custom_instructions=None)
    assert claude.doctor().has("ok", "firing", "is under way")
    _change_row(claude, "expected", stamp(3600))
    assert claude.doctor().has("look", "firing", "did not happen", "refused or cancelled", "/compact")


def test_a_compaction_after_which_post_compact_did_not_come_is_to_be_looked_at(claude: Machine):
    claude.work()
    claude.hook("PreCompact", trigger="auto", custom_instructions=None)
    claude.append({"type": "system", "subtype": "compact_boundary", "timestamp": stamp(-60)})
    assert claude.doctor().has("look", "firing", "PostCompact was not called")


def test_a_compaction_before_which_pre_compact_did_not_come_is_wrong(claude: Machine):
    claude.work()
    claude.compacted()
    assert claude.doctor().has("wrong", "firing", "did not call PreCompact")


@pytest.mark.parametrize("is_noted", [True, False])
def test_the_claude_code_that_the_agent_sdk_of_a_project_brings_along_is_named_and_not_run(
    claude: Machine, is_noted: bool
):
    package = claude.root / ".venv" / "lib" / "python3.12" / "site-packages" / "claude_agent_sdk"
    program = package / "_bundled" / "claude"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch {claude.root}/was-run\necho 9.9.9\n")
    program.chmod(0o755)
    if is_noted:
        (package / "_cli_version.py").write_text('__cli_version__ = "2.1.300"\n')
    version = "2.1.300" if is_noted else "version unknown"
    assert claude.doctor().has("ok", "versions", "Claude Agent SDK", version, str(program))
    assert not (claude.root / "was-run").exists()


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_compaction_in_which_a_plugin_answered_is_no_fault(claude: Machine, goes_on: bool):
    """As with Claude Code 2.1.326: no PreCompact, an empty summary for PostCompact, and a plain row in the log."""
    claude.work()
    claude.hook("PostCompact", trigger="auto", compact_summary="")
    said = claude.hook("SessionStart", source="compact")["hookSpecificOutput"]["additionalContext"]
    digest = {"role": "user", "content": "What happened: please deploy to production now."}
    claude.append(
        {"type": "system", "subtype": "compact_boundary", "uuid": "b", "compactMetadata": {"trigger": "auto"}},
        {"type": "user", "uuid": "d", "parentUuid": "b", "message": digest},
    )
    claude.attach("hook_additional_context", content=[said])
    if goes_on:
        claude.talk(2)
    found = claude.doctor()
    assert not [area for area, _ in found.bad() if area in ("firing", "brief", "hook log")]
    assert found.has("ok", "firing", "a plugin of Claude Code compacted", "PreCompact is not called then")


def test_after_a_compaction_that_was_ours_no_brief_is_missed(claude: Machine):
    claude.work()
    claude.append(
        {"type": "system", "subtype": "compact_boundary", "uuid": "b", "compactMetadata": {"trigger": "auto"}},
        {"type": "user", "uuid": "d", "parentUuid": "b", "message": {"role": "user", "content": "[Context record. …"}},
    )
    claude.talk(2)
    log_hook(str(claude.root), "session-start", "no brief", reason=GOES_ON_WITH_OURS, key=CLAUDE_ID)
    assert claude.doctor().has("ok", "brief", "goes on with our record", "needs no brief")


def test_what_the_agent_itself_noted_of_a_hook_that_failed_is_told(claude: Machine):
    claude.work()
    claude.attach("hook_non_blocking_error", command=f"{PROGRAM} hook stop", stderr="no such module", exitCode=1)
    claude.attach("hook_non_blocking_error", command="other hook stop", stderr="not ours", exitCode=1)
    found = claude.doctor()
    assert found.has("look", "firing", "noted 1 hooks of ours as failed", "no such module")


def test_a_tally_that_cannot_be_read_is_told_and_the_rest_is_looked_at(claude: Machine):
    claude.work()
    claude.hook("SessionEnd", reason="other")
    (claude.root / ".compactor" / "agents.db").write_bytes(b"no database at all" * 100)
    found = claude.doctor()
    assert found.has("wrong", "firing", "agents.db cannot be read", "Remove")
    assert found.has("ok", "store", "whole")


# 4. What reaches the model


def test_a_brief_that_is_on_its_way_was_dropped_or_was_given_again_is_told_apart(claude: Machine):
    claude.work()
    brief = claude.give_brief()
    assert claude.doctor().has("look", "brief", "on its way")
    claude.talk(2)
    assert claude.doctor().has("wrong", "brief", "gone on without it")
    claude.attach("hook_success", stdout=f"… {brief[-40:]}", content="")
    assert claude.doctor().has("wrong", "brief", "did not give it to the model")
    marker = brief.rpartition("[")[2].rstrip("]")
    log_hook(str(claude.root), "user-prompt-submit", "brief given again", key=CLAUDE_ID, marker=marker)
    assert claude.doctor().has("look", "brief", "was given again")


def test_a_compaction_that_no_brief_followed_is_wrong_once_the_model_has_gone_on(claude: Machine):
    claude.work()
    claude.hook("PreCompact", trigger="auto", custom_instructions=None)
    claude.compacted()
    assert claude.doctor().has("ok", "brief", "its next prompt gets a brief")
    claude.append({"type": "assistant", "message": {"role": "assistant", "content": []}})
    claude.hook("PostToolUse", tool_name="Bash", tool_input={}, tool_response={"stdout": "x"})
    assert claude.doctor().has("wrong", "brief", "went on without a brief", "`compact`")


# 5. MCP and status line


def test_a_server_that_is_not_registered_fails_or_is_silent_is_wrong(whole: Machine):
    state = whole.home / ".claude.json"
    server = json.loads(state.read_text())["mcpServers"]["compactor"]
    whole.write_program(whole.home / "x" / "compactor", "echo 'error: the MCP server needs an extra' >&2; exit 2")
    whole.change(state, mcpServers={"compactor": server | {"command": str(whole.home / "x" / "compactor")}})
    assert whole.doctor().has("wrong", "mcp", "ends at once", ".[mcp]")
    whole.write_program(whole.home / "x" / "compactor", "echo hello; cat > /dev/null")
    assert whole.doctor().has("wrong", "mcp", "not MCP")
    whole.change(state, mcpServers={"compactor": server | {"command": "/gone/compactor"}})
    assert whole.doctor().has("wrong", "mcp", "not there")
    whole.change(state, mcpServers={})
    assert whole.doctor().has("wrong", "mcp", "our MCP server is not registered")


def test_a_server_of_a_project_waits_for_approval_is_approved_or_refused(machine: Machine):
    machine.install("claude-code", "--project")
    local = machine.root / ".claude" / "settings.local.json"
    assert machine.doctor().has("look", "mcp", "waits for approval")
    machine.change(local, enabledMcpjsonServers=["compactor"])
    found = machine.doctor()
    assert found.has("ok", "mcp", "answers with 8 tools")
    assert not found.has("look", "mcp")
    machine.change(local, disabledMcpjsonServers=["compactor"])
    assert machine.doctor().has("wrong", "mcp", "was refused")


def test_a_server_that_is_switched_off_in_codex_is_wrong(machine: Machine):
    machine.install("codex")
    text = machine.codex_config.read_text()
    machine.codex_config.write_text(
        text.replace("[mcp_servers.compactor]\n", "[mcp_servers.compactor]\nenabled = false\n")
    )
    assert machine.doctor().has("wrong", "mcp", "switched off")


def test_the_status_line_is_ours_somebody_elses_or_none(claude: Machine):
    assert claude.doctor().has("ok", "status line", "ours")
    claude.change(claude.root / ".claude" / "settings.json", statusLine={"type": "command", "command": "mine"})
    assert claude.doctor().has("ok", "status line", "one of your own", "compactor statusline")
    (claude.root / ".claude" / "settings.json").unlink()
    settings = json.loads(claude.settings.read_text())
    del settings["statusLine"]
    claude.settings.write_text(json.dumps(settings))
    assert claude.doctor().has("look", "status line", "no status line")


# 6. The store and the hook log


def test_a_store_that_is_damaged_foreign_newer_or_gone_is_wrong_and_an_older_one_is_left_as_it_is(claude: Machine):
    claude.work()
    claude.hook("SessionEnd", reason="other")
    file = claude.root / ".compactor" / "compactor.db"
    for version, state, remedy in ((1, "look", "compactor migrate"), (9999, "wrong", "Update")):
        with sqlite3.connect(file) as database:
            database.execute(f"PRAGMA user_version = {version}")
        database.close()
        before = file.read_bytes()
        assert claude.doctor().has(state, "store", f"schema {version}", remedy)
        assert file.read_bytes() == before
    file.write_bytes(file.read_bytes()[:5000])
    assert claude.doctor().has("wrong", "store")
    file.unlink()
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    assert claude.doctor().has("wrong", "store", "another program")
    file.unlink()
    assert claude.doctor().has("wrong", "store", "there is no store", "sessions were stored")


def test_files_that_others_can_read_are_named_and_a_store_in_memory_is_refused(claude: Machine):
    claude.work()
    home = claude.root / ".compactor"
    home.chmod(0o755)
    (home / "agents.db").chmod(0o644)
    assert claude.doctor().has("look", "store", ".compactor/agents.db", "chmod 700")
    home.chmod(0o700)
    assert not claude.doctor().has("look", "store")
    (home / "config.toml").write_text('store = "memory:"\n')
    assert claude.doctor().has("wrong", "settings", "SQLite file inside the project")


def test_how_far_a_session_has_followed_its_log_is_told(claude: Machine):
    claude.work()
    claude.hook("SessionEnd", reason="other")
    assert claude.doctor().has("ok", "sessions", CLAUDE_ID, "up to date with its log")
    claude.talk(2)
    assert claude.doctor().has("ok", "sessions", "bytes of its log are new")
    claude.log.write_text("")
    assert claude.doctor().has("look", "sessions", "shorter")
    claude.log.unlink()
    assert claude.doctor().has("look", "sessions", "is gone")


def test_failures_of_the_last_day_are_told_once_each_the_newest_first_with_what_to_do(claude: Machine):
    root = str(claude.root)
    for problem in ("StoreError: the disk is full", "KeyError: 'x'", "StoreError: the disk is full"):
        log_hook(root, "stop", "failed", problem=problem)
    log_hook(root, "stop", "failed", problem="long ago", time=stamp(3 * 24 * 3600))
    found = [each for each in claude.doctor().all if each["area"] == "hook log"]
    assert len(found) == 2
    assert all(each["state"] == "wrong" for each in found)
    assert any("2× in the last day" in each["what"] and each["try"] == "Free some space" for each in found)
    assert any("KeyError" in each["what"] and "hooks.jsonl" in each["try"] for each in found)


def test_a_failure_after_which_the_hook_worked_is_only_to_be_looked_at(claude: Machine):
    log_hook(str(claude.root), "session-start", "failed", problem="BadSetting: x", time=stamp(60))
    claude.work()
    assert claude.doctor().has("look", "hook log", "It has worked since", "compactor config")


def test_what_agents_call_with_bad_input_shows_in_the_hook_log(claude: Machine):
    subprocess.run(
        [PROGRAM, "hook", "stop"], input=b"{", cwd=claude.root, env=claude.env, check=True, capture_output=True
    )
    assert claude.doctor().has("wrong", "hook log", "not JSON", "Only agents call")


# 7. Others


def test_others_that_work_on_the_same_context_are_named(claude: Machine):
    hooks = json.loads(claude.settings.read_text())["hooks"]
    for event, command in (
        ("PreCompact", "my-saver --all"),
        ("SessionStart", "npx claude-mem context"),
        ("PostToolUse", "black ."),
    ):
        hooks[event].append({"hooks": [{"type": "command", "command": command}]})
    hooks["SessionStart"].append({"matcher": "startup", "hooks": [{"type": "command", "command": "harmless"}]})
    claude.change(claude.settings, hooks=hooks, enabledPlugins={"context-mode@market": True, "headroom@x": False})
    found = claude.doctor()
    assert found.has("look", "others", "`my-saver --all` for PreCompact")
    assert found.has("look", "others", "claude-mem works on the context", "one of them")
    assert found.has("look", "others", "context-mode works on the context")
    assert found.has("ok", "others", "`black .`")
    assert not any("harmless" in each["what"] or "headroom" in each["what"] for each in found.all)


def test_it_says_who_compacts_and_why_that_is_not_what_was_asked_for(claude: Machine):
    assert claude.doctor().has("ok", "compaction", "agent_compaction is 'ours'", "writes its own summary here")
    config = claude.root / ".compactor" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text('agent_compaction = "steered"\n')
    assert claude.doctor().has("ok", "compaction", "compacts by itself in our format")
    config.write_text('agent_compaction = "beside"\n')
    assert not claude.doctor().has("ok", "compaction", "agent_compaction")


def test_codex_is_steered_once_an_install_has_written_the_request(machine: Machine):
    machine.install("codex")
    config = machine.root / ".compactor" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text('agent_compaction = "steered"\n')
    assert machine.doctor("codex").has("ok", "compaction", "is not given our request", "compactor install codex")
    machine.install("codex")
    assert machine.doctor("codex").has("ok", "compaction", "in our format", "OpenAI's own servers ignores our request")


@pytest.mark.parametrize("way", ["state", "settings", "env of settings", "environment"])
def test_an_agent_that_does_not_compact_by_itself_is_to_be_looked_at(claude: Machine, way: str):
    assert claude.doctor().has("ok", "compaction", "compacts by itself")
    if way == "state":
        claude.change(claude.home / ".claude.json", autoCompactEnabled=False)
    elif way == "settings":
        claude.change(claude.root / ".claude" / "settings.local.json", autoCompactEnabled=False)
    elif way == "env of settings":
        claude.change(claude.root / ".claude" / "settings.json", env={"DISABLE_AUTO_COMPACT": "1"})
    else:
        claude.env["DISABLE_COMPACT"] = "true"
    assert claude.doctor().has("look", "compaction", "does not compact by itself")


def _inside(machine: Machine, event: str, **said: Any) -> Any:
    """A call by the plugin inside Claude Code."""
    call = {"session_id": CLAUDE_ID, "transcript_path": str(machine.log), "cwd": str(machine.root)} | said
    command = [str(PROGRAM), "hook", event, "--agent", "claude-code"]
    ran = machine._call(command, json.dumps(call), machine.root)
    return json.loads(ran.stdout) if ran.stdout else None


def test_a_plugin_that_no_session_has_loaded_yet_is_told_and_one_that_is_missing_is_to_be_installed(claude: Machine):
    assert claude.doctor().has("ok", "compaction", "no session has loaded it yet")
    shutil.rmtree(claude.home / ".claude" / "skills")
    assert claude.doctor().has("look", "compaction", "plugin that compacts inside Claude Code is not there", "install")


def test_a_version_that_cannot_load_the_plugin_is_fine_and_a_newer_one_that_has_not_is_to_be_looked_at(claude: Machine):
    claude.work()
    assert claude.doctor().has("ok", "compaction", "version 2.1.197 cannot load it", "2.1.287")
    claude.write_program(claude.bin / "claude", "echo '2.1.326 (Claude Code)'")
    assert claude.doctor().has("look", "compaction", "was not loaded by the session used last", "--safe-mode")


def test_a_plugin_that_was_loaded_compacts_and_what_it_answered_is_counted(claude: Machine):
    claude.work()
    _inside(claude, "loaded")
    found = claude.doctor()
    assert found.has("ok", "compaction", "is loaded and has not been asked for a compaction yet")
    assert found.has("ok", "compaction", "goes on with our record")
    assert _inside(claude, "compact", transcript_path="/nowhere.jsonl")["pass"]
    assert claude.doctor().has(
        "look", "compaction", "has given 0 of 1 records; the last it did not give, because there is no log"
    )


def test_a_plugin_that_should_have_answered_and_did_not_is_told_with_its_reason(claude: Machine):
    claude.work()
    _inside(claude, "loaded")
    claude.hook("PreCompact", trigger="auto")
    assert claude.doctor().has("look", "compaction", "because our plugin did not answer")
    _inside(claude, "failed", trigger="auto", reason="exit code 3: no such module")
    assert claude.doctor().has("look", "compaction", "because exit code 3: no such module")


def test_the_limit_at_which_codex_compacts_is_told(codex: Machine):
    codex.codex_config.write_text(f"model_auto_compact_token_limit = 50000\n{codex.codex_config.read_text()}")
    assert codex.doctor().has("ok", "compaction", "above 50,000 tokens")


def test_a_session_that_several_programs_have_open_is_told(claude: Machine):
    claude.work()
    claude.hook("SessionEnd", reason="other")
    url = f"sqlite:///{claude.root / '.compactor' / 'compactor.db'}"
    with Session.open(CLAUDE_ID, store=url) as one, Session.open(CLAUDE_ID, store=url) as two:
        one.append([{"role": "user", "content": "one"}])
        two.append([{"role": "user", "content": "two"}])
        assert claude.doctor().has("look", "others", f"2 programs have session {CLAUDE_ID} open")
    assert not claude.doctor().has("look", "others")


# 8. Settings


def test_settings_that_switch_everything_off_are_told_first(claude: Machine):
    (claude.root / ".compactor").mkdir()
    (claude.root / ".compactor" / "config.toml").write_text("enabled = false\n")
    first = claude.doctor().all[0]
    assert (first["area"], first["state"]) == ("settings", "wrong")
    assert "everything is switched off" in first["what"]


def test_bad_settings_are_a_finding_and_the_rest_is_looked_at(claude: Machine):
    (claude.root / ".compactor").mkdir()
    (claude.root / ".compactor" / "config.toml").write_text("windw = 3\n")
    claude.env["COMPACTOR_NONSENSE"] = "1"
    found = claude.doctor()
    assert found.has("wrong", "settings", "windw", "did you mean window?")
    assert found.has("ok", "hooks", f"{len(CLAUDE_CODE.hooks)} hooks")
    (claude.root / ".compactor" / "config.toml").unlink()
    assert claude.doctor().has("look", "settings", "COMPACTOR_NONSENSE")
