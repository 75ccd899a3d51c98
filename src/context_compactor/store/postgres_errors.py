"""What PostgreSQL and libpq say, in words a user can act on."""

from __future__ import annotations

import re

import psycopg
from psycopg import errors

from context_compactor.errors import StoreError, StoreLocked

# What libpq says of a connection that was refused has no code, only words.
_REFUSED = (
    (
        r"password authentication failed|no password supplied|role .* does not exist|Peer authentication failed",
        "the server does not accept this user and password",
        "another user or password in the address, PGPASSWORD, or ~/.pgpass",
    ),
    (r"database .* does not exist", "there is no such database", "`createdb NAME`, or another name in the address"),
    (
        r"no pg_hba\.conf entry|permission denied for database",
        "the server does not let this user in from here",
        "another user, sslmode=require in the address, or the server's pg_hba.conf",
    ),
    (r"translate host name|resolve host", "its host has no address", "the name of the host in the address"),
    (r"too many clients|remaining connection slots", "it has no connection left", "fewer servers, or connections=N"),
    (r"starting up|shutting down|recovery", "the server is being restarted", "again in a moment"),
)
_SAID: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.DiskFull, "the server's disk is full; nothing was written. Try: free some space, then again."),
    (
        errors.ReadOnlySqlTransaction,
        "it is read-only (a standby, or default_transaction_read_only); nothing was written. Try: the primary server.",
    ),
    (
        errors.InsufficientPrivilege,
        "this user may not do that ({said}). Try: `compactor migrate` as the owner, then GRANT it the tables.",
    ),
    (errors.InFailedSqlTransaction, "an earlier error has ended this transaction; nothing of it was written."),
    (errors.UndefinedTable, "{said}. Its tables were changed by hand. Try: a backup, or another schema."),
)
_AWAY = "is the server running, and are host and port right?"


def is_starting(error: psycopg.Error) -> bool:
    """Whether the server is there but takes no connection yet."""
    return isinstance(error, errors.CannotConnectNow) or bool(re.search(r"starting up|shutting down", str(error)))


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, and not only the statement."""
    return (error.sqlstate or "08000").startswith(("08", "57P"))


def explain_connecting(error: psycopg.Error, name: str) -> StoreError:
    """The error to raise when no connection could be made."""
    said = _line(error)
    for words, problem, hint in _REFUSED:
        if re.search(words, str(error)):
            return StoreError(f"{name} cannot be opened: {problem} ({said}). Try: {hint}.")
    return StoreError(f"{name} cannot be reached: {said}. Try: {_AWAY}")


def explain(error: psycopg.Error, name: str, busy_seconds: float) -> StoreError:
    """The error to raise for one of PostgreSQL's; it names the database, what is wrong and what to try."""
    if isinstance(error, errors.LockNotAvailable):
        return StoreLocked(
            f"{name} was locked by another process for {busy_seconds:g} seconds; nothing was written. "
            "Try: again, or look for a transaction that hangs (pg_stat_activity)."
        )
    if isinstance(error, (errors.DeadlockDetected, errors.SerializationFailure)):
        return StoreLocked(f"{name}: another process wrote the same at once; nothing was written. Try: again.")
    if isinstance(error, psycopg.OperationalError) and is_lost(error):
        return StoreError(f"{name}: the server went away ({_line(error)}); nothing was written. Try: again; {_AWAY}")
    words = next((words for kind, words in _SAID if isinstance(error, kind)), "{said}; nothing was written.")
    return StoreError(f"{name}: {words.format(said=_line(error))}")


def _line(error: psycopg.Error) -> str:
    """What was said first; the rest may show rows."""
    said = error.diag.message_primary or str(error)
    return " ".join(said.split("\n", maxsplit=1)[0].split())
