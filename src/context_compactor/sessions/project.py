"""The files in a user's project: checkpoint, event log, learned memory, readable archive; all are made from the
store."""

from __future__ import annotations

import os
from pathlib import Path

from context_compactor.files import HOME, make_private_folder
from context_compactor.sessions.state import OS_USER
from context_compactor.store.connect import sqlite_path
from context_compactor.store_urls import is_postgres


class Project:
    """The folder that holds a store, and what lies beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / HOME

    @property
    def checkpoint_file(self) -> Path:
        """Where the work stands."""
        return self.home / "progress-checkpoint.md"

    @property
    def log_file(self) -> Path:
        """The last events."""
        return self.home / "logs" / "compaction.json"

    @property
    def learned(self) -> Path:
        """What outlives a session."""
        return self.home / "learned"

    def prepare(self) -> None:
        """Make the folder."""
        make_private_folder(self.home)


def project_of(url: str) -> Project | None:
    """The project of a store: the folder its file lies in, or the one around `.compactor`.

    None for one in memory, and for one in PostgreSQL, whose sessions may be of any machine.
    """
    path = None if is_postgres(url) else sqlite_path(url)
    if path is None:
        return None
    folder = path.absolute().parent
    return Project(folder.parent if folder.name == HOME else folder)


def is_own_store(url: str, root: Path) -> bool:
    """Whether a store is that of a project alone. In any other there may be sessions of other projects."""
    project, path = project_of(url), None if is_postgres(url) else sqlite_path(url)
    if project is None or path is None or project.root.resolve() != root.resolve():
        return False
    return (root / path).resolve().is_relative_to(root.resolve())  # and no link out of it


def local_owner(url: str, root: Path) -> str:
    """Who owns what the command line or a coding agent does in a project: the user of this machine.

    Empty when the store is not that of the project alone, so that no project learns from another.
    """
    return f"{OS_USER}{_user_name()}" if is_own_store(url, root) else ""


def _user_name() -> str:
    import pwd  # not on every system

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as a user that nobody named
        return str(os.getuid())
