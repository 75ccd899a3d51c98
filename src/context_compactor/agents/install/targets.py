"""Which files of an agent hold which of our entries, for one user or for one project."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.agents.coding_agents import CLAUDE_CODE, CODEX, OPENCODE, PI, CodingAgent, HookEvent
from context_compactor.agents.install.commands import BY_NAME, LAUNCHER_FOLDER, SERVER, Command, home_of
from context_compactor.agents.install.files import read_file
from context_compactor.agents.install.settings_files import (
    JsonSettings,
    OwnFile,
    TomlSettings,
    has_other_status_line,
    our_hooks,
)
from context_compactor.agents.install.text_edits import BadSettingsText, check_json, read_toml, value_at
from context_compactor.agents.paths import HOME, MOD_FOLDER
from context_compactor.agents.steering import steering_request
from context_compactor.errors import BadSetting, CompactorError
from context_compactor.settings import load_settings

_FIRST = "session-start"
_FOUND_LATER = f'PATH="$PATH:$HOME/{LAUNCHER_FOLDER}"'
"""Behind everything on the PATH: the command that the last install on this machine was run by."""


def hook_groups(agent: CodingAgent, command: Command) -> dict[str, Mapping[str, Any]]:
    """For each event the group of hooks that runs this command, as the agent's settings have it."""
    return {hook.event: _hook_group(agent, hook, command) for hook in agent.hooks}


def mcp_server(agent: CodingAgent, command: Command) -> dict[str, Any]:
    """The MCP server, as the agent's settings have it. Of one that does not start, agents tell their user."""
    if command == BY_NAME:
        server = {"command": "sh", "args": ["-c", f"{_FOUND_LATER} exec {shlex.join(command)} mcp"]}
    else:
        server = {"command": command[0], "args": [*command[1:], "mcp"]}
    return {"type": "stdio", **server} if agent is CLAUDE_CODE else server


def status_line(command: Command) -> dict[str, Any]:
    """The status line, which only Claude Code has."""
    return {"type": "command", "command": _shell_line(command, "statusline", _missing(CLAUDE_CODE, command))}


def _hook_group(agent: CodingAgent, hook: HookEvent, command: Command) -> dict[str, Any]:
    matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
    message = {"systemMessage": _missing(agent, command)}
    fallback = json.dumps(message, ensure_ascii=False) if hook.word == _FIRST else ""
    line = _shell_line(command, f"hook {hook.word}", fallback)
    return {**matcher, "hooks": [{"type": "command", "command": line, "timeout": hook.timeout}]}


def _shell_line(command: Command, arguments: str, otherwise: str) -> str:
    """A line that any shell runs; when the command does not run, what is printed instead."""
    before = f"{_FOUND_LATER} " if command == BY_NAME else ""
    fallback = f"printf '%s\\n' {shlex.quote(otherwise)}" if otherwise else "true"
    return f"{before}{shlex.join(command)} {arguments} || {fallback}"


def _missing(agent: CodingAgent, command: Command) -> str:
    return (
        f"Context Compactor does not run, so nothing is archived: {' '.join(command)} is not there, or broken. "
        f"Try: install the package again, then compactor install {agent.name}"
    )


BOM = b"\xef\xbb\xbf"
_CODEX_KEYS = frozenset({"description", "hooks"})
_CAMEL_CASE = re.compile(r"(?<!^)(?=[A-Z])")


class SettingsTarget(Struct, frozen=True):
    """A settings file, and what it shall hold. `path` is as people know it; a link is followed when it is written."""

    path: Path
    settings: JsonSettings | TomlSettings | OwnFile
    is_private: bool = False

    @property
    def is_own_file(self) -> bool:
        """Whether all of the file is ours, so that nothing is left of it without us."""
        return isinstance(self.settings, OwnFile)

    @property
    def registers(self) -> bool:
        """Whether something of ours may be written into it; from others only what an agent says about us is removed."""
        return not isinstance(self.settings, TomlSettings) or self.settings.server is not None


