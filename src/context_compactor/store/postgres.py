"""The store of many machines: one schema of a PostgreSQL database, with its migrations, locks and word index."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import Any, TypeVar

import psycopg
from psycopg import Connection, Cursor
from psycopg.sql import SQL, Identifier

from context_compactor.errors import BadSetting, StoreError
from context_compactor.store.database import (
    Database,
    ExplainedErrors,
    Forkable,
    Migrated,
    OpenTransaction,
    WordIndex,
    WordQuery,
    is_word,
    kind_word,
    never_close,
    pause_at_fork,
    refuse_newer,
    scripts,
)
from context_compactor.store.postgres_connection import Pool, PostgresAddress, explain, opened, probing, read_address
from context_compactor.store.sql_store import SqlStore

_OURS = int.from_bytes(b"CtxC")
LOCK_SHARED = f"SELECT pg_advisory_xact_lock_shared({_OURS}, 0), pg_current_xact_id()::text".encode()
LOCK_ALONE = f"SELECT pg_advisory_xact_lock({_OURS}, 0), pg_current_xact_id()::text".encode()


_OLDEST_SERVER = 130000


def migrate(connection: Connection, address: PostgresAddress, *, create: bool) -> Migrated:
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
        raise StoreError(f"{name} is PostgreSQL {version}; version 13 or newer is needed. Try: a newer server.")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"{name} uses the encoding {encoding}, which cannot store all text. "
            "Try: a database made with `createdb --encoding UTF8 --template template0`."
        )


def _version(connection: Connection, address: PostgresAddress) -> int:
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


def _make_schema(connection: Connection, address: PostgresAddress) -> None:
    """The schema with the version of its tables. One with tables of another program is left alone."""
    row = connection.execute(
        "SELECT count(c.oid) FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = %s "
        "GROUP BY n.oid",
        [address.schema],
    ).fetchone()
    if row and row[0]:
        raise StoreError(
            f"{address.name}: the schema {address.schema!r} holds tables of another program; nothing was changed. "
            "Try: another one, such as ?schema=compactor_store at the end of the URL."
        )
    schema = Identifier(address.schema)
    if not row:
        connection.execute(SQL("CREATE SCHEMA {}").format(schema))
    connection.execute(SQL("CREATE TABLE {}.schema_version (version INTEGER NOT NULL)").format(schema))
    connection.execute(SQL("INSERT INTO {}.schema_version VALUES (0)").format(schema))


_TERM = re.compile(r"[0-9A-Za-z:\x80-\U0010ffff]+")
_KIND = kind_word("")
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
# Adding 0 keeps the planner from reading all runs in the range instead of those under the terms.
_WHERE = "FROM words WHERE terms @@ ?::tsquery AND number + 0 BETWEEN ? AND ?"


class PostgresWordIndex(WordIndex):
    """The terms of each run, in text search vectors. All letters of ASCII are small, as in SQLite's index."""

    column = "number"
    where = _WHERE

    def add(self, runs: Iterable[tuple[int, str]]) -> None:
        """Note the terms of runs."""
        self._database.write_many(
            "INSERT INTO words (number, terms) VALUES (?, array_to_tsvector(?::text[]))",
            [(number, self._lexemes(number, terms)) for number, terms in runs],
        )

    def remove(self, runs: Iterable[tuple[int, str]]) -> None:
        """Forget runs."""
        self._database.write_many("DELETE FROM words WHERE number = ?", [(number,) for number, _ in runs])

    def numbers(self, wanted: WordQuery) -> list[int]:
        """The numbers of all that are wanted."""
        return self._database.row(f"SELECT array_agg(number) {_WHERE}", self._values(wanted))[0] or []

    def _lexemes(self, number: int, terms: str) -> list[str]:
        """A word that is too long to be asked for is left out, since PostgreSQL would refuse it."""
        words = dict.fromkeys(_TERM.findall(terms.translate(_LOWER)))
        return [self._lexeme(number, word) for word in words if is_word(word) or word.startswith(_KIND)]

    def _lexeme(self, number: int, word: str) -> str:
        return f"{number // self._database.passages_per_session}/{word}"

    def _values(self, wanted: WordQuery) -> list[object]:
        groups = (
            "(" + " | ".join(f"'{self._lexeme(wanted.first, term.translate(_LOWER))}'" for term in group) + ")"
            for group in wanted.groups
        )
        return [" & ".join(groups), wanted.first, wanted.last]


