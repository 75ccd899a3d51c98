"""The store of one machine: one SQLite file, transactions of one thread at a time, reading beside them, and its word
index."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from context_compactor.errors import StoreError, StoreLocked
from context_compactor.store.database import (
    Database,
    Forkable,
    OpenTransaction,
    WordIndex,
    WordQuery,
    never_close,
    pause_at_fork,
    short_transaction,
)
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite_connection import MEMORY, begin, explained_errors, file_id, open_file


class SqliteReader(Forkable):
    """A connection that is opened when it is first used, by one thread at a time."""

    def __init__(self, file: str, busy_seconds: float) -> None:
        self._file = file
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._is_paused = False
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """The connection, for the length of the block."""
        with self._lock:
            if self._connection is None:
                self._connection = sqlite3.connect(
                    self._file, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
                )
                self._connection.execute("PRAGMA query_only = 1")
            yield self._connection

    def close(self) -> None:
        """Close the connection. One that is needed again is opened again."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def before_fork(self) -> None:
        """Pause while the process forks. A thread that is reading is waited for, though not for ever."""
        self._is_paused = self._lock.acquire(timeout=self._busy_seconds)
        if self._is_paused:
            self._drop()

    def after_fork(self) -> None:
        """Go on."""
        if self._is_paused:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Go on in the new process. A connection in use is the parent's."""
        if self._is_paused:
            self._lock.release()
        else:
            never_close(self._connection)
            self._connection, self._lock = None, threading.Lock()


# As many pages of the index are merged in one transaction.
_MERGE_PAGES = 200
# As many are merged whenever something is added. Left to itself, FTS5 merges so much now and then that others wait.
_PAGES_WITH_NEW = 32


class SqliteWordIndex(WordIndex):
    """The terms of each run, in a full-text table."""

    column = "rowid"
    where = "FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ?"

    def add(self, runs: Iterable[tuple[int, str]]) -> None:
        """Note the terms of runs."""
        with self._database.writing():
            self._database.write_many("INSERT INTO words (rowid, terms) VALUES (?, ?)", runs)
            self._database.write("INSERT INTO words (words, rank) VALUES ('merge', ?)", [_PAGES_WITH_NEW])

    def remove(self, runs: Iterable[tuple[int, str]]) -> None:
        """Forget runs. A table without texts needs the terms that a run had."""
        self._database.write_many("INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)", runs)

    def purge(self) -> None:
        """Merge all parts of the index into one: until then what was forgotten stands in the older ones."""
        pages = -_MERGE_PAGES
        while self._merge(pages) > 1:  # a step that finds nothing to do changes one row
            pages = _MERGE_PAGES

    def _merge(self, pages: int) -> int:
        """Merge some pages; how many rows that changed. A negative number begins with all parts there are."""
        with short_transaction(self._database.writing()):
            before = self._changes()
            self._database.write("INSERT INTO words (words, rank) VALUES ('merge', ?)", [pages])
            return self._changes() - before

    def _changes(self) -> int:
        return int(self._database.row("SELECT total_changes()")[0])

    def numbers(self, wanted: WordQuery) -> list[int]:
        """The numbers of all that are wanted."""
        row = self._database.row(f"SELECT json_group_array(rowid) {self.where}", self._values(wanted))
        return msgspec.json.decode(row[0], type=list[int])

    def _values(self, wanted: WordQuery) -> list[object]:
        groups = ("(" + " OR ".join(f'"{term}"' for term in group) + ")" for group in wanted.groups)
        return [" AND ".join(groups), wanted.first, wanted.last]


# Pages that are given back in one transaction, and the most that are written anew at once: 4 MB and 200 MB.
_PAGES, _MOST_REWRITTEN = 1_000, 50_000
# Statements that do nothing, or something else, within a transaction.
_NO_TRANSACTION = ("PRAGMA", "VACUUM")


