"""Which command an agent is told to run, and which entries of its settings are ours."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from context_compactor.errors import BadSetting


def home_of(env: Mapping[str, str]) -> Path:
    """The user's home; `BadSetting` when the environment names none."""
    home = env.get("HOME", "")
    if not Path(home).is_absolute() or not Path(home).is_dir():
        raise BadSetting(f"HOME is {home!r:.100}, which is not a folder. Try: set HOME to your home folder.")
    return Path(home)


NAME = "compactor"
MODULE = "context_compactor"
Command = tuple[str, ...]
"""The words that start this program; arguments follow them."""
BY_NAME: Command = (NAME,)
LAUNCHER_FOLDER = f".local/state/{NAME}/bin"
"""Below the home, whatever XDG_STATE_HOME says: the same shell line has to find it for everybody."""
_CACHES = ("/uv/archive-v", "/uv/builds-v", "/pipx/.cache/")


def own_command(started_as: str) -> Command:
    """The command that runs now, by its whole path, so that it is found from any shell.

    A link to the script stays a link: pipx and uv change what is behind it. Where there is no script, Python is told to
    run the package. With `-P` it takes no module from the folder it is started in, which may be anybody's project.
    """
    named = shutil.which(started_as) if Path(started_as).name == NAME else None
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    beside = (os.path.join(sysconfig.get_path("scripts", scheme), NAME) for scheme in schemes)
    found = named or next((path for path in beside if is_program(path)), None)
    program = found or sys.executable
    if not program:
        raise BadSetting("there is no script `compactor` and no Python to run it. Try: install the package first.")
    path = str(Path(program).absolute())
    if not path.isprintable() or "\ufffd" in os.fsencode(path).decode("utf-8", "replace"):
        raise BadSetting(f"{path!r} cannot be written into settings. Try: install the package into another folder.")
    return (path,) if found else (path, "-P", "-m", MODULE)


def is_program(path: str) -> bool:
    """Whether there is a file that can be run."""
    return Path(path).is_file() and os.access(path, os.X_OK)


def is_temporary(command: Command) -> bool:
    """Whether a program may be gone tomorrow: one in a cache or a temporary folder."""
    path = command[0]
    return any(cache in path for cache in _CACHES) or Path(path).is_relative_to(tempfile.gettempdir())


def is_on_path(env: Mapping[str, str]) -> bool:
    """Whether a shell finds the command by its name."""
    return shutil.which(NAME, path=env.get("PATH")) is not None


def launcher(env: Mapping[str, str]) -> Path:
    """The script by which settings without a path find the command that the last install on this machine was run by."""
    return home_of(env) / LAUNCHER_FOLDER / NAME


def launcher_text(command: Command) -> bytes:
    """What stands in that script."""
    return f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'.encode()


def launcher_command(env: Mapping[str, str]) -> Command | None:
    """The command in that script; None where there is none."""
    try:
        words = shlex.split(launcher(env).read_text(encoding="utf-8").partition("\n")[2])
    except (OSError, ValueError, BadSetting):
        return None
    return tuple(words[1:-1]) if words[:1] == ["exec"] and len(words) > 2 else None


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