class InstallScope(Struct, frozen=True):
    """Whose settings: those of the user, or those of the project in `root`. `env` are environment variables."""

    env: Mapping[str, str]
    root: Path
    is_project: bool

    @property
    def name(self) -> str:
        """What users call it."""
        return "project" if self.is_project else "user"

    @property
    def claude_folder(self) -> Path:
        """Where Claude Code keeps the user's settings."""
        configured = self.env.get("CLAUDE_CONFIG_DIR", "")
        return Path(configured).absolute() if configured else home_of(self.env) / ".claude"

    @property
    def codex_folder(self) -> Path:
        """Where Codex keeps the user's settings."""
        configured = self.env.get("CODEX_HOME", "")
        return Path(configured).absolute() if configured else home_of(self.env) / ".codex"

    @property
    def pi_folder(self) -> Path:
        """Where pi keeps the settings of the user, or those of the project."""
        configured = self.env.get("PI_CODING_AGENT_DIR", "")
        if self.is_project:
            return self.root / ".pi"
        return Path(configured).expanduser().absolute() if configured else home_of(self.env) / ".pi" / "agent"

    @property
    def opencode_folder(self) -> Path:
        """Where OpenCode keeps the settings of the user, or those of the project."""
        configured = self.env.get("XDG_CONFIG_HOME", "")
        if self.is_project:
            return self.root / ".opencode"
        return (Path(configured) if Path(configured).is_absolute() else home_of(self.env) / ".config") / "opencode"


def targets(agent: CodingAgent, scope: InstallScope, command: Command) -> list[SettingsTarget]:
    """The files of one agent."""
    return _TARGETS[agent.name](scope, command)


_COMMAND_LINE = 'const COMMAND = ["compactor"];'
_EXTENSION_COMMAND = re.compile(r"^const COMMAND = (\[.*\]);$", re.MULTILINE)
EXTENSION = "extension with hooks and MCP server"


def extension_text(agent: CodingAgent, command: Command) -> str:
    """The extension of an agent, which runs this command, in one file."""
    folder = Path(__file__).parents[1] / "extensions"
    own, shared = ((folder / name).read_text(encoding="utf-8") for name in (agent.extension, "shared.js"))
    line = f"const COMMAND = {json.dumps(command, ensure_ascii=False)};"
    return f"{own.replace(_COMMAND_LINE, line)}\n{shared}"


def extension_command(text: str) -> Command | None:
    """The command that an extension of ours runs; None where there is none."""
    found = _EXTENSION_COMMAND.search(text)
    try:
        words = json.loads(found[1]) if found else []
    except ValueError:
        return None
    return tuple(words) if words and all(isinstance(word, str) for word in words) else None


def _pi(scope: InstallScope, command: Command) -> list[SettingsTarget]:
    path = scope.pi_folder / "extensions" / "compactor.js"
    return [SettingsTarget(path, OwnFile(extension_text(PI, command), EXTENSION))]


def _opencode(scope: InstallScope, command: Command) -> list[SettingsTarget]:
    path = scope.opencode_folder / "plugins" / "compactor.js"
    return [SettingsTarget(path, OwnFile(extension_text(OPENCODE, command), EXTENSION))]


_MOD_WRITTEN = "Written by `compactor install claude-code`, which also removes it."
_MOD_HOOKS = {"description": _MOD_WRITTEN, "hooks": {}, "modules": ["./register.js"]}
"""Versions that know no modules want `hooks`; those that stand in the settings are not repeated here."""


def mod_files(command: Command) -> dict[str, str]:
    """The plugin that compacts inside Claude Code, as files of its folder; it runs this command."""
    plugin = Path(__file__).parents[2] / "plugin"
    manifest = json.loads((plugin / ".claude-plugin/plugin.json").read_text(encoding="utf-8"))
    described = {"name": manifest["name"], "description": f"{_MOD_WRITTEN} {manifest['description']}"}
    run = (plugin / "hooks/command.js").read_text(encoding="utf-8")
    if command != BY_NAME:
        run = f"export const COMMAND = {json.dumps(command)}\n"
    module = (plugin / "hooks/register.js").read_text(encoding="utf-8")
    skills = {
        f"skills/{path.parent.name}/SKILL.md": path.read_text(encoding="utf-8").replace(
            "---\n", f"---\n# {_MOD_WRITTEN}\n", 1
        )
        for path in sorted((plugin / "skills").glob("*/SKILL.md"))
    }
    return {
        ".claude-plugin/plugin.json": f"{json.dumps(described | manifest | described)}\n",
        "hooks/hooks.json": f"{json.dumps(_MOD_HOOKS)}\n",
        "hooks/register.js": f"// {_MOD_WRITTEN}\n{module}",
        "hooks/command.js": f"// {_MOD_WRITTEN}\n{run}",
        **skills,
    }


def mod_folder(scope: InstallScope) -> Path:
    """Where the plugin lies that an install brings."""
    return claude_settings(scope).parent / MOD_FOLDER


def _mod_targets(scope: InstallScope, command: Command, *, is_wanted: bool) -> list[SettingsTarget]:
    folder = Path(os.path.realpath(mod_folder(scope)))
    if scope.is_project and not folder.is_relative_to(os.path.realpath(scope.root)):
        raise BadSetting(f"{mod_folder(scope)} leads out of the project, to {folder}. Try: remove that link.")
    return [
        SettingsTarget(mod_folder(scope) / name, OwnFile(text if is_wanted else "", "plugin that compacts"))
        for name, text in mod_files(command).items()
    ]


