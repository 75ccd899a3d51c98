"""What an install or uninstall would change: the records of earlier installs, the plan, its diff, and notes for the
user."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import unified_diff
from itertools import takewhile
from pathlib import Path

import msgspec
from msgspec import Struct

from context_compactor.agents.coding_agents import CLAUDE_CODE, CODEX, OPENCODE, PI, CodingAgent
from context_compactor.agents.install.commands import BY_NAME, NAME, Command, home_of, is_on_path, is_temporary
from context_compactor.agents.install.files import FileChange, missing_folders, read_file
from context_compactor.agents.install.settings_files import (
    UNKNOWN,
    OwnFile,
    SettingsShape,
    has_other_prompt,
    has_other_status_line,
)
from context_compactor.agents.install.targets import (
    BOM,
    InstallScope,
    SettingsTarget,
    claude_settings,
    decoded,
    has_plugin,
    read_json_or_empty,
    read_toml_or_empty,
    steering_prompt,
    targets,
)
from context_compactor.agents.install.text_edits import BadSettingsText, value_at
from context_compactor.errors import BadSetting, CompactorError


class InstallRecord(Struct, frozen=True, omit_defaults=True):
    """One settings file. `before` is its SHA-256 without us, None where there was no file; we made `folders`."""

    path: str
    agent: str
    before: str | None
    shape: SettingsShape
    folders: tuple[str, ...] = ()


class InstallRecords:
    """The records, one file each, named by the settings file they are about."""

    def __init__(self, env: Mapping[str, str]) -> None:
        state = env.get("XDG_STATE_HOME", "")
        base = Path(state) if Path(state).is_absolute() else home_of(env) / ".local" / "state"
        self.folder = base / "compactor" / "installs"

    def file_of(self, path: Path) -> Path:
        """The file with the record of a settings file."""
        return self.folder / f"{digest(os.fsencode(path))[:32]}.json"

    def read(self, path: Path) -> InstallRecord | None:
        """The record of a settings file; None where there is none, or none that can be read."""
        try:
            return msgspec.json.decode(self.file_of(path).read_bytes(), type=InstallRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def files(self) -> set[Path]:
        """The files of all records."""
        return set(self.folder.glob("*.json"))


def digest(content: bytes) -> str:
    """The SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def encode_record(record: InstallRecord) -> bytes:
    """A record as it lies in its file."""
    return msgspec.json.format(msgspec.json.encode(record)) + b"\n"


class FilePlan(Struct, frozen=True):
    """One settings file: what changes in it and in its record, and which entries of ours it has before and after.

    `folders` were made by us and go when they are empty. `is_exact` says of an uninstall that the file becomes what it
    was, byte by byte.
    """

    path: Path
    change: FileChange
    record: FileChange
    was: tuple[str, ...]
    becomes: tuple[str, ...]
    folders: tuple[Path, ...] = ()
    is_exact: bool = False
    is_own_file: bool = False
    """Whether the file is wholly ours."""

    @property
    def is_changed(self) -> bool:
        """Whether the settings file itself is written."""
        return self.change.before != self.change.after

    @property
    def status(self) -> str:
        """What happens to the settings file: `unchanged`, `created`, `removed` or `changed`."""
        if not self.is_changed:
            return "unchanged"
        if self.change.before is None:
            return "created"
        return "removed" if self.change.after is None else "changed"


def plan_install(agent: CodingAgent, target: SettingsTarget, records: InstallRecords) -> FilePlan:
    """Add every entry of ours to a file, or bring those that are there up to date."""
    if isinstance(target.settings, OwnFile) and not target.settings.text:
        return plan_uninstall(target, records)
    path, content, record = _read_target(target, records)
    with _naming_file(target.path):
        base = _without(target, content, record)
        shape = target.settings.shape_of(decoded(base or b""))
        text = decoded(content or b"")
        after = _encoded(content, target.settings.with_ours(text, shape))
        becomes = tuple(target.settings.registered(decoded(after)))
    if after == (content or b""):
        change = FileChange(path, content, content)
        return FilePlan(target.path, change, _same(records, path), becomes, becomes, is_own_file=target.is_own_file)
    folders = record.folders if record else tuple(str(folder) for folder in missing_folders(path))
    new = InstallRecord(str(path), agent.name, None if base is None else digest(base), shape, folders)
    if _without(target, after, new) != base:
        raise CompactorError(f"{target.path}: the entries could not be removed again later, so nothing was changed")
    record_file = records.file_of(path)
    return FilePlan(
        target.path,
        FileChange(path, content, after, is_private=target.is_private and content is None),
        FileChange(record_file, read_file(record_file), encode_record(new), is_private=True),
        tuple(target.settings.registered(text)),
        becomes,
        is_own_file=target.is_own_file,
    )