_PAUSE = 0.05
Result = TypeVar("Result")


class Transaction(OpenTransaction):
    """What a thread is writing: its connection, and the number by which the server knows it."""

    def __init__(self, connection: Connection, number: str) -> None:
        super().__init__()
        self.connection = connection
        self.number = number


class PostgresDatabase(Database, Forkable):
    """Connections that any thread may use, as many at once as the address says; a forked process makes its own."""

    row_lock = " FOR UPDATE"
    passages_per_session = 1 << 32

    def __init__(self, address: PostgresAddress, busy_seconds: float, *, create: bool = True) -> None:
        self.path = address.name
        self.words = PostgresWordIndex(self)
        self._address = address
        self._busy_seconds = busy_seconds
        self._errors = ExplainedErrors(psycopg.Error, lambda error: explain(error, self.path, busy_seconds))
        self._own = threading.local()
        self._is_closed = False
        self._pool = Pool(address, busy_seconds)
        self._probing: Connection | None = None
        self.schema = self._migrate(create)
        pause_at_fork(self)

    def _migrate(self, create: bool) -> Migrated:
        with self._errors, opened(self._address, self._busy_seconds) as connection:
            return migrate(connection, self._address, create=create)

    def close(self) -> None:
        """Close all connections; a second time does nothing."""
        self._is_closed = True
        self._pool.close()
        if self._probing is not None:
            self._probing.close()

    def after_fork_in_child(self) -> None:
        """Leave the parent its connections, which live on there. A transaction that was under way is its too."""
        never_close(self._pool)
        never_close(self._probing)
        self._probing = None
        self._pool = Pool(self._address, self._busy_seconds)
        if self.current is not None:
            never_close(self.current)
            self._is_closed = True
        self._own = threading.local()

    # Transactions

    @property
    def current(self) -> Transaction | None:
        """The transaction of this thread that is under way."""
        return getattr(self._own, "transaction", None)

    @contextmanager
    def _transaction(self, *, alone: bool = False) -> Iterator[None]:
        with self._errors:
            current = self._begin(LOCK_ALONE if alone else LOCK_SHARED)
            self._own.transaction = current
            try:
                yield
                if self.current is current:  # else this is a forked process: it is the parent's
                    current.refuse_failed(self.path)
                    self._commit(current)
            except BaseException:
                if self.current is current and not current.connection.broken:
                    current.connection.execute(b"ROLLBACK", prepare=False)
                raise
            finally:
                if self.current is current:
                    self._own.transaction = None
                    self._pool.give_back(current.connection)

    def _begin(self, lock: bytes) -> Transaction:
        def begin(connection: Connection) -> Transaction:
            cursor = connection.execute(b"BEGIN; " + lock, prepare=False)
            cursor.nextset()
            row = cursor.fetchone()
            return Transaction(connection, row[1] if row else "")

        return self._try(begin, keep=True)

    def _commit(self, current: Transaction) -> None:
        try:
            done = current.connection.execute(b"COMMIT", prepare=False)
        except psycopg.OperationalError as error:
            if not current.connection.broken or self._outcome(current, error) != "committed":
                raise
            return
        if done.statusmessage == "ROLLBACK":
            raise StoreError(f"{self.path}: an earlier error has ended this transaction; nothing was written.")

    def _outcome(self, current: Transaction, error: psycopg.Error) -> str:
        """What has become of a transaction whose connection was lost while it was committed."""
        give_up = time.monotonic() + self._busy_seconds

        def ask(connection: Connection) -> str:
            row = connection.execute("SELECT pg_xact_status(%s::text::xid8)", [current.number]).fetchone()
            return str(row[0]) if row else ""

        try:
            while (status := self._try(ask)) == "in progress" and time.monotonic() < give_up:
                time.sleep(_PAUSE)
        except StoreError as away:
            status = str(away)
        if status not in ("committed", "aborted"):
            raise StoreError(
                f"{self.path}: the server went away while a transaction was committed, and it is "
                "unknown whether the commit succeeded "
                f"({status}). Try: look at the session before you repeat the write."
            ) from error
        return status

    def _control(self, statement: str) -> None:
        if self.current is not None:
            self.current.connection.execute(statement.encode(), prepare=False)

    def _is_in_transaction(self) -> bool:
        return self.current is not None and not self.current.connection.broken

    # Statements

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a statement."""
        return self._run(statement, values, lambda cursor: cursor.fetchall())

    def row(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first row of a statement, or None."""
        return self._run(statement, values, lambda cursor: cursor.fetchone())

    def write(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Change something."""
        self._run(statement, values, lambda _: None)

    def write_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """The same change for every row, sent together."""
        waiting = list(rows)
        if len(waiting) == 1:
            self.write(statement, waiting[0])  # in one step, which sending several together is not
            return
        with self._errors, self.writing():
            current = self.current
            if current is not None:
                current.connection.cursor().executemany(_translated(statement), waiting)

    def probe(self, statement: str, seconds: float) -> None:
        """Run a statement over a connection of its own, which is kept, so that a full pool or server is no failure."""
        with self._errors:
            if self._probing is not None:
                try:
                    self._probing.execute(_translated(statement))
                except psycopg.OperationalError:
                    if not self._probing.broken:
                        raise
                    self._probing = None  # it was lost: a new one says how things are now
                else:
                    return
            self._probing = probing(self._address, seconds)
            self._probing.execute(_translated(statement))

    def _run(self, statement: str, values: Sequence[Any], fetch: Callable[[Cursor[Any]], Result]) -> Result:
        def run(connection: Connection) -> Result:
            return fetch(connection.execute(_translated(statement), values, binary=True))

        with self._errors:
            current = self.current
            if current is not None:
                return run(current.connection)
            if statement.startswith("SELECT") and not statement.endswith(self.row_lock):
                return self._try(run)  # asked again it answers the same, and does no harm
            with self.writing():
                return self._run(statement, values, fetch)

    def _try(self, use: Callable[[Connection], Result], *, keep: bool = False) -> Result:
        """Use a connection of the pool. When it turns out to be lost, another one takes its place."""
        if self._is_closed:
            raise StoreError(f"{self.path} is closed. Try: open the session again.")
        give_up = time.monotonic() + self._busy_seconds
        while True:
            connection = self._pool.take()
            try:
                result = use(connection)
            except BaseException as error:
                was_lost = connection.broken
                self._pool.give_back(connection)
                if not (was_lost and isinstance(error, psycopg.OperationalError)) or time.monotonic() > give_up:
                    raise
            else:
                if not keep:
                    self._pool.give_back(connection)
                return result


@lru_cache(maxsize=512)
def _translated(statement: str) -> bytes:
    """A statement as psycopg wants it."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


class PostgresStore(SqlStore):
    """Sessions in a schema of a PostgreSQL database, which is made and brought up to date when it is opened.

    Without `create` one that is not there is an error. Whoever waits longer than `busy_seconds` for a lock, a
    connection, or a server that is being restarted gets an error.
    """

    def __init__(self, url: str, *, create: bool = True, busy_seconds: float = 10.0) -> None:
        super().__init__(PostgresDatabase(read_address(url), busy_seconds, create=create))
