"""What SQLite says, in words a user can act on."""

from __future__ import annotations

import sqlite3

from context_compactor.errors import StoreError, StoreLocked


def is_locked(error: sqlite3.DatabaseError) -> bool:
    """Whether somebody else is writing."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def explain(error: sqlite3.DatabaseError, path: str, busy_seconds: float) -> StoreError:
    """The error to raise for one of SQLite's; it names the file, what is wrong and what to try."""
    if is_locked(error):
        return StoreLocked(
            f"{path} was locked by another process for {busy_seconds:g} seconds; nothing was written. "
            "Try: again, or look for a process that hangs with the file open."
        )
    if _code(error) == sqlite3.SQLITE_FULL:
        return StoreError(f"{path}: the disk is full; nothing was written. Try: free some space, then again.")
    if _code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreError(f"{path} cannot be written ({error}). Try: another folder with `store`, or its permissions.")
    if isinstance(error, sqlite3.OperationalError):
        return StoreError(f"{path}: {error}; nothing was written.")
    return StoreError(
        f"{path} is damaged or no database of this program: {error}. Try: `compactor verify`, or another file."
    )


def _code(error: sqlite3.DatabaseError) -> int:
    """SQLite's code without its details; Python's own errors have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
