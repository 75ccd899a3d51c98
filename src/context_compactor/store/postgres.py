"""The store of many machines: one PostgreSQL database, as many servers and workers as wanted."""

from __future__ import annotations

from context_compactor.store.postgres_address import read_address
from context_compactor.store.postgres_database import PostgresDatabase
from context_compactor.store.sql_store import SqlStore


class PostgresStore(SqlStore):
    """Sessions in a schema of a PostgreSQL database, which is made and brought up to date when it is opened.

    Without `create` one that is not there is an error. Whoever waits longer than `busy_seconds` for a lock, a
    connection, or a server that is being restarted is told so.
    """

    def __init__(self, url: str, *, create: bool = True, busy_seconds: float = 10.0) -> None:
        super().__init__(PostgresDatabase(read_address(url), busy_seconds, create=create))
