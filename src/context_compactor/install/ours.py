"""Which entries of an agent's settings are ours: known by what they run, so that no list of them is needed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from context_compactor.install.program import MODULE, NAME, Command

SERVER = "compactor"
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_AS_MODULE = ["-P", "-m", MODULE]


def is_our_hook(hook: Any) -> bool:
    """Whether one hook of an agent's settings runs `compactor hook`."""
    return hook_command(hook) is not None


def is_our_status_line(value: Any) -> bool:
    """Whether a status line is drawn by `compactor statusline`."""
    return status_line_command(value) is not None


def is_our_server(value: Any) -> bool:
    """Whether an MCP server is `compactor mcp`."""
    return server_command(value) is not None


def hook_command(hook: Any) -> Command | None:
    """The command by which a hook of ours starts this program; None for any other hook."""
    return _command(_shell_words(hook), "hook")


def status_line_command(value: Any) -> Command | None:
    """The command by which a status line of ours starts this program; None for any other."""
    return _command(_shell_words(value), "statusline")


def server_command(value: Any) -> Command | None:
    """The command by which an MCP server of ours starts this program; None for any other server."""
    return _command(_server_words(value), "mcp")


def server_arguments(value: Any) -> list[str]:
    """What follows that command in an MCP server of ours."""
    words = _server_words(value)
    return words[len(server_command(value) or ()) :]


def _command(words: list[str], verb: str) -> Command | None:
    """The command that some words begin with, if this verb follows it."""
    is_module = words[1 : 1 + len(_AS_MODULE)] == _AS_MODULE
    if not words or not (is_module or Path(words[0]).name == NAME):
        return None
    length = 1 + len(_AS_MODULE) if is_module else 1
    return tuple(words[:length]) if words[length : length + 1] == [verb] else None


def _shell_words(value: Any) -> list[str]:
    line = value.get("command") if isinstance(value, dict) else None
    return _started(line) if isinstance(line, str) else []


def _server_words(value: Any) -> list[str]:
    """The words of an MCP server, which is a list of words or a line for a shell."""
    command, arguments = (value.get("command"), value.get("args")) if isinstance(value, dict) else (None, None)
    if not isinstance(command, str) or not isinstance(arguments, list):
        return []
    words = [command, *map(str, arguments)]
    return _started(words[2]) if words[:2] == ["sh", "-c"] and len(words) == 3 else words


def _started(line: str) -> list[str]:
    """The words of a shell line, without variables that are set before the first command."""
    try:
        words = shlex.split(line)
    except ValueError:
        return []
    while words and (_ASSIGNMENT.match(words[0]) or words[0] == "exec"):
        words = words[1:]
    return words