def plan_uninstall(target: SettingsTarget, records: InstallRecords) -> FilePlan:
    """Remove every entry of ours from a file."""
    path, content, record = _read_target(target, records)
    with _naming_file(target.path):
        was = tuple(target.settings.registered(decoded(content or b"")))
        after = _without(target, content, record)
    change, known = FileChange(path, content, after), _same(records, path)
    if not target.registers:
        return FilePlan(target.path, change, known, was, ())
    return FilePlan(
        target.path,
        change,
        FileChange(known.path, known.before, None),
        was,
        (),
        tuple(Path(folder) for folder in record.folders) if record else (),
        record is not None and record.before == (None if after is None else digest(after)),
        target.is_own_file,
    )


def _read_target(target: SettingsTarget, records: InstallRecords) -> tuple[Path, bytes | None, InstallRecord | None]:
    path = Path(os.path.realpath(target.path))
    content = read_file(path)
    with _naming_file(target.path):
        target.settings.check(decoded(content or b""))
    return path, content, records.read(path)


def _without(target: SettingsTarget, content: bytes | None, record: InstallRecord | None) -> bytes | None:
    """A file without anything of ours, None where there would be no file."""
    if content is None:
        return None
    before = decoded(content)
    text = target.settings.without_ours(before, record.shape if record else UNKNOWN)
    is_nothing = "".join(text.split()) in ("", "{}")
    was_nothing = target.is_own_file and text != before if record is None else record.before is None
    return None if is_nothing and was_nothing else _encoded(content, text)


def _encoded(like: bytes | None, text: str) -> bytes:
    return (BOM if like is not None and like.startswith(BOM) else b"") + text.encode()


def _same(records: InstallRecords, path: Path) -> FileChange:
    file = records.file_of(path)
    content = read_file(file)
    return FileChange(file, content, content)


@contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    try:
        yield
    except BadSettingsText as error:
        raise BadSetting(f"{path}, line {error.line}: {error.problem} Nothing was changed.") from error


_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_LONGEST_LINE = 300
_AROUND = 40
_NO_END = "\\ No newline at end of file"


def diff_lines(plan: FilePlan) -> Iterator[str]:
    """The lines of the diff of one settings file. Of a long line only what stands around the change is shown.

    Some programs write a whole file into one line, and there may be secrets in it. Of a file that is wholly ours only
    the length is told.
    """
    if plan.is_own_file:
        yield from _own_file_lines(plan)
        return
    before, after = _lines(plan.change.before), _lines(plan.change.after)
    name = str(plan.path)
    names = ("/dev/null" if plan.change.before is None else name, "/dev/null" if plan.change.after is None else name)
    lines = list(unified_diff(before, after, *names))
    for number, line in enumerate(lines):
        text = line.rstrip("\r\n")
        yield text if number < 2 else _short(text, _partner(lines, number))
        if not line.endswith("\n"):
            yield _NO_END


def _own_file_lines(plan: FilePlan) -> Iterator[str]:
    if plan.is_changed:
        content = plan.change.after if plan.change.after is not None else plan.change.before
        count = len(_lines(content))
        sign = "-" if plan.change.after is None else "+"
        yield f"{sign * 3} {plan.path} ({count:,} {'line' if count == 1 else 'lines'}, all ours)"


def _partner(lines: list[str], number: int) -> str:
    at = {"-": number + 1, "+": number - 1}.get(lines[number][0], number)
    found = lines[at].rstrip("\r\n") if 2 <= at < len(lines) else ""
    return found if {found[:1], lines[number][0]} == {"-", "+"} else ""


def _lines(content: bytes | None) -> list[str]:
    return _LINE.findall((content or b"").decode("utf-8", "replace"))


def _short(line: str, other: str) -> str:
    if len(line) <= _LONGEST_LINE:
        return line
    start = _in_common(line[1:], other[1:])
    end = _in_common(line[:start:-1], other[:start:-1])
    first, last = max(1, 1 + start - _AROUND), min(len(line), len(line) - end + _AROUND)
    shown = line[first:last] if other else f"{line[1 : 1 + _AROUND]} … {line[-_AROUND:]}"
    left = len(line) - len(shown)
    return f"{line[0]}{'… ' if first > 1 else ''}{shown}{' …' if last < len(line) else ''} ({left:,} more characters)"


