"""A second connection to a SQLite file, for those who only read: they do not wait for who writes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from context_compactor.store.forking import keep_for_ever


class SqliteReader:
    """A connection that is opened when it is first used, by one thread at a time."""

    def __init__(self, file: str, busy_seconds: float) -> None:
        self._file = file
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._is_resting = False
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
        """Rest while the process forks. A thread that is reading is waited for, though not for ever."""
        self._is_resting = self._lock.acquire(timeout=self._busy_seconds)
        if self._is_resting:
            self._drop()

    def after_fork(self) -> None:
        """Go on."""
        if self._is_resting:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Go on in the new process. A connection in use is the parent's."""
        if self._is_resting:
            self._lock.release()
        else:
            keep_for_ever(self._connection)
            self._connection, self._lock = None, threading.Lock()
