"""Chromium for tests: the one that `CHROMIUM` names, the system's own, else Debian's, installed where we may."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """The program, or None when there is none and it may not be installed."""
    return os.environ.get("CHROMIUM") or _found() or _installed()


def _found() -> str | None:
    return next((path for path in map(shutil.which, _NAMES) if path), None)


def _installed() -> str | None:
    """Only one of several test runs at once installs it; the others wait for that."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    with Path(tempfile.gettempdir(), "compactor-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _found():
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
                done = subprocess.run(
                    ["apt-get", "-qq", *arguments], env=quiet, check=False, capture_output=True, timeout=600
                )
                if done.returncode != 0:
                    return None
    return _found()
