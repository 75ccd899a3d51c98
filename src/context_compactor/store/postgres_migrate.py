"""Migrations of a PostgreSQL database: its tables stand in a schema of their own, with their version beside them."""

from __future__ import annotations

from psycopg import Connection
from psycopg.sql import SQL, Identifier

from context_compactor.errors import BadSetting, StoreError
from context_compactor.store.migrate import Migrated, refuse_newer, scripts
from context_compactor.store.postgres_address import Address
from context_compactor.store.postgres_locks import LOCK_ALONE

_OLDEST_SERVER = 130000


def migrate(connection: Connection, address: Address, *, create: bool) -> Migrated:
    """Bring the store to the newest version; another process that does the same at once is waited for."""
    _refuse_server(connection, address.name)
    steps = scripts("postgresql")
    version = _version(connection, address)
    if version == len(steps):
        return Migrated(version, version)
    if not version and not create:
        raise BadSetting(
            f"there is no store at {address.name}. Try: another --store, or `compactor migrate` to make one."
        )
    with connection.transaction():
        connection.execute(LOCK_ALONE)
        version = _version(connection, address)
        refuse_newer(address.name, version, len(steps))
        if not version:
            _make_schema(connection, address)
        connection.execute(SQL("SET LOCAL search_path TO {}").format(Identifier(address.schema)))
        for script in steps[version:]:
            connection.execute(script.encode())
        connection.execute("UPDATE schema_version SET version = %s", [len(steps)])
    return Migrated(version, len(steps))


def _refuse_server(connection: Connection, name: str) -> None:
    if connection.info.server_version < _OLDEST_SERVER:
        version = connection.info.server_version // 10000
        raise StoreError(f"{name} is PostgreSQL {version}; 13 is the oldest that will do. Try: a newer server.")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"{name} keeps texts as {encoding}, which cannot hold all of them. "
            "Try: a database made with `createdb --encoding UTF8 --template template0`."
        )


def _version(connection: Connection, address: Address) -> int:
    """The version of the tables; 0 when there are none."""
    there = connection.execute(  # not to_regclass, which may not know what another process has just made
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = 'schema_version'",
        [address.schema],
    ).fetchone()
    if there is None:
        return 0
    statement = SQL("SELECT version FROM {}.schema_version").format(Identifier(address.schema))
    row = connection.execute(statement).fetchone()
    return int(row[0]) if row else 0


def _make_schema(connection: Connection, address: Address) -> None:
    """The schema with the version of its tables. One with tables of another program is left alone."""
    row = connection.execute(
        "SELECT count(c.oid) FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = %s "
        "GROUP BY n.oid",
        [address.schema],
    ).fetchone()
    if row and row[0]:
        raise StoreError(
            f"{address.name}: the schema {address.schema!r} holds tables of another program; they were not touched. "
            "Try: another one, such as ?schema=compactor_store behind the address."
        )
    schema = Identifier(address.schema)
    if not row:
        connection.execute(SQL("CREATE SCHEMA {}").format(schema))
    connection.execute(SQL("CREATE TABLE {}.schema_version (version INTEGER NOT NULL)").format(schema))
    connection.execute(SQL("INSERT INTO {}.schema_version VALUES (0)").format(schema))
