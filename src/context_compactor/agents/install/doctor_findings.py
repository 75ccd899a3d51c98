"""What the doctor's checks share: the project they look at, a finding, and every settings file with hooks in it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from context_compactor.agents.coding_agents import CLAUDE_CODE, CODEX, CodingAgent
from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.install.commands import BY_NAME, SERVER, Command
from context_compactor.agents.install.files import read_file
from context_compactor.agents.install.settings_files import JsonSettings, our_hooks
from context_compactor.agents.install.targets import (
    BOM,
    InstallScope,
    claude_settings,
    decoded,
    extension_command,
    has_plugin,
    targets,
)
from context_compactor.agents.install.text_edits import check_json, read_toml, value_at
from context_compactor.errors import CompactorError
from context_compactor.settings import Settings

State = Literal["ok", "look", "wrong"]


class Finding(Struct, frozen=True):
    """What was found in one area, and what to do about it. `look` is for what may well be meant so."""

    area: str
    state: State
    what: str
    remedy: str = field(default="", name="try")


def ok(what: str, remedy: str = "", area: str = "") -> Finding:
    """Nothing to do. Without an area a finding gets that of its check."""
    return Finding(area, "ok", what, remedy)


def look(what: str, remedy: str = "", area: str = "") -> Finding:
    """Something that a person should know of."""
    return Finding(area, "look", what, remedy)


def wrong(what: str, remedy: str, area: str = "") -> Finding:
    """Something that does not work."""
    return Finding(area, "wrong", what, remedy)


def moment(seconds: float) -> str:
    """A time for people, in UTC and to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


class DoctorContext(Struct, frozen=True):
    """A project in `root`, seen with the environment `env`.

    With `is_named` somebody has asked for just this agent. `settings` are None when they cannot be read. `rows` are
    what hooks know of the sessions that are looked at, the one used last first; `command` runs this program.
    """

    env: Mapping[str, str]
    root: Path
    agents: tuple[CodingAgent, ...]
    is_named: bool
    settings: Settings | None
    rows: list[AgentSessionRow]
    command: Command
    now: float

    @property
    def user(self) -> InstallScope:
        """The user's own settings."""
        return InstallScope(self.env, self.root, is_project=False)

    @property
    def project(self) -> InstallScope:
        """The settings of the project."""
        return InstallScope(self.env, self.root, is_project=True)

    def rows_of(self, agent: CodingAgent) -> list[AgentSessionRow]:
        """What is known of the sessions of an agent itself; sub-agents are left out."""
        return [row for row in self.rows if row.agent == agent.name and "/" not in row.key]


PLUGIN = "plugin"
_NAMES = re.compile(r"[\w|-]+")


class SettingsSource(Struct, frozen=True):
    """A settings file. `values` is its content, `problem` why the agent cannot use it."""

    scope: str
    path: Path
    values: Mapping[str, Any]
    problem: str = ""

    @property
    def hooks(self) -> Mapping[str, Any]:
        """The groups of hooks by event."""
        return table_at(self.values, "hooks")


class RegisteredHook(Struct, frozen=True):
    """One hook in a settings file: at `index` of group `number` of its event."""

    source: SettingsSource
    event: str
    matcher: str
    entry: Mapping[str, Any]
    number: int
    index: int
    is_ours: bool

    @property
    def command(self) -> str:
        """What it runs, or what it is where it runs nothing."""
        return str(self.entry.get("command") or self.entry.get("type") or "?")

    def matches(self, value: str) -> bool:
        """Whether it is called for a tool, a source or a trigger of this name."""
        if self.matcher in ("", "*"):
            return True
        if _NAMES.fullmatch(self.matcher):
            return value in self.matcher.split("|")
        try:
            return re.search(self.matcher, value) is not None
        except re.error:
            return False


def sources(ctx: DoctorContext, agent: CodingAgent) -> list[SettingsSource]:
    """The files of an agent that are there, each once."""
    settings = _claude_code(ctx) if agent is CLAUDE_CODE else _codex(ctx)
    found = _extensions(ctx, agent) if agent.extension else settings
    return list({os.path.realpath(each.path): each for each in reversed(list(found))}.values())[::-1]


def our_hooks_of(ctx: DoctorContext, agent: CodingAgent) -> list[RegisteredHook]:
    """Our own hooks in the settings of an agent."""
    return [hook for hook in hooks_of(sources(ctx, agent)) if hook.is_ours]