class SqliteDatabase(Database, Forkable):
    """One connection to write and one to read, each for one thread at a time; a forked process makes its own.

    Whoever reads outside of a transaction sees what is committed, and does not wait for who writes.
    """

    row_lock = ""  # whoever writes is the only one
    passages_per_session = 1 << 40

    def __init__(self, path: str, busy_seconds: float) -> None:
        self.path = path
        self.words = SqliteWordIndex(self)
        # The file stays the same one when the process goes to another folder and then forks.
        self._file = path if path == MEMORY else os.path.abspath(path)  # noqa: PTH100  links are not to be followed
        self._busy_seconds = busy_seconds
        self._errors = explained_errors(path, busy_seconds)
        self._lock = threading.RLock()
        # Held by the one who is next to write: a thread that writes again and again does not pass those who wait.
        self._next = threading.Lock()
        self._current: OpenTransaction | None = None
        self._writer = 0  # the thread whose transaction is under way
        self._is_closed = False
        self._is_paused = False
        self._erasing = self._usual_erasing = 0  # how many want what they delete to be overwritten
        self._file_id = (0, 0)
        self._connection: sqlite3.Connection | None = self._connect()
        self._reader = SqliteReader(self._file, busy_seconds)
        pause_at_fork(self)

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
        """Pause while the process forks: SQLite's memory of its locks is inherited, but the locks are not.

        A thread that is in the middle of a transaction is waited for, though not for ever.
        """
        self._reader.before_fork()
        self._is_paused = self._lock.acquire(timeout=self._busy_seconds)
        if self._is_paused and self._current is None and self._connection is not None and self.path != MEMORY:
            self._connection.close()
            self._connection = None

    def after_fork(self) -> None:
        """Go on."""
        self._reader.after_fork()
        if self._is_paused:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Go on in the new process. A transaction that was under way is the parent's, and so is its connection."""
        self._reader.after_fork_in_child()
        self._next = threading.Lock()
        if self._current is not None and (self.path != MEMORY or not self._is_paused):
            never_close(self._connection)  # closing it here would take back what the parent has written
            self._connection, self._current, self._is_closed = None, None, True
        if self._is_paused:
            self._lock.release()
        else:
            self._lock = threading.RLock()

    @property
    def current(self) -> OpenTransaction | None:
        """The transaction of this thread that is under way."""
        return self._current if self._writer == threading.get_ident() else None

    @contextmanager
    def _transaction(self, *, alone: bool = False) -> Iterator[None]:  # noqa: ARG002  whoever writes is alone
        with self._turn(), self._errors:
            connection = self._live()
            self._refuse_replaced()
            begin(connection, self._busy_seconds)
            current = self._current = OpenTransaction()
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

    def _control(self, statement: str) -> None:
        self._unbroken().execute(statement)

    def _is_in_transaction(self) -> bool:
        return self._connection is not None and self._connection.in_transaction

    def _unbroken(self) -> sqlite3.Connection:
        """The connection. After some errors, such as a full disk, SQLite has ended the transaction already."""
        connection = self._live()
        if self._current is not None and not connection.in_transaction:
            raise StoreError(f"{self.path}: an earlier error has ended this transaction; nothing was written.")
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
            with self._transaction():
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
        with short_transaction(self._lock), self._errors:
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
            explained_errors(self.path, seconds),
            closing(sqlite3.connect(place, uri=True, timeout=seconds, isolation_level=None)) as connection,
        ):
            connection.execute(statement).fetchall()

    def by_index(self, name: str) -> str:
        """What makes SQLite use an index of the table before it."""
        return f" INDEXED BY {name}"


class SqliteStore(SqlStore):
    """Sessions in a SQLite file. Whoever waits longer than `busy_seconds` for another to write gets an error."""

    def __init__(self, path: str = MEMORY, *, busy_seconds: float = 10.0) -> None:
        super().__init__(SqliteDatabase(path, busy_seconds))
