"""Which command an agent is told to run."""

from __future__ import annotations

import os
import shutil
import sysconfig
import tempfile
from pathlib import Path

from context_compactor.errors import BadSetting

NAME = "compactor"
_CACHES = ("/uv/archive-v", "/uv/builds-v", "/pipx/.cache/")


def own_program(started_as: str) -> str:
    """The whole path of the script that runs now, so that it is found from any shell. A link to it stays a link."""
    beside = Path(sysconfig.get_path("scripts")) / NAME
    named = shutil.which(started_as) if Path(started_as).name == NAME else None
    found = Path(named) if named else beside
    if not found.is_file():
        raise BadSetting(f"there is no program {found}. Try: install the package with pip, pipx or uv, then again.")
    path = str(found.absolute())
    if not path.isprintable() or "\ufffd" in os.fsencode(path).decode("utf-8", "replace"):
        raise BadSetting(f"{path!r} cannot be written into settings. Try: install the package into another folder.")
    return path


def is_fleeting(path: str) -> bool:
    """Whether a program may be gone tomorrow: one in a cache or a temporary folder."""
    return any(cache in path for cache in _CACHES) or Path(path).is_relative_to(tempfile.gettempdir())


def is_on_path() -> bool:
    """Whether a shell finds the command by its name."""
    return shutil.which(NAME) is not None
