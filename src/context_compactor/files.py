"""Files that are whole or not there: each is written beside its place, put on the disk, then moved into it."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from context_compactor.errors import CompactorError

HOME = ".compactor"
"""What a folder of ours is called in a project."""
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM})
_LOCK_PAUSE = 0.02


def write_atomically(path: Path, content: bytes, *, private: bool) -> None:
    """A whole file at once: what stood there before stays until the new content is on the disk.

    A private file is its owner's alone, and a link in its place is replaced: where it leads is nobody's business. Any
    other file keeps the mode it had, and a link to it is followed.
    """
    with naming_write_errors(path):
        _replace(path if private else Path(os.path.realpath(path)), content, private)


def make_private_folder(path: Path) -> None:
    """A folder, with those above it that are missing, for its owner alone. Folders that exist keep their mode.

    Whoever makes a folder `.compactor` by this keeps it out of commits too.
    """
    try:
        _make_folders(path)
    except OSError as error:
        where = error.filename or path
        raise CompactorError(f"cannot make the folder {where}: {error.strerror or error}") from error


def keep_out_of_commits(folder: Path) -> None:
    """Let git leave a folder alone."""
    ignore = folder / ".gitignore"
    if not os.path.lexists(ignore):
        write_atomically(ignore, b"*\n", private=False)


@contextmanager
def naming_write_errors(path: Path) -> Iterator[None]:
    """What the operating system refuses becomes an error that names the path and the reason."""
    try:
        yield
    except OSError as error:
        problem = f"cannot write {path}: {error.strerror or error}; nothing there was changed"
        raise CompactorError(problem) from error


@contextmanager
def one_writer(folder: Path, *, wait_seconds: float = 30.0) -> Iterator[None]:
    """One process (and thread) at a time in a folder. A lock lies in its file `.lock` and ends with its process."""
    with locked(folder / ".lock", wait_seconds=wait_seconds):
        yield


@contextmanager
def locked(lock: Path, *, wait_seconds: float = 30.0) -> Iterator[None]:
    """One process (and thread) at a time behind a file, which is made; the lock ends with its process."""
    with naming_write_errors(lock):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        _wait_for(descriptor, lock, wait_seconds)
        yield
    finally:
        os.close(descriptor)


def remove_scraps(folder: Path) -> None:
    """Take away what a killed writer left. Only for whoever is the one writer of a folder."""
    for scrap in folder.glob(".*.part"):
        with naming_write_errors(scrap):
            scrap.unlink(missing_ok=True)


def _make_folders(path: Path) -> None:
    if not path.parent.is_dir():
        _make_folders(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    if path.name == HOME:
        keep_out_of_commits(path)


def _replace(path: Path, content: bytes, private: bool) -> None:
    # A name of its own each time: a process of the same number may have been killed here before.
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists() and not private:
            part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """A new name outlives a power cut once its folder is on the disk. Some file systems and folders cannot be asked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def _wait_for(descriptor: int, lock: Path, wait_seconds: float) -> None:
    import fcntl  # not on every system; whoever writes single files does not need it

    give_up = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up:
                problem = f"another process has been writing for {wait_seconds:g} seconds (it holds {lock})"
                raise CompactorError(f"cannot write {lock.parent}: {problem}. Try: again later.") from None
        time.sleep(_LOCK_PAUSE)
