"""The store of one machine: one SQLite file, as many processes as you like."""

from __future__ import annotations

from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite_file import SqliteFile
from context_compactor.store.sqlite_open import MEMORY


class SqliteStore(SqlStore):
    """Sessions in a SQLite file. Whoever waits longer than `busy_seconds` for another to write is told so."""

    def __init__(self, path: str = MEMORY, *, busy_seconds: float = 10.0) -> None:
        super().__init__(SqliteFile(path, busy_seconds))
