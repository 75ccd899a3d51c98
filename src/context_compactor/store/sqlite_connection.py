"""Opening a SQLite file: owner-only, write-ahead log, migrations, readable errors."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from errno import EACCES, EISDIR
from pathlib import Path

from context_compactor.errors import CompactorError, StoreError, StoreLocked
from context_compactor.files import make_private_folder
from context_compactor.store.database import ExplainedErrors, Migrated, refuse_newer, scripts


def is_locked(error: sqlite3.DatabaseError) -> bool:
    """Whether somebody else is writing."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def explain(error: sqlite3.DatabaseError, path: str, busy_seconds: float) -> StoreError:
    """The error to raise for one of SQLite's; it names the file, what is wrong and what to try."""
    if is_locked(error):
        return StoreLocked(
            f"{path} was locked by another process for {busy_seconds:g} seconds; nothing was written. "
            "Try: run it again, or look for a process that hangs with the file open."
        )
    if _code(error) == sqlite3.SQLITE_FULL:
        return StoreError(f"{path}: the disk is full; nothing was written. Try: free some space, then run it again.")
    if _code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreError(f"{path} cannot be written ({error}). Try: another folder with `store`, or its permissions.")
    if isinstance(error, sqlite3.OperationalError):
        return StoreError(f"{path}: {error}; nothing was written.")
    return StoreError(
        f"{path} is damaged or is not a database of this program: {error}. Try: `compactor verify`, or another file."
    )


def _code(error: sqlite3.DatabaseError) -> int:
    """SQLite's code without its details; Python's own errors have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


# Written into the head of every file, so that the database of another program is known as such.
_OURS = int.from_bytes(b"CtxC")


def refuse_foreign(connection: sqlite3.Connection, name: str) -> None:
    """Leave the database of another program alone."""
    if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None:
        return
    if connection.execute("PRAGMA application_id").fetchone()[0] != _OURS:
        raise StoreError(f"{name} is a database of another program; nothing was changed. Try: another file.")


def migrate(connection: sqlite3.Connection, name: str) -> Migrated:
    """Bring a database to the newest version; another process that does the same at once is waited for."""
    steps = scripts("sqlite")
    if _version(connection) == len(steps):
        return Migrated(len(steps), len(steps))
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)
        refuse_newer(name, version, len(steps))
        for number, script in enumerate(steps[version:], version + 1):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {_OURS}")
        connection.execute("COMMIT")
        return Migrated(version, len(steps))
    except BaseException:
        if connection.in_transaction:  # a full disk has ended it already
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


MEMORY = ":memory:"
_PAUSE = 0.01
# Milliseconds that SQLite itself waits for a lock. It tries less and less often, so `begin` asks again and again.
_BUSY_TIMEOUT_MS = 2


def explained_errors(path: str, busy_seconds: float) -> ExplainedErrors:
    """Within it an error of SQLite becomes one that says what to do."""
    return ExplainedErrors(sqlite3.DatabaseError, lambda error: explain(error, path, busy_seconds))


def open_file(path: str, file: str, busy_seconds: float) -> tuple[sqlite3.Connection, Migrated]:
    """A connection to write to a file, which messages call `path`, and what opening it did to its tables."""
    if path != MEMORY:
        _make_file(Path(file))
    connection = sqlite3.connect(file, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    try:
        refuse_foreign(connection, path)
        if not connection.execute("PRAGMA page_count").fetchone()[0]:  # it is new: what is deleted can be given back
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # Of two processes that do this to a new file at once, SQLite refuses one without waiting.
        _execute_patiently(connection, "PRAGMA journal_mode = WAL", busy_seconds, _PAUSE)
        # A message that was accepted is on the disk, whatever happens to the machine.
        connection.execute("PRAGMA synchronous = FULL")
        migrated = migrate(connection, path)
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        return connection, migrated
    except BaseException:
        connection.close()
        raise


def begin(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Begin a transaction that may write, once nobody else does."""
    _execute_patiently(connection, "BEGIN IMMEDIATE", busy_seconds, 0.0)


def _execute_patiently(connection: sqlite3.Connection, statement: str, busy_seconds: float, pause: float) -> None:
    give_up = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if not is_locked(error) or time.monotonic() > give_up:
                raise
        time.sleep(pause)


def file_id(file: str) -> tuple[int, int]:
    """What distinguishes a file from another one of the same name; (0, 0) when there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116  a path object for each transaction is not worth it
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _make_file(path: Path) -> None:
    """The file and its folder, for its owner only. A file that is there keeps the mode it has.

    One that is there is not opened: to close it again would give up the locks that other connections of this process
    hold on it, and another process that leaves would then take away the log under them.
    """
    try:
        make_private_folder(path.parent)
        file = os.path.realpath(path)
        try:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            _check_file(file)
    except CompactorError as error:
        raise StoreError(f"{path} cannot be opened: {error}. Try: another folder with `store`.") from error
    except OSError as error:
        raise StoreError(
            f"{path} cannot be opened: {error.strerror}. Try: another folder with `store`, or its permissions."
        ) from error


def _check_file(file: str) -> None:
    problem = EISDIR if os.path.isdir(file) else 0 if os.access(file, os.R_OK | os.W_OK) else EACCES  # noqa: PTH112
    if problem:
        raise OSError(problem, os.strerror(problem))
