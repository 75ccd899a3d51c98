"""Which files of an agent hold what of ours, for one user or for one project."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.agents.known import CLAUDE_CODE, CODEX, Agent
from context_compactor.errors import CompactorError
from context_compactor.install.changes import read_file
from context_compactor.install.homes import home_of
from context_compactor.install.jsonsettings import JsonSettings, has_other_status_line, our_hooks
from context_compactor.install.jsonspots import BadSettingsText, check_json, value_at
from context_compactor.install.ours import SERVER
from context_compactor.install.program import Command
from context_compactor.install.tomlsettings import TomlSettings
from context_compactor.install.tomlspots import read_toml
from context_compactor.install.wanted import hook_groups, mcp_server, status_line

BOM = b"\xef\xbb\xbf"
_CODEX_KEYS = frozenset({"description", "hooks"})
_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


class Target(Struct, frozen=True):
    """A settings file, and what it shall hold. `path` is as people know it; a link is followed when it is written."""

    path: Path
    settings: JsonSettings | TomlSettings
    is_private: bool = False

    @property
    def registers(self) -> bool:
        """Whether something of ours may be written into it; from others only what an agent says about us is removed."""
        return not isinstance(self.settings, TomlSettings) or self.settings.server is not None


class Place(Struct, frozen=True):
    """Whose settings: those of the user, or those of the project in `root`. `env` are environment variables."""

    env: Mapping[str, str]
    root: Path
    is_project: bool

    @property
    def claude_folder(self) -> Path:
        """Where Claude Code keeps the user's settings."""
        told = self.env.get("CLAUDE_CONFIG_DIR", "")
        return Path(told).absolute() if told else home_of(self.env) / ".claude"

    @property
    def codex_folder(self) -> Path:
        """Where Codex keeps the user's settings."""
        told = self.env.get("CODEX_HOME", "")
        return Path(told).absolute() if told else home_of(self.env) / ".codex"


def targets(agent: Agent, place: Place, command: Command) -> list[Target]:
    """The files of one agent."""
    return _claude_code(place, command) if agent is CLAUDE_CODE else _codex(place, command)


def _claude_code(place: Place, command: Command) -> list[Target]:
    brought = has_plugin(place)
    draws = place.is_project and has_other_status_line(peek(place.claude_folder / "settings.json"))
    settings = JsonSettings(
        hooks={} if brought else hook_groups(CLAUDE_CODE, command), status_line={} if draws else status_line(command)
    )
    server = JsonSettings(server={} if brought else mcp_server(CLAUDE_CODE, command))
    if place.is_project:
        return [Target(claude_settings(place), settings), Target(place.root / ".mcp.json", server)]
    return [Target(claude_settings(place), settings), Target(_claude_state(place), server, is_private=True)]


def _codex(place: Place, command: Command) -> list[Target]:
    folder = place.root / ".codex" if place.is_project else place.codex_folder
    hooks = folder / "hooks.json"
    trusted = _trusted(hooks)
    found = [
        Target(hooks, JsonSettings(hooks=hook_groups(CODEX, command), only_keys=_CODEX_KEYS)),
        Target(folder / "config.toml", TomlSettings(mcp_server(CODEX, command), trusted)),
    ]
    if place.is_project and trusted:  # what a user thinks of a project's hooks is kept with the user
        found.append(Target(place.codex_folder / "config.toml", TomlSettings(None, trusted)))
    return found


def claude_settings(place: Place) -> Path:
    """Where Claude Code reads hooks."""
    return (place.root / ".claude" if place.is_project else place.claude_folder) / "settings.json"


def has_plugin(place: Place) -> bool:
    """Whether our plugin is switched on in these settings of Claude Code: it brings the hooks and the server itself."""
    plugins = value_at(peek(claude_settings(place)), ("enabledPlugins",))
    return isinstance(plugins, dict) and any(
        name.split("@")[0] == SERVER and is_on is not False for name, is_on in plugins.items()
    )


def peek(path: Path) -> str:
    """A JSON file that is only looked at: an empty object where it cannot be read."""
    try:
        text = decoded(read_file(path) or b"")
        check_json(text)
    except CompactorError:
        return "{}"
    return text


def peek_toml(path: Path) -> dict[str, Any]:
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
        raise BadSettingsText(line, "this is not UTF-8. Try: save it as UTF-8, then again.") from error


def _claude_state(place: Place) -> Path:
    old = place.claude_folder / ".config.json"
    if old.exists():
        return old
    return (place.claude_folder if place.env.get("CLAUDE_CONFIG_DIR") else home_of(place.env)) / ".claude.json"


def _trusted(hooks: Path) -> tuple[str, ...]:
    """The names under which Codex keeps in config.toml that our hooks were reviewed."""
    groups = value_at(peek(hooks), ("hooks",))
    return tuple(
        f"{path}:{_HUMP.sub('_', event).lower()}:{number}:{place}"
        for path in sorted({str(hooks), os.path.realpath(hooks)})
        for event, found in (groups.items() if isinstance(groups, dict) else ())
        for number, place in our_hooks(found)
    )
