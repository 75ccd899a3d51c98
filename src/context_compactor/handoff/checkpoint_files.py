"""The files that a session changed, marked by their content, so that a later change by somebody else shows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Literal

from msgspec import Struct, structs

from context_compactor.facts.fact import Fact

MOST_FILES = 30
_MOST_BYTES = 2_000_000

OnDisk = Literal["file", "missing", "unread"]


class FileMark(Struct, frozen=True):
    """A changed file: what the session did to it, and what was found on disk.

    `on_disk` is `unread` for what is outside of the project, not a plain file, or not to be opened. A file of more
    than 2 MB has a size and no `sha256`.
    """

    path: str
    status: str = ""
    ref: str = ""
    on_disk: OnDisk = "unread"
    size: int = 0
    sha256: str = ""


def modified_files(facts: Sequence[Fact], most: int = MOST_FILES) -> tuple[FileMark, ...]:
    """The files that facts say were changed: what is not committed first, then the newest. None is looked at yet."""
    changed = sorted(changed_facts(facts), key=lambda fact: (fact.status != "uncommitted", -fact.last_turn))
    return tuple(FileMark(fact.content, _status(fact), fact.ref) for fact in changed[:most])


def changed_facts(facts: Sequence[Fact]) -> list[Fact]:
    """The facts of files that were changed, not only read."""
    return [fact for fact in facts if fact.kind == "file_state" and fact.status != "read"]


def _status(fact: Fact) -> str:
    return f"{fact.detail}, uncommitted" if fact.status == "uncommitted" and fact.detail else fact.status


def mark_files(folder: Path, files: Sequence[FileMark]) -> tuple[FileMark, ...]:
    """The same files with what is on disk now. Only files of the project are opened, whatever a path says."""
    return tuple(_mark(folder, file) for file in files)


def _mark(folder: Path, file: FileMark) -> FileMark:
    unread = structs.replace(file, on_disk="unread", size=0, sha256="")
    try:
        # Links are followed first: one that leads out of the project is not read.
        place = (folder / file.path).resolve()
        if not place.is_relative_to(folder.resolve()):
            return unread
        found = place.stat()
        if not S_ISREG(found.st_mode):
            return unread
        content = place.read_bytes() if found.st_size <= _MOST_BYTES else None
    except (FileNotFoundError, NotADirectoryError):
        return structs.replace(unread, on_disk="missing")
    except (OSError, ValueError, RuntimeError):  # not allowed, no name for a file, a circle of links
        return unread
    if content is None:
        return structs.replace(unread, on_disk="file", size=found.st_size)
    return structs.replace(unread, on_disk="file", size=len(content), sha256=hashlib.sha256(content).hexdigest())
