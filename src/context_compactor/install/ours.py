"""Which entries of an agent's settings are ours: known by what they run, so that no list of them is needed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

SERVER = "compactor"
_PROGRAM = "compactor"
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def is_our_hook(hook: Any) -> bool:
    """Whether one hook of an agent's settings runs `compactor hook`."""
    return _runs(hook, "hook")


def is_our_status_line(value: Any) -> bool:
    """Whether a status line is drawn by `compactor statusline`."""
    return _runs(value, "statusline")


def is_our_server(value: Any) -> bool:
    """Whether an MCP server is `compactor mcp`."""
    if not isinstance(value, dict):
        return False
    command, arguments = value.get("command"), value.get("args")
    return (
        isinstance(command, str)
        and Path(command).name == _PROGRAM
        and isinstance(arguments, list)
        and arguments[:1] == ["mcp"]
    )


def _runs(value: Any, verb: str) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("command"), str):
        return False
    try:
        words = shlex.split(value["command"])
    except ValueError:
        return False
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    return len(words) > 1 and Path(words[0]).name == _PROGRAM and words[1] == verb
