"""One schema of a PostgreSQL database: a pool of connections, transactions by thread, readable errors.

A connection that is lost while nothing was written is replaced and the statement sent again. One that is lost while a
transaction is committed leaves open whether it was; the server is asked by the transaction's number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg import Connection, Cursor

from context_compactor.errors import StoreError
from context_compactor.store.database import Joined, Writing, refuse_within
from context_compactor.store.forking import keep_for_ever, rest_at_fork
from context_compactor.store.migrate import Migrated
from context_compactor.store.postgres_address import Address
from context_compactor.store.postgres_errors import explain
from context_compactor.store.postgres_locks import LOCK_ALONE, LOCK_SHARED
from context_compactor.store.postgres_migrate import migrate
from context_compactor.store.postgres_pool import Pool, opened, probing
from context_compactor.store.postgres_words import PostgresWords

_PAUSE = 0.05
Result = TypeVar("Result")


class Transaction(Writing):
    """What a thread is writing: its connection, and the number by which the server knows it."""

    def __init__(self, connection: Connection, number: str) -> None:
        super().__init__()
        self.connection = connection
        self.number = number


class PostgresDatabase:
    """Connections that any thread may use, as many at once as the address says; a forked process makes its own."""

    row_lock = " FOR UPDATE"
    passages_per_session = 1 << 32

    def __init__(self, address: Address, busy_seconds: float, *, create: bool = True) -> None:
        self.path = address.name
        self.words = PostgresWords(self)
        self._address = address
        self._busy_seconds = busy_seconds
        self._own = threading.local()
        self._is_closed = False
        self._pool = Pool(address, busy_seconds)
        self._probing: Connection | None = None
        self.schema = self._migrate(create)
        rest_at_fork(self)

    def _migrate(self, create: bool) -> Migrated:
        with self._errors(), opened(self._address, self._busy_seconds) as connection:
            return migrate(connection, self._address, create=create)

    def close(self) -> None:
        """Close all connections; a second time does nothing."""
        self._is_closed = True
        self._pool.close()
        if self._probing is not None:
            self._probing.close()

    # Forks

    def before_fork(self) -> None:
        """Nothing: a connection may live through a fork in the parent."""

    def after_fork(self) -> None:
        """Nothing: the parent goes on."""

    def after_fork_in_child(self) -> None:
        """Leave the parent its connections. A transaction that was under way is the parent's too."""
        keep_for_ever(self._pool)
        keep_for_ever(self._probing)
        self._probing = None
        self._pool = Pool(self._address, self._busy_seconds)
        if self.current is not None:
            keep_for_ever(self.current)
            self._is_closed = True
        self._own = threading.local()

    # Transactions

    @property
    def current(self) -> Transaction | None:
        """The transaction of this thread that is under way."""
        return getattr(self._own, "transaction", None)

    def writing(self) -> AbstractContextManager[None]:
        """A transaction of this thread: all of it happens, or nothing of it. One within another is that one."""
        current = self.current
        return self._whole(LOCK_SHARED) if current is None else Joined(current)

    def part(self) -> AbstractContextManager[None]:
        """A part of the transaction under way, of which all or nothing happens, while the rest goes on."""
        current = self.current
        return self._whole(LOCK_SHARED) if current is None else self._part(current)

    def alone(self) -> AbstractContextManager[None]:
        """A transaction during which nobody else writes anything. It cannot be within another one."""
        refuse_within(self.current, self.path)
        return self._whole(LOCK_ALONE)

    @contextmanager
    def _whole(self, lock: bytes) -> Iterator[None]:
        with self._errors():
            current = self._begin(lock)
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
            raise StoreError(f"{self.path}: an earlier error has ended this transaction; nothing of it was written.")

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
                f"{self.path}: the server went away while a transaction was committed, and does not say whether it was "
                f"({status}). Try: look at the session before you write the same again."
            ) from error
        return status

    @contextmanager
    def _part(self, current: Transaction) -> Iterator[None]:
        with self._errors():
            current.refuse_failed(self.path)
            current.connection.execute(b"SAVEPOINT part", prepare=False)
            try:
                yield
                if self.current is current:
                    current.refuse_failed(self.path)
                    current.connection.execute(b"RELEASE part", prepare=False)
            except BaseException:
                if self.current is current and not current.connection.broken:
                    current.connection.execute(b"ROLLBACK TO part; RELEASE part", prepare=False)
                current.forget()
                raise

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
        with self._errors(), self.writing():
            current = self.current
            if current is not None:
                current.connection.cursor().executemany(_translated(statement), waiting)

    def erasing(self) -> AbstractContextManager[None]:
        """Nothing: what is deleted goes when the server vacuums."""
        return nullcontext()

    def shrink(self) -> None:
        """Nothing: the server vacuums by itself."""

    def probe(self, statement: str, seconds: float) -> None:
        """Run a statement over a connection of its own, which is kept, so that a full pool or server is no failure."""
        with self._errors():
            if self._probing is not None:
                try:
                    self._probing.execute(_translated(statement))
                except psycopg.OperationalError:
                    if not self._probing.broken:
                        raise
                    self._probing = None  # it was lost: a new one tells how things stand now
                else:
                    return
            self._probing = probing(self._address, seconds)
            self._probing.execute(_translated(statement))

    def by_index(self, name: str) -> str:  # noqa: ARG002  the planner knows best
        """Nothing: the planner chooses."""
        return ""

    def _run(self, statement: str, values: Sequence[Any], fetch: Callable[[Cursor[Any]], Result]) -> Result:
        def run(connection: Connection) -> Result:
            return fetch(connection.execute(_translated(statement), values, binary=True))

        with self._errors():
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

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise explain(error, self.path, self._busy_seconds) from error


@lru_cache(maxsize=512)
def _translated(statement: str) -> bytes:
    """A statement as psycopg wants it."""
    return statement.replace("%", "%%").replace("?", "%s").encode()
