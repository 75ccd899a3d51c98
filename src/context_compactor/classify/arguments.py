"""The arguments of a tool call, whatever the tool calls them."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from context_compactor.classify.shell_files import Lines

SHELL_TOOLS = frozenset(
    "bash shell exec execcommand shellcommand localshell executecommand runcommand runshellcommand runterminalcmd "
    "runterminalcommand runinterminal terminal executebash run cmd powershell runbash executeshell runshell".split()
)
# These put questions to the user.
ASKING_TOOLS = frozenset("askuserquestion askuser requestuserinput askfollowupquestion".split())
# Here `command` names an action, not a program.
EDITOR_TOOLS = frozenset("strreplaceeditor strreplacebasededittool texteditor editor".split())


_PATH_KEYS = (
    "file_path path filePath filename file target_file notebook_path absolute_path relative_path file_name "
    "AbsolutePath TargetFile".split()
)
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.MULTILINE)


def decode(arguments: str) -> dict[str, Any]:
    """A call's arguments as a dictionary; empty when they are no JSON object."""
    if arguments.lstrip()[:1] != "{":
        return {}
    try:
        values = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def command_in(tool: str, values: dict[str, Any], arguments: str) -> str | None:
    """The shell command among the arguments; for a shell tool without JSON the arguments themselves."""
    if tool in EDITOR_TOOLS:
        return None
    if not values:
        return arguments if tool in SHELL_TOOLS and arguments.lstrip()[:1] not in ("{", "") else None
    command = values.get("command", values.get("cmd"))
    if isinstance(command, list):
        words = [word for word in command if isinstance(word, str)]
        return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else " ".join(words) or None
    if command is None and tool in SHELL_TOOLS:
        command = values.get("script") or values.get("input")
    return command if isinstance(command, str) else None


def paths_in(values: dict[str, Any]) -> tuple[str, ...]:
    """The paths among the arguments, under any of the names that tools give them."""
    for key in _PATH_KEYS:
        value = values.get(key)
        if isinstance(value, str) and value:
            return (value,)
    several = values.get("paths") or values.get("files")
    if isinstance(several, list):
        return tuple(each for each in map(_path_in, several) if each)
    return ()


def _path_in(value: object) -> str:
    found = value.get("path") if isinstance(value, dict) else value
    return found if isinstance(found, str) else ""


def paths_patched(values: dict[str, Any], arguments: str) -> tuple[str, ...]:
    """The files that a patch names."""
    texts = [text for text in (values.get("input"), values.get("patch"), values.get("diff")) if isinstance(text, str)]
    found = _PATCHED.findall(texts[0] if texts else arguments)
    return tuple(dict.fromkeys((first or second).strip() for first, second in found))


def lines_in(values: dict[str, Any]) -> Lines | None:
    """The lines that a read asks for; None when it asks for all."""
    view = values.get("view_range") or values.get("line_range")
    if isinstance(view, list) and len(view) == 2:
        first, last = view
    else:
        first = _first_of(values, "offset", "start_line", "startLine", "line_start", "start_line_one_indexed")
        last = _first_of(values, "end_line", "endLine", "line_end", "end_line_one_indexed_inclusive")
        limit = values.get("limit")
        if last is None and isinstance(limit, int):
            last = (first if isinstance(first, int) and first > 0 else 1) + limit - 1
    if not isinstance(first, int) and not isinstance(last, int):
        return None
    start = max(first, 1) if isinstance(first, int) else 1
    return start, last if isinstance(last, int) and last >= start else None


def _first_of(values: dict[str, Any], *keys: str) -> Any:
    return next((values[key] for key in keys if values.get(key) is not None), None)


def objects_in(arguments: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects in a list among the arguments."""
    values = arguments.get(key)
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []
