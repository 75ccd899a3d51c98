"""Changes several files together, or none of them."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from context_compactor.errors import CompactorError
from context_compactor.files import naming_write_errors, write_atomically

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV, errno.ENOSYS})


class FileChange(Struct, frozen=True):
    """A file before and after; None is no file. `path` is the file itself, never a link to it.

    One that `is_program` can be run by its owner.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    is_private: bool = False
    is_program: bool = False


def read_file(path: Path) -> bytes | None:
    """The bytes of a file, None where there is none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise CompactorError(f"cannot read {path}: it is not a file. Try: move it away.")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CompactorError(f"cannot read {path}: {error.strerror or error}") from error


def missing_folders(path: Path) -> tuple[Path, ...]:
    """The folders above a file that are not there, the outermost first."""
    return tuple(reversed([folder for folder in path.parents if not os.path.lexists(folder)]))


def write_all(changes: Sequence[FileChange], leave_folders: Sequence[Path] = ()) -> None:
    """Write all of them. When one fails, those before it are put back and folders made for them are gone.

    `leave_folders` were made by an install; they go when nothing is left in them.
    """
    for change in changes:
        _check_writable(change)
    made: list[Path] = []
    undo: list[_Backup] = []
    try:
        for change in changes:
            _make_folders(change, made)
            undo.append(_Backup(change))
            _write(change)
    except BaseException as error:
        for kept in reversed(undo):
            kept.put_back(error)
        _remove_empty(made)
        raise
    for kept in undo:
        kept.forget()
    _remove_empty(leave_folders)


class _Backup:
    """A file as it was, by a second name: putting it back needs no room on the disk."""

    def __init__(self, change: FileChange) -> None:
        self._change = change
        self._link: Path | None = None
        if change.before is None:
            return
        link = change.path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            os.link(change.path, link)
            self._link = link
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise CompactorError(f"cannot write {change.path}: {error.strerror or error}") from error

    def put_back(self, reason: BaseException) -> None:
        path, before = self._change.path, self._change.before
        try:
            if self._link is not None:
                self._link.replace(path)
                self._link.unlink(missing_ok=True)  # two names of one file are not replaced by each other
            elif before is None:
                path.unlink(missing_ok=True)
            else:
                write_atomically(path, before, private=self._change.is_private)
        except (OSError, CompactorError) as error:
            reason.add_note(f"{path} could not be put back: {error}")

    def forget(self) -> None:
        if self._link is not None:
            self._link.unlink(missing_ok=True)


def _check_writable(change: FileChange) -> None:
    """Before anything is written: is it still as it was read, and may it be written?"""
    path = change.path
    if read_file(path) != change.before:
        raise CompactorError(f"{path} was changed by another program just now. Try: run it again.")
    if change.before is not None and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
        raise CompactorError(f"cannot write {path}: it is read-only. Try: chmod u+w {path}.")
    folder = next(folder for folder in path.parents if folder.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise CompactorError(f"cannot write {path}: the folder {folder} cannot be written. Try: chmod u+w {folder}.")


def _make_folders(change: FileChange, made: list[Path]) -> None:
    with naming_write_errors(change.path):
        for folder in missing_folders(change.path) if change.after is not None else ():
            folder.mkdir(mode=0o700 if change.is_private else 0o777)
            made.append(folder)


def _write(change: FileChange) -> None:
    if change.after is None:
        with naming_write_errors(change.path):
            change.path.unlink()
    else:
        write_atomically(change.path, change.after, private=change.is_private)
        if change.is_program:
            with naming_write_errors(change.path):
                change.path.chmod(0o700)


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in sorted(set(folders), key=lambda each: len(each.parts), reverse=True):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
