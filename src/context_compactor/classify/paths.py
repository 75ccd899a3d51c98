"""One spelling for each file: paths made absolute with the folder an agent works in, as far as it tells."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence

from context_compactor.classify.calls import Reading
from context_compactor.messages.turn import Turn

_FOLDER = re.compile(r"<cwd>\s{0,4}([^<\n]{1,400}?)\s{0,4}</cwd>|\b[Ww]orking directory: (/[^\n]{1,400})")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_MOST_TEXT = 40_000


def first_folder(turns: Sequence[Turn]) -> str:
    """The folder that is named in the text before an agent's first steps; empty when none is."""
    for turn in turns[:8]:
        for message in turn.messages:
            text = message.text[:_MOST_TEXT] if message.role != "assistant" else ""
            found = _FOLDER.search(text) if "cwd>" in text or "orking directory" in text else None
            if found:
                return (found[1] or found[2]).strip()
    return ""


def folder_of(reading: Reading, folder: str) -> str:
    """The folder a call works in, when the one before it worked in `folder`."""
    named = reading.arguments.get("workdir") or reading.arguments.get("cwd")
    if isinstance(named, str) and named.startswith("/"):
        folder = named
    first = reading.steps[0].words if reading.steps else ()
    return absolute(first[1], folder) if len(first) == 2 and first[0] == "cd" else folder


def absolute(path: str, folder: str) -> str:
    """A path without dots, joined to its folder when it is relative."""
    if _DRIVE.match(path):
        path = path.replace("\\", "/")
    elif folder and not path.startswith(("/", "~")):
        path = posixpath.join(folder, path)
    return posixpath.normpath(path) if path else path


def full_names(paths: Iterable[str]) -> dict[str, str]:
    """For each path the one absolute path that ends in it, or itself when there is none or more than one."""
    known = dict.fromkeys(paths)
    by_name: dict[str, list[str]] = {}
    for path in known:
        if path.startswith("/"):
            by_name.setdefault(posixpath.basename(path), []).append(path)
    return {path: _full_name(path, by_name.get(posixpath.basename(path), ())) for path in known}


def _full_name(path: str, candidates: Sequence[str]) -> str:
    if path.startswith(("/", "~")):
        return path
    fitting = [each for each in candidates if each.endswith(f"/{path}")]
    return fitting[0] if len(fitting) == 1 else path


def common_root(paths: Sequence[str], share: float = 0.6) -> str:
    """The deepest folder that holds most of the paths, with its slash; empty when there is none below two levels."""
    counts: dict[str, int] = {}
    for path in paths:
        folders = path.split("/")[:-1]
        for depth in range(3, len(folders) + 1):
            folder = "/".join(folders[:depth]) + "/"
            counts[folder] = counts.get(folder, 0) + 1
    common = [folder for folder, count in counts.items() if count >= share * len(paths)]
    return max(common, key=len) if common else ""


def shown_from(paths: Sequence[str]) -> str:
    """The folder that need not be repeated with every path: above the common one, so that a folder stays in sight."""
    root = common_root(paths)
    return root[: root.rstrip("/").rfind("/") + 1] if root.count("/") > _SHALLOW else ""


_SHALLOW = 3
