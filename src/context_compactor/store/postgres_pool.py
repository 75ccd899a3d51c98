"""Connections to PostgreSQL: one alone, and a pool that is filled when it is needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import Connection
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from context_compactor.errors import StoreLocked
from context_compactor.store.postgres_address import Address
from context_compactor.store.postgres_errors import explain_connecting, is_starting
from context_compactor.store.postgres_text import keep_every_text

_PAUSE = 0.1
_IDLE_SECONDS = 300.0
# How long a transaction may do nothing: longer than any of ours takes to think.
_SILENCE = "60s"
# After how many seconds without a word from its machine a connection is asked for a sign of life, and how often.
_ALIVE = {"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}


@contextmanager
def opened(address: Address, busy_seconds: float) -> Iterator[Connection]:
    """A connection of its own. A server that is just starting is waited for; any other trouble is told at once."""
    give_up = time.monotonic() + busy_seconds
    while True:
        try:
            connection = psycopg.connect(address.conninfo, autocommit=True)
            break
        except psycopg.OperationalError as error:
            if not is_starting(error) or time.monotonic() > give_up:
                raise explain_connecting(error, address.name) from error
        time.sleep(_PAUSE)
    with connection:
        prepare(connection, address, busy_seconds)
        yield connection


def probing(address: Address, seconds: float) -> Connection:
    """A connection whose statements, and their waits for locks, end within so many seconds."""
    try:
        connection = psycopg.connect(address.conninfo, autocommit=True)
    except psycopg.OperationalError as error:
        raise explain_connecting(error, address.name) from error
    prepare(connection, address, seconds)
    connection.execute("SELECT set_config('statement_timeout', %s, false)", [f"{round(seconds * 1000)}ms"])
    return connection


def prepare(connection: Connection, address: Address, busy_seconds: float) -> None:
    """Make a new connection look at its schema, wait no longer than it should, and be sure of what it commits.

    When its machine vanishes, or stops in the middle of a transaction, the server lets others have what was locked.
    """
    keep_every_text(connection)
    settings = {
        "search_path": address.schema,
        "lock_timeout": f"{max(1, round(busy_seconds * 1000))}ms",
        "idle_in_transaction_session_timeout": _SILENCE,
        **_ALIVE,
    }
    connection.execute(
        f"SELECT {'set_config(%s, %s, false), ' * len(settings)}"
        "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), false)",
        [text for setting in settings.items() for text in setting],
    )


class Pool:
    """Connections to one address. It begins when the first is taken, so that a process that only forks has none."""

    def __init__(self, address: Address, busy_seconds: float) -> None:
        self._address = address
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Connection] | None = None

    def take(self) -> Connection:
        """A connection, which must be given back. A server that is away is waited for, though not for ever."""
        try:
            return self._begun().getconn(self._busy_seconds)
        except PoolTimeout as error:
            with opened(self._address, 0):  # says what is wrong when the server is
                raise StoreLocked(
                    f"{self._address.name}: all {self._address.connections} connections were in use for "
                    f"{self._busy_seconds:g} seconds; nothing was written. Try: ?connections=N behind the address."
                ) from error

    def give_back(self, connection: Connection) -> None:
        """Let others have it; one that was lost is thrown away, one amid a transaction begins anew."""
        pool = self._begun()
        status = connection.info.transaction_status
        if not connection.broken and status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            connection.execute(b"ROLLBACK")
        pool.putconn(connection)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()

    def _begun(self) -> ConnectionPool[Connection]:
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self._address.conninfo,
                    kwargs={"autocommit": True},
                    min_size=0,
                    max_size=self._address.connections,
                    configure=lambda connection: prepare(connection, self._address, self._busy_seconds),
                    name="context-compactor",
                    max_idle=_IDLE_SECONDS,
                    reconnect_timeout=self._busy_seconds,
                    num_workers=1,
                    open=True,
                )
            return self._pool
