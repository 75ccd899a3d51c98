"""Every settings file in which an agent finds hooks, and the hooks in it: ours and those of others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.agents.known import CLAUDE_CODE, CODEX, Agent
from context_compactor.errors import CompactorError
from context_compactor.install.changes import read_file
from context_compactor.install.doctor_case import Case
from context_compactor.install.jsonsettings import JsonSettings, our_hooks
from context_compactor.install.jsonspots import check_json, value_at
from context_compactor.install.ours import SERVER
from context_compactor.install.program import BY_NAME
from context_compactor.install.targets import BOM, Place, claude_settings, decoded, has_plugin, targets
from context_compactor.install.tomlspots import read_toml

PLUGIN = "plugin"
_NAMES = re.compile(r"[\w|-]+")


class Source(Struct, frozen=True):
    """A settings file. `values` is what stands in it, `problem` why the agent cannot use it."""

    agent: Agent
    scope: str
    path: Path
    values: Mapping[str, Any]
    problem: str = ""

    @property
    def hooks(self) -> Mapping[str, Any]:
        """The groups of hooks by event."""
        found = self.values.get("hooks")
        return found if isinstance(found, dict) else {}


class Registered(Struct, frozen=True):
    """One hook in a settings file: at `place` of group `number` of its event."""

    source: Source
    event: str
    matcher: str
    entry: Mapping[str, Any]
    number: int
    place: int
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


def sources(case: Case, agent: Agent) -> list[Source]:
    """The files of an agent that are there, each once."""
    found = _claude_code(case) if agent is CLAUDE_CODE else _codex(case)
    return list({os.path.realpath(each.path): each for each in reversed(list(found))}.values())[::-1]


def hooks_of(found: list[Source]) -> list[Registered]:
    """All hooks of some files, ours and others."""
    return [
        hook for source in found for event, groups in source.hooks.items() for hook in _hooks(source, event, groups)
    ]


def _hooks(source: Source, event: str, groups: Any) -> Iterator[Registered]:
    ours = set(our_hooks(groups))
    for number, group in enumerate(groups if isinstance(groups, list) else ()):
        entries = group.get("hooks") if isinstance(group, dict) else None
        for place, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                matcher = group.get("matcher")
                told = matcher if isinstance(matcher, str) else ""
                yield Registered(source, event, told, entry, number, place, (number, place) in ours)


def _claude_code(case: Case) -> Iterator[Source]:
    files = {
        "user": claude_settings(case.user),
        "project": claude_settings(case.project),
        "local": case.root / ".claude" / "settings.local.json",
    }
    for scope, path in files.items():
        if path.exists():
            yield _json_source(CLAUDE_CODE, scope, path)
    if has_plugin(case.user) or has_plugin(case.project):
        yield from (_json_source(CLAUDE_CODE, PLUGIN, path / "hooks" / "hooks.json") for path in plugin_folder(case))


def _codex(case: Case) -> Iterator[Source]:
    for place in (case.user, case.project):
        hooks, config = targets(CODEX, place, BY_NAME)[:2]
        if hooks.path.exists():
            only = hooks.settings.only_keys if isinstance(hooks.settings, JsonSettings) else None
            yield _json_source(CODEX, _scope(place), hooks.path, only)
        if config.path.exists():
            yield toml_source(CODEX, _scope(place), config.path)


def plugin_folder(case: Case) -> list[Path]:
    """Where Claude Code keeps its copy of our plugin: the newest one, if any."""
    found = case.user.claude_folder.glob(f"plugins/cache/*/{SERVER}/*")
    return sorted((path for path in found if path.is_dir()), key=lambda path: path.stat().st_mtime)[-1:]


def _json_source(agent: Agent, scope: str, path: Path, only: frozenset[str] | None = None) -> Source:
    """A settings file that is JSON. One that may have `only` some keys must be there whole, and begin with a brace."""
    try:
        content = read_file(path) or b""
        text = decoded(content)
        if only is None and not text.strip():
            return Source(agent, scope, path, {})
        check_json(text)
        values = value_at(text, ())
    except CompactorError as error:
        return Source(agent, scope, path, {}, str(error))
    return Source(agent, scope, path, values, "" if only is None else _ignored(content, values, only))


def _ignored(content: bytes, values: Mapping[str, Any], only: frozenset[str]) -> str:
    """Why an agent ignores a whole file that can be read."""
    if content.startswith(BOM):
        return "it begins with a byte-order mark, so the agent ignores it. Try: save it without one."
    unknown = sorted(set(values) - only)
    return f"because of {unknown[0]!r} the agent ignores all of it. Try: remove that key." if unknown else ""


def toml_source(agent: Agent, scope: str, path: Path) -> Source:
    """A settings file that is TOML."""
    try:
        return Source(agent, scope, path, read_toml(decoded(read_file(path) or b"")))
    except CompactorError as error:
        return Source(agent, scope, path, {}, str(error))


def _scope(place: Place) -> str:
    return "project" if place.is_project else "user"
