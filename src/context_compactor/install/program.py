"""Which command an agent is told to run, and where it is written down for settings that name it without a path."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from context_compactor.errors import BadSetting
from context_compactor.install.homes import home_of

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
    beside = (os.path.join(sysconfig.get_path("scripts", scheme), NAME) for scheme in schemes)  # noqa: PTH118
    found = named or next((path for path in beside if is_program(path)), None)
    program = found or sys.executable
    if not program:
        raise BadSetting(
            "there is no script `compactor` and no Python to run it. Try: install the package, then again."
        )
    path = str(Path(program).absolute())
    if not path.isprintable() or "\ufffd" in os.fsencode(path).decode("utf-8", "replace"):
        raise BadSetting(f"{path!r} cannot be written into settings. Try: install the package into another folder.")
    return (path,) if found else (path, "-P", "-m", MODULE)


def is_program(path: str) -> bool:
    """Whether there is a file that can be run."""
    return Path(path).is_file() and os.access(path, os.X_OK)


def is_fleeting(command: Command) -> bool:
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


def launched(env: Mapping[str, str]) -> Command | None:
    """The command in that script; None where there is none."""
    try:
        words = shlex.split(launcher(env).read_text(encoding="utf-8").partition("\n")[2])
    except (OSError, ValueError, BadSetting):
        return None
    return tuple(words[1:-1]) if words[:1] == ["exec"] and len(words) > 2 else None
