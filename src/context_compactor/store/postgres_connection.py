"""Connections to PostgreSQL: addresses, a pool, texts it would refuse, and readable errors."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlencode

import psycopg
from psycopg import Connection, ProgrammingError, errors
from psycopg.abc import Buffer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.string import StrDumperUnknown, TextBinaryLoader, TextLoader
from psycopg_pool import ConnectionPool, PoolTimeout

from context_compactor.errors import BadSetting, StoreError, StoreLocked
from context_compactor.store_urls import without_password

_OWN = {"schema": "compactor", "connections": "10"}
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PORTS = re.compile(r"\d+(,\d+)*")
_MOST_CONNECTIONS = 1000
_ALWAYS = {"client_encoding": "utf8", "fallback_application_name": "context-compactor"}
# How soon a server is given up that does not answer at all.
_PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


class PostgresAddress:
    """Where a store is: `name` may be shown to anybody, `conninfo` to libpq alone."""

    def __init__(self, name: str, conninfo: str, schema: str, connections: int) -> None:
        self.name = name
        self.conninfo = conninfo
        self.schema = schema
        self.connections = connections

    def __repr__(self) -> str:
        return f"PostgresAddress({self.name!r})"


def read_address(url: str) -> PostgresAddress:
    """The parts of an address, or `BadSetting` that says what is wrong with it, without its password."""
    plain, _, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    own = _OWN | {key: value for key, value in given if key in _OWN}
    rest = urlencode([(key, value) for key, value in given if key not in _OWN])
    known = _read_conninfo(f"{plain}?{rest}" if rest else plain, url)
    return PostgresAddress(
        _name(known, own["schema"]),
        make_conninfo("", **{**_PATIENCE, **known, **_ALWAYS}),
        _schema(own["schema"], url),
        _connections(own["connections"], url),
    )


def _read_conninfo(url: str, given: str) -> dict[str, str]:
    try:
        known = {key: str(value) for key, value in conninfo_to_dict(url).items() if value is not None}
    except ProgrammingError:
        known = {"port": ""}  # what libpq says may quote a part of the password
    if not _PORTS.fullmatch(known.get("port", "5432")) or "@" in known.get("host", "") + known.get("dbname", ""):
        raise BadSetting(
            f"store: {without_password(given)!r:.200} cannot be read. Try: postgresql://user:password@host:5432/"
            "database; write characters such as @ / : # % in the password as %40 %2F %3A %23 %25."
        )
    return known


def _name(known: dict[str, str], schema: str) -> str:
    """The address for people."""
    user = f"{known['user']}@" if "user" in known else ""
    host, port = known.get("host", ""), f":{known['port']}" if "port" in known else ""
    place = f"?host={host}" if host.startswith("/") else ""
    other = f"{'&' if place else '?'}schema={schema}" if schema != _OWN["schema"] else ""
    return f"postgresql://{user}{'' if place else host}{port}/{known.get('dbname', '')}{place}{other}"


def _schema(schema: str, url: str) -> str:
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise BadSetting(
            f"store: {without_password(url)!r:.200}: {schema!r:.80} is not a valid schema name. "
            "Try: lowercase letters, digits and _, such as schema=compactor."
        )
    return schema


def _connections(count: str, url: str) -> int:
    if not count.isdecimal() or not 1 <= int(count) <= _MOST_CONNECTIONS:
        raise BadSetting(
            f"store: {without_password(url)!r:.200}: connections={count!r:.40} is not a number from 1 to "
            f"{_MOST_CONNECTIONS:,}. Try: connections=10."
        )
    return int(count)


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
    (errors.DiskFull, "the server's disk is full; nothing was written. Try: free some space, then run it again."),
    (
        errors.ReadOnlySqlTransaction,
        "it is read-only (a standby, or default_transaction_read_only); nothing was written. Try: the primary server.",
    ),
    (
        errors.InsufficientPrivilege,
        "this user may not do that ({said}). Try: `compactor migrate` as the owner, then GRANT it the tables.",
    ),
    (errors.InFailedSqlTransaction, "an earlier error has ended this transaction; nothing was written."),
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
            "Try: run it again, or look for a transaction that hangs (pg_stat_activity)."
        )
    if isinstance(error, (errors.DeadlockDetected, errors.SerializationFailure)):
        return StoreLocked(
            f"{name}: another process wrote the same rows at the same time; nothing was written. Try: run it again."
        )
    if isinstance(error, psycopg.OperationalError) and is_lost(error):
        return StoreError(
            f"{name}: the server went away ({_line(error)}); nothing was written. Try: run it again; {_AWAY}"
        )
    words = next((words for kind, words in _SAID if isinstance(error, kind)), "{said}; nothing was written.")
    return StoreError(f"{name}: {words.format(said=_line(error))}")


def _line(error: psycopg.Error) -> str:
    """What was said first; the rest may show rows."""
    said = error.diag.message_primary or str(error)
    return " ".join(said.split("\n", maxsplit=1)[0].split())


_MARK = "\x01"
_NUL, _ITSELF = f"{_MARK}\x02", f"{_MARK}{_MARK}"


class _TextWriter(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        if "\0" in obj or _MARK in obj:
            obj = obj.replace(_MARK, _ITSELF).replace("\0", _NUL)
        return obj.encode()


class _TextReader(TextLoader):
    def load(self, raw: Buffer) -> str:
        return _with_nul(str(raw, "utf-8"))


class _BinaryReader(TextBinaryLoader):
    def load(self, raw: Buffer) -> str:
        return _with_nul(str(raw, "utf-8"))


def _with_nul(text: str) -> str:
    if _MARK not in text:
        return text
    return _MARK.join(part.replace(_NUL, "\0") for part in text.split(_ITSELF))


def keep_every_text(connection: Connection) -> None:
    """From now on any text that UTF-8 can write comes back from this connection as it was."""
    connection.adapters.register_dumper(str, _TextWriter)
    connection.adapters.register_loader("text", _TextReader)
    connection.adapters.register_loader("text", _BinaryReader)


_PAUSE = 0.1
_IDLE_SECONDS = 300.0
# How long a transaction may do nothing: longer than any of ours takes to think.
_SILENCE = "60s"
# After how many seconds without a word from its machine a connection is asked for a sign of life, and how often.
_ALIVE = {"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}


@contextmanager
def opened(address: PostgresAddress, busy_seconds: float) -> Iterator[Connection]:
    """A connection of its own. A server that is just starting is waited for; any other problem is raised at once."""
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


def probing(address: PostgresAddress, seconds: float) -> Connection:
    """A connection whose statements, and their waits for locks, end within so many seconds."""
    try:
        connection = psycopg.connect(address.conninfo, autocommit=True)
    except psycopg.OperationalError as error:
        raise explain_connecting(error, address.name) from error
    prepare(connection, address, seconds)
    connection.execute("SELECT set_config('statement_timeout', %s, false)", [f"{round(seconds * 1000)}ms"])
    return connection


def prepare(connection: Connection, address: PostgresAddress, busy_seconds: float) -> None:
    """Make a new connection use its schema, wait no longer than it should, and be sure of what it commits.

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

    def __init__(self, address: PostgresAddress, busy_seconds: float) -> None:
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
                    f"{self._busy_seconds:g} seconds; nothing was written. Try: ?connections=N at the end of the URL."
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
