"""Nothing that is committed names the machine it was written on or a package registry."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

_REGISTRY = re.compile(r"(?:pypi\.org|pythonhosted\.org|/pypi/simple|/simple/[a-z]|(?:extra-)?index-url\s*[=:])")
_SKIP = ("tests/data/", "tools/checks/tracked.py")


def problems() -> list[str]:
    """Each line that names a place it should not."""
    return [problem for path in _files() for problem in in_file(path)]


def _files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=False
    )
    names = [name for name in listed.stdout.splitlines() if not name.startswith(_SKIP)]
    return [Path(name) for name in names if Path(name).is_file()]


def in_file(path: Path) -> Iterator[str]:
    """The lines of one file that name a place they should not."""
    content = path.read_bytes()
    if b"\0" in content or content.startswith(b"\x1f\x8b"):
        return
    places = _places()
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        if _REGISTRY.search(line):
            yield f"{path}:{number}: names a package registry"
        if any(place in line for place in places):
            yield f"{path}:{number}: names a folder of this machine"


def _places() -> list[str]:
    folders = (Path.cwd().parent, Path.home())
    return [f"{folder}/" for folder in folders if folder != folder.parent]