def _in_common(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def warnings(agent: CodingAgent, scope: InstallScope, own: Command) -> Iterator[str]:
    """What the user may not expect, each with what to do about it. `own` is the command that is run now."""
    if scope.is_project and not is_on_path(scope.env):
        yield (
            f"`{NAME}` is not found on the PATH. On this machine {own[0]} is run instead; others who work in the "
            f"project need `{NAME}` on the PATH. Try: add its folder there."
        )
    if is_temporary(own) and not (scope.is_project and is_on_path(scope.env)):
        yield (
            f"{own[0]} may be gone tomorrow. Try: `uv tool install` or `pipx install` the package, then run this again."
        )
    yield from _WARNINGS[agent.name](scope)
    elsewhere = InstallScope(scope.env, scope.root, not scope.is_project)
    here, there = (targets(agent, each, BY_NAME)[0] for each in (scope, elsewhere))
    if here.path != there.path and _is_registered(there):
        undo = undo_command(agent, elsewhere)
        yield f"The hooks are registered with --{elsewhere.name} too, and would run twice. Try: `{undo}`."


def next_steps(agent: CodingAgent, scope: InstallScope) -> Iterator[str]:
    """What is left to do for the user."""
    yield from _NEXT_STEPS[agent.name](scope)


def _claude_code_steps(scope: InstallScope) -> Iterator[str]:
    yield "Start Claude Code again for the MCP server and the plugin. Hooks and status line reach running sessions too."
    if scope.is_project:
        yield "Approve the MCP server of .mcp.json when Claude Code asks for it."


def _codex_steps(scope: InstallScope) -> Iterator[str]:
    if scope.is_project:
        yield "Trust this project when Codex asks for it; only then are its .codex settings read."
    yield "Start `codex` in a terminal and trust the hooks when it asks (or later: /hooks, then t)."
    yield "Until then Codex runs none of them, and says nothing about it."


def _pi_steps(scope: InstallScope) -> Iterator[str]:
    if scope.is_project:
        yield "Trust this project when pi asks for it (/trust); only then are its .pi extensions loaded."
    yield "Type /reload in a pi that runs now, or start it again."


def _opencode_steps(_scope: InstallScope) -> Iterator[str]:
    yield "Start OpenCode again: it loads plugins when it starts."


_NEXT_STEPS = {
    CLAUDE_CODE.name: _claude_code_steps,
    CODEX.name: _codex_steps,
    PI.name: _pi_steps,
    OPENCODE.name: _opencode_steps,
}


def undo_command(agent: CodingAgent, scope: InstallScope) -> str:
    """The command that takes an install back."""
    return f"{NAME} uninstall {agent.name} --{scope.name}"


def _claude_code_warnings(scope: InstallScope) -> Iterator[str]:
    settings = read_json_or_empty(claude_settings(scope))
    if has_plugin(scope):
        yield "The plugin is switched on, and brings the hooks and the MCP server: only the status line is added here."
    seen = (settings, read_json_or_empty(scope.claude_folder / "settings.json"))
    if any(has_other_status_line(text) for text in seen):
        yield f"Your own status line stays. Try: call `{NAME} statusline` in it, which reads the same input."
    if any(value_at(text, ("disableAllHooks",)) is True for text in seen):
        yield "Hooks are switched off (disableAllHooks). Try: remove that setting."


def _codex_warnings(scope: InstallScope) -> Iterator[str]:
    hooks, config = (target.path for target in targets(CODEX, scope, BY_NAME)[:2])
    if (read_file(hooks) or b"").startswith(BOM):
        yield f"Codex ignores {hooks}, since it begins with a byte-order mark. Try: save it without one."
    features, inline = (read_toml_or_empty(config).get(name) for name in ("features", "hooks"))
    if isinstance(features, dict) and features.get("hooks") is False:
        yield "Hooks are switched off (features.hooks in config.toml). Try: remove that setting."
    if steering_prompt(scope) and has_other_prompt(read_toml_or_empty(config)):
        yield "Your own compact_prompt stays, so Codex is not asked for our format. Try: remove it and run this again."
    if isinstance(inline, dict) and set(inline) - {"state"}:
        yield "Codex will mention that hooks stand in config.toml and in hooks.json; both run."


def _no_warnings(_scope: InstallScope) -> Iterator[str]:
    return iter(())


_WARNINGS = {
    CLAUDE_CODE.name: _claude_code_warnings,
    CODEX.name: _codex_warnings,
    PI.name: _no_warnings,
    OPENCODE.name: _no_warnings,
}


def _is_registered(target: SettingsTarget) -> bool:
    try:
        content = read_file(Path(target.path)) or b""
        target.settings.check(decoded(content))
        return any("hooks" in found for found in target.settings.registered(decoded(content)))
    except CompactorError:
        return False
