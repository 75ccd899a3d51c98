"""Programs that tests need: the one that a variable names, the system's own, else Debian's, installed where we may."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest


def program(package: str, names: Sequence[str] = ()) -> str:
    """Where a program is that a package of Debian has, under any of these names. In CI no test is skipped for it."""
    variable = package.upper()
    found = os.environ.get(variable) or _found(names or [package]) or _installed(package, names or [package])
    if found is None:
        missing = f"{package} is needed. Try: apt-get install {package}, or {variable}=/path/of/it"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return found


def _found(names: Sequence[str]) -> str | None:
    return next((path for path in map(shutil.which, names) if path), None)


def _installed(package: str, names: Sequence[str]) -> str | None:
    """Only one of several test runs at once installs anything; the others wait for that."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    with Path(tempfile.gettempdir(), "compactor-apt-get.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _found(names):
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for arguments in (["update"], ["install", "--yes", "--no-install-recommends", package]):
                done = subprocess.run(
                    ["apt-get", "-qq", *arguments], env=quiet, check=False, capture_output=True, timeout=600
                )
                if done.returncode != 0:
                    return None
    return _found(names)
