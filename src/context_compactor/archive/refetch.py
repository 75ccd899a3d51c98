"""Restore by hint: read a file again as it is now, or show the command that would. Nothing is ever run.

What comes back is the file of today. The archive has what it was, and `changed` says whether that is the same.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Literal

from msgspec import Struct

from context_compactor.archive.archive import Original
from context_compactor.archive.unchanged import Shown, has_changed, read_shown
from context_compactor.classify.kinds import Kind, restore_hint

Way = Literal["file", "command", "search", "page", "none"]

_MOST_BYTES = 5_000_000
_HEAD_BYTES = 8_000
_WAYS: dict[str, Way] = {Kind.SEARCH_RESULT.value: "search", Kind.WEB_PAGE.value: "page"}
# What stands in a command and hardly ever in the name of a file.
_COMMAND = re.compile(r"[\s|;&<>$`\"'*?]")
_LABEL = re.compile(r"`(.+)`", re.DOTALL)


class Refetched(Struct, frozen=True):
    """What became of an attempt to get an original again from where it came from.

    `can_restore` says whether that is possible; `text` is what a file says now, and `changed` whether that is not what
    it said when it was read, or None where that cannot be told. `said` tells all of it to people.
    """

    kind: Way
    target: str
    can_restore: bool
    said: str
    text: str = ""
    changed: bool | None = None


class RestoreRate(Struct, frozen=True):
    """How many files were to be read again, how many of them were there, and how many of those had changed."""

    tried: int = 0
    succeeded: int = 0
    changed: int = 0

    @property
    def share(self) -> float | None:
        """The share that was there; None before the first attempt."""
        return self.succeeded / self.tried if self.tried else None

    def after(self, refetched: Refetched) -> RestoreRate:
        """The rate with one more attempt. A command that was only shown is none."""
        if refetched.kind != "file":
            return self
        changed = self.changed + (refetched.changed is True)
        return RestoreRate(self.tried + 1, self.succeeded + refetched.can_restore, changed)


def refetch(original: Original, root: Path) -> Refetched:
    """Get an original again from where it came from. A path that is not absolute is one below `root`."""
    if original.hint == restore_hint(Kind.CODE) and original.target:
        path = _path(original.target, root)
        if not _COMMAND.search(original.target) or _is_there(path):
            return _read_again(original, path)
    return _show(original)


def _show(original: Original) -> Refetched:
    """The command, the query or the address, for somebody else to use."""
    if original.hint:
        way = _WAYS.get(original.kind, "command")
        return Refetched(way, original.target, True, f"to {original.hint}: {original.target}")
    label = _LABEL.search(original.summary)
    said = f"only the archive has what it was: {original.recovery}"
    if label is None:
        return Refetched("none", "", False, said)
    return Refetched(
        "command", label[1], False, f"`{label[1]}` may say or do something else when it is run again; {said}"
    )


def _read_again(original: Original, path: Path) -> Refetched:
    try:
        text = _read(path)
    except (OSError, ValueError) as error:
        return Refetched("file", original.target, False, f"{original.target} {_why(error)}")
    shown = read_shown(original)
    changed = has_changed(shown, text)
    return Refetched(
        "file", original.target, True, _said(original.target, shown, changed), _same_lines(shown, text), changed
    )


def _path(target: str, root: Path) -> Path:
    path = Path(target)
    try:
        return root / path.expanduser()
    except RuntimeError:  # there is no such user
        return root / path


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _read(path: Path) -> str:
    """The text of a file, or an error whose words go on after the file's name."""
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise ValueError("is a folder")
    if not stat.S_ISREG(found.st_mode):  # reading a pipe or a device may never end
        raise ValueError("is no ordinary file")
    if found.st_size > _MOST_BYTES:
        raise ValueError(f"has {found.st_size / 1e6:.1f} MB, too much to be read at once")
    content = path.read_bytes()
    if b"\0" in content[:_HEAD_BYTES]:
        raise ValueError("is no text")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError("is no text in UTF-8") from error


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "is no longer there"
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    is_ours = str(error).startswith(("is ", "has "))
    return str(error) if is_ours else f"is no name that a file can have: {error}"


def _said(target: str, shown: Shown, changed: bool | None) -> str:
    lines = f"lines {shown.first:,} to {shown.last or 'the end'} of " if shown.first else ""
    if changed is None:
        return f"{lines}{target} as it is now; whether it has changed since it was read cannot be told"
    return f"{lines}{target} {'has changed since it was read' if changed else 'is as it was when it was read'}"


def _same_lines(shown: Shown, text: str) -> str:
    """The lines that were read, as they are now."""
    return "\n".join(text.split("\n")[shown.first - 1 : shown.last]) if shown.first else text
