"""Work while nothing else is to be done: after some quiet seconds, in a thread that ends with the program."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic

from context_compactor.errors import CompactorError

_log = logging.getLogger("context_compactor")
_LAST_SECONDS = 0.5


class Idle:
    """Does some work once `seconds` have passed since the last `touch`. The thread is started by the first one.

    `end` cancels work that is under way, and waits for it.
    """

    def __init__(self, seconds: float, work: Callable[[], object], end: Callable[[], object] = lambda: None) -> None:
        self._seconds = seconds
        self._work = work
        self._end = end
        self._due: float | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def touch(self) -> None:
        """Something happened: wait anew."""
        if self._seconds <= 0:
            return
        with self._changed:
            self._due = monotonic() + self._seconds
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="context-compactor idle", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """End what is under way and stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        while self._wait():
            try:
                self._work()
            except CompactorError as error:  # it will be done at the next compaction
                if not self._is_closed:
                    _log.warning("work while idle failed: %s", error)

    def _wait(self) -> bool:
        with self._changed:
            while not self._is_closed:
                left = None if self._due is None else self._due - monotonic()
                if left is not None and left <= 0:
                    self._due = None
                    return True
                self._changed.wait(left)
            return False
