"""One SQLite file: transactions of one thread at a time, and reading beside them."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from context_compactor.errors import StoreError, StoreLocked
from context_compactor.store.database import Joined, Writing, one_of_many, refuse_within
from context_compactor.store.forking import keep_for_ever, rest_at_fork
from context_compactor.store.sqlite_open import MEMORY, Explained, begin, file_id, open_file
from context_compactor.store.sqlite_reader import SqliteReader
from context_compactor.store.sqlite_words import SqliteWords

# Pages that are given back in one transaction, and the most that are written anew at once: 4 MB and 200 MB.
_PAGES, _MOST_REWRITTEN = 1_000, 50_000
# Statements that do nothing, or something else, within a transaction.
_NO_TRANSACTION = ("PRAGMA", "VACUUM")


class SqliteFile:
    """One connection to write and one to read, each for one thread at a time; a forked process makes its own.

    Whoever reads outside of a transaction sees what is committed, and does not wait for who writes.
    """

    row_lock = ""  # whoever writes is the only one
    passages_per_session = 1 << 40

    def __init__(self, path: str, busy_seconds: float) -> None:
        self.path = path
        self.words = SqliteWords(self)
        # The file stays the same one when the process goes to another folder and then forks.
        self._file = path if path == MEMORY else os.path.abspath(path)  # noqa: PTH100  links are not to be followed
        self._busy_seconds = busy_seconds
        self._errors = Explained(path, busy_seconds)
        self._lock = threading.RLock()
        # Held by the one who is next to write: a thread that writes again and again does not pass those who wait.
        self._next = threading.Lock()
        self._current: Writing | None = None
        self._writer = 0  # the thread whose transaction is under way
        self._is_closed = False
        self._is_resting = False
        self._erasing = self._usual_erasing = 0  # how many want what they delete to be overwritten
        self._file_id = (0, 0)
        self._connection: sqlite3.Connection | None = self._connect()
        self._reader = SqliteReader(self._file, busy_seconds)
        rest_at_fork(self)

    def _connect(self) -> sqlite3.Connection:
        with self._errors:
            connection, self.schema = open_file(self.path, self._file, self._busy_seconds)
            self._file_id = file_id(self._file)
            return connection

    def close(self) -> None:
        """Close the connection; a second time does nothing."""
        self._reader.close()
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise StoreError(f"{self.path} is closed. Try: open the session again.")

    def _live(self) -> sqlite3.Connection:
        """The connection to write with. Whoever asks must hold the lock: it is opened when there is none."""
        self._refuse_closed()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def before_fork(self) -> None:
        """Rest while the process forks: SQLite's memory of its locks is inherited, but the locks are not.

        A thread that is in the middle of a transaction is waited for, though not for ever.
        """
        self._reader.before_fork()
        self._is_resting = self._lock.acquire(timeout=self._busy_seconds)
        if self._is_resting and self._current is None and self._connection is not None and self.path != MEMORY:
            self._connection.close()
            self._connection = None

    def after_fork(self) -> None:
        """Go on."""
        self._reader.after_fork()
        if self._is_resting:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Go on in the new process. A transaction that was under way is the parent's, and so is its connection."""
        self._reader.after_fork_in_child()
        self._next = threading.Lock()
        if self._current is not None and (self.path != MEMORY or not self._is_resting):
            keep_for_ever(self._connection)  # closing it here would take back what the parent has written
            self._connection, self._current, self._is_closed = None, None, True
        if self._is_resting:
            self._lock.release()
        else:
            self._lock = threading.RLock()

    @property
    def current(self) -> Writing | None:
        """The transaction of this thread that is under way."""
        return self._current if self._writer == threading.get_ident() else None

    def writing(self) -> AbstractContextManager[None]:
        """A transaction that holds the only right to write: all of it happens, or nothing of it.

        One within another is that one; see `part`.
        """
        current = self.current
        return self._whole() if current is None else Joined(current)

    def part(self) -> AbstractContextManager[None]:
        """A part of the transaction under way, of which all or nothing happens, while the rest goes on."""
        current = self.current
        return self._whole() if current is None else self._part(current)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        with self._turn(), self._errors:
            connection = self._live()
            self._refuse_replaced()
            begin(connection, self._busy_seconds)
            current = self._current = Writing()
            self._writer = threading.get_ident()
            try:
                yield
                if connection is self._connection:  # else this is a forked process: it is the parent's
                    current.refuse_failed(self.path)
                    connection.execute("COMMIT")
            except BaseException:
                if connection is self._connection and connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                self._current, self._writer = None, 0

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The lock, in the order in which it is asked for."""
        lock = self._lock
        with self._next:
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _part(self, current: Writing) -> Iterator[None]:
        with self._errors:
            connection = self._unbroken()
            current.refuse_failed(self.path)
            connection.execute("SAVEPOINT part")
            try:
                yield
                if connection is self._connection:
                    current.refuse_failed(self.path)
                    connection.execute("RELEASE part")
            except BaseException:
                if connection is self._connection and connection.in_transaction:
                    connection.execute("ROLLBACK TO part")
                    connection.execute("RELEASE part")
                current.forget()
                raise

    def alone(self) -> AbstractContextManager[None]:
        """The same, though never within another one: whoever writes is alone in any case."""
        refuse_within(self.current, self.path)
        return self._whole()

    def _unbroken(self) -> sqlite3.Connection:
        """The connection. After some errors, such as a full disk, SQLite has ended the transaction already."""
        connection = self._live()
        if self._current is not None and not connection.in_transaction:
            raise StoreError(f"{self.path}: an earlier error has ended this transaction; nothing of it was written.")
        return connection

    def _refuse_replaced(self) -> None:
        """What is written to a file that was deleted would be gone with the process."""
        if file_id(self._file) != self._file_id:
            raise StoreError(
                f"{self.path} was deleted or replaced while it was open. Try: put it back, or open the session again."
            )

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a statement."""
        with self._errors, self._using(statement) as connection:
            return connection.execute(statement, values).fetchall()

    def row(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first row of a statement, or None."""
        with (
            self._errors,
            self._using(statement) as connection,
            closing(connection.execute(statement, values)) as cursor,
        ):
            return cursor.fetchone()

    @contextmanager
    def _using(self, statement: str) -> Iterator[sqlite3.Connection]:
        is_outside = self.current is None
        if is_outside and self._file != MEMORY and statement.startswith("SELECT"):
            self._refuse_closed()
            self._refuse_replaced()
            with self._reader.using() as connection:
                yield connection
        elif is_outside and not statement.startswith(("SELECT", *_NO_TRANSACTION)):
            with self._whole():
                yield self._live()
        else:
            with self._lock:
                yield self._unbroken()

    def write(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Change something."""
        with self._errors, self._using(statement) as connection:
            connection.execute(statement, values)

    def write_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """The same change for every row."""
        with self.writing():
            self._live().executemany(statement, rows)

    @contextmanager
    def erasing(self) -> Iterator[None]:
        """Within it, what is deleted is overwritten with zeros."""
        self._erase(+1)
        try:
            yield
        finally:
            self._erase(-1)

    def _erase(self, more: int) -> None:
        """It costs writes, so it is switched on while somebody wants it; several may. Some builds have it always on."""
        with self._lock:
            if not self._erasing:
                self._usual_erasing = self._pragma("secure_delete")
            self._erasing += more
            self.rows(f"PRAGMA secure_delete = {1 if self._erasing else self._usual_erasing}")

    def shrink(self) -> None:
        """Give free pages back to the disk, some in each transaction, and begin the write-ahead log anew.

        A file that was made before this was possible is written anew once, unless that takes long.
        """
        if self._file == MEMORY:
            return
        with suppress(StoreLocked):  # the pages are used again, and given back after the next deletion
            if not self._pragma("auto_vacuum") and self._pragma("page_count") <= _MOST_REWRITTEN:
                self.rows("PRAGMA auto_vacuum = INCREMENTAL")
                self.rows("VACUUM")
            free = 0
            while free != (free := self._pragma("freelist_count")):
                self._give_back_pages()
            self.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def _give_back_pages(self) -> None:
        with one_of_many(self._lock), self._errors:
            self._live().executescript(f"PRAGMA incremental_vacuum({_PAGES})")  # `execute` would end after one page

    def _pragma(self, name: str) -> int:
        return int(self.row(f"PRAGMA {name}")[0])

    def probe(self, statement: str, seconds: float) -> None:
        """Run a statement over a connection of its own: it does not wait for our threads, nor long for others."""
        if self._file == MEMORY:
            self.write(statement)
            return
        self._refuse_closed()
        self._refuse_replaced()
        place = f"{Path(self._file).as_uri()}?mode=rw"  # a file that is gone is not made anew
        with (
            Explained(self.path, seconds),
            closing(sqlite3.connect(place, uri=True, timeout=seconds, isolation_level=None)) as connection,
        ):
            connection.execute(statement).fetchall()

    def by_index(self, name: str) -> str:
        """What makes SQLite use an index of the table before it."""
        return f" INDEXED BY {name}"