def _claude_code(scope: InstallScope, command: Command) -> list[SettingsTarget]:
    brought = has_plugin(scope)
    mod = _mod_targets(scope, command, is_wanted=not brought)
    draws = scope.is_project and has_other_status_line(read_json_or_empty(scope.claude_folder / "settings.json"))
    settings = JsonSettings(
        hooks={} if brought else hook_groups(CLAUDE_CODE, command), status_line={} if draws else status_line(command)
    )
    server = JsonSettings(server={} if brought else mcp_server(CLAUDE_CODE, command))
    if scope.is_project:
        return [
            SettingsTarget(claude_settings(scope), settings),
            SettingsTarget(scope.root / ".mcp.json", server),
            *mod,
        ]
    return [
        SettingsTarget(claude_settings(scope), settings),
        SettingsTarget(_claude_state(scope), server, is_private=True),
        *mod,
    ]


def _codex(scope: InstallScope, command: Command) -> list[SettingsTarget]:
    folder = scope.root / ".codex" if scope.is_project else scope.codex_folder
    hooks = folder / "hooks.json"
    trusted = _trusted(hooks)
    found = [
        SettingsTarget(hooks, JsonSettings(hooks=hook_groups(CODEX, command), only_keys=_CODEX_KEYS)),
        SettingsTarget(
            folder / "config.toml", TomlSettings(mcp_server(CODEX, command), trusted, steering_prompt(scope))
        ),
    ]
    if scope.is_project and trusted:  # what a user thinks of a project's hooks is kept with the user
        found.append(SettingsTarget(scope.codex_folder / "config.toml", TomlSettings(None, trusted)))
    return found


def steering_prompt(scope: InstallScope) -> str:
    """By which request Codex shall ask for summaries; none unless the settings that hold here want it steered.

    It is configuration, so it has no facts of a session.
    """
    config = scope.root / HOME / "config.toml"
    try:
        settings = load_settings(env=scope.env, config_path=config if config.is_file() else None).settings
    except BadSetting:
        return ""
    return steering_request((), settings.agent_record_tokens) if settings.agent_compaction == "steered" else ""


_TARGETS = {CLAUDE_CODE.name: _claude_code, CODEX.name: _codex, PI.name: _pi, OPENCODE.name: _opencode}


def claude_settings(scope: InstallScope) -> Path:
    """Where Claude Code reads hooks."""
    return (scope.root / ".claude" if scope.is_project else scope.claude_folder) / "settings.json"


def has_plugin(scope: InstallScope) -> bool:
    """Whether our plugin is switched on in these settings of Claude Code: it brings the hooks and the server itself."""
    plugins = value_at(read_json_or_empty(claude_settings(scope)), ("enabledPlugins",))
    return isinstance(plugins, dict) and any(
        name.split("@")[0] == SERVER and is_on is not False for name, is_on in plugins.items()
    )


def read_json_or_empty(path: Path) -> str:
    """A JSON file that is only looked at: an empty object where it cannot be read."""
    try:
        text = decoded(read_file(path) or b"")
        check_json(text)
    except CompactorError:
        return "{}"
    return text


def read_toml_or_empty(path: Path) -> dict[str, Any]:
    """A TOML file that is only looked at: nothing where it cannot be read."""
    try:
        return read_toml(decoded(read_file(path) or b""))
    except CompactorError:
        return {}


def decoded(content: bytes) -> str:
    """Settings as text, without the mark that some editors begin a file with."""
    try:
        return content.removeprefix(BOM).decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadSettingsText(line, "this is not UTF-8. Try: save it as UTF-8.") from error


def _claude_state(scope: InstallScope) -> Path:
    old = scope.claude_folder / ".config.json"
    if old.exists():
        return old
    return (scope.claude_folder if scope.env.get("CLAUDE_CONFIG_DIR") else home_of(scope.env)) / ".claude.json"


def _trusted(hooks: Path) -> tuple[str, ...]:
    """The names under which Codex keeps in config.toml that our hooks were reviewed."""
    groups = value_at(read_json_or_empty(hooks), ("hooks",))
    return tuple(
        f"{path}:{_CAMEL_CASE.sub('_', event).lower()}:{number}:{index}"
        for path in sorted({str(hooks), os.path.realpath(hooks)})
        for event, found in (groups.items() if isinstance(groups, dict) else ())
        for number, index in our_hooks(found)
    )
