"""Migrations of a SQLite file: its version and whose it is stand in its head."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from context_compactor.errors import StoreError
from context_compactor.store.migrate import Migrated, refuse_newer, scripts

# Written into the head of every file, so that the database of another program is known as such.
_OURS = int.from_bytes(b"CtxC")


def refuse_foreign(connection: sqlite3.Connection, name: str) -> None:
    """Leave the database of another program alone."""
    if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None:
        return
    if connection.execute("PRAGMA application_id").fetchone()[0] != _OURS:
        raise StoreError(f"{name} is a database of another program; it was not touched. Try: another file.")


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