def hooks_of(found: list[SettingsSource]) -> list[RegisteredHook]:
    """All hooks of some files, ours and others."""
    return [
        hook for source in found for event, groups in source.hooks.items() for hook in _hooks(source, event, groups)
    ]


def _hooks(source: SettingsSource, event: str, groups: Any) -> Iterator[RegisteredHook]:
    ours = set(our_hooks(groups))
    for number, group in enumerate(groups if isinstance(groups, list) else ()):
        entries = group.get("hooks") if isinstance(group, dict) else None
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                matcher = group.get("matcher")
                matcher = matcher if isinstance(matcher, str) else ""
                yield RegisteredHook(source, event, matcher, entry, number, index, (number, index) in ours)


def _claude_code(ctx: DoctorContext) -> Iterator[SettingsSource]:
    files = {
        "user": claude_settings(ctx.user),
        "project": claude_settings(ctx.project),
        "local": ctx.root / ".claude" / "settings.local.json",
    }
    for scope, path in files.items():
        if path.exists():
            yield _json_source(scope, path)
    if has_plugin(ctx.user) or has_plugin(ctx.project):
        yield from (_json_source(PLUGIN, path / "hooks" / "hooks.json") for path in plugin_folder(ctx))


def _codex(ctx: DoctorContext) -> Iterator[SettingsSource]:
    for scope in (ctx.user, ctx.project):
        hooks, config = targets(CODEX, scope, BY_NAME)[:2]
        if hooks.path.exists():
            only = hooks.settings.only_keys if isinstance(hooks.settings, JsonSettings) else None
            yield _json_source(scope.name, hooks.path, only)
        if config.path.exists():
            yield _toml_source(scope.name, config.path)


def _extensions(ctx: DoctorContext, agent: CodingAgent) -> Iterator[SettingsSource]:
    """Our extensions of an agent, with what they register in the form in which other agents have it in settings."""
    for scope in (ctx.user, ctx.project):
        target = targets(agent, scope, BY_NAME)[0]
        try:
            text = decoded(read_file(target.path) or b"")
        except CompactorError as error:
            yield SettingsSource(scope.name, target.path, {}, str(error))
            continue
        if not target.settings.registered(text):
            continue
        command = extension_command(text)
        if command is None:
            yield SettingsSource(scope.name, target.path, {}, "it names no command. Try: install it again.")
            continue
        hooks = {
            hook.event: [{"hooks": [{"type": "command", "command": shlex.join((*command, "hook", hook.word))}]}]
            for hook in agent.hooks
        }
        server = {"command": command[0], "args": [*command[1:], "mcp"]}
        yield SettingsSource(scope.name, target.path, {"hooks": hooks, "mcp_servers": {SERVER: server}})


def table_at(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The table under these names; empty where there is none."""
    for name in names:
        found = values.get(name)
        values = found if isinstance(found, dict) else {}
    return dict(values)


def plugin_folder(ctx: DoctorContext) -> list[Path]:
    """Where Claude Code keeps its copy of our plugin: the newest one, if any."""
    found = ctx.user.claude_folder.glob(f"plugins/cache/*/{SERVER}/*")
    return sorted((path for path in found if path.is_dir()), key=lambda path: path.stat().st_mtime)[-1:]


def _json_source(scope: str, path: Path, only: frozenset[str] | None = None) -> SettingsSource:
    """A settings file that is JSON. One that may have `only` some keys must be there whole, and begin with a brace."""
    try:
        content = read_file(path) or b""
        text = decoded(content)
        if only is None and not text.strip():
            return SettingsSource(scope, path, {})
        check_json(text)
        values = value_at(text, ())
    except CompactorError as error:
        return SettingsSource(scope, path, {}, str(error))
    return SettingsSource(scope, path, values, "" if only is None else _ignored(content, values, only))


def _ignored(content: bytes, values: Mapping[str, Any], only: frozenset[str]) -> str:
    if content.startswith(BOM):
        return "it begins with a byte-order mark, so the agent ignores it. Try: save it without one."
    unknown = sorted(set(values) - only)
    return f"because of {unknown[0]!r} the agent ignores all of it. Try: remove that key." if unknown else ""


def _toml_source(scope: str, path: Path) -> SettingsSource:
    try:
        return SettingsSource(scope, path, read_toml(decoded(read_file(path) or b"")))
    except CompactorError as error:
        return SettingsSource(scope, path, {}, str(error))
