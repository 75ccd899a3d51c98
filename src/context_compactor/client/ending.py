"""Ending a stream from another thread, whatever it waits for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Ending:
    """Ends one stream: what it reads from is cut off, and what it waits for is over."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._line: socket.socket | None = None

    @property
    def is_over(self) -> bool:
        """Whether the stream is to end."""
        return self._over.is_set()

    def wait(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        self._over.wait(seconds)

    def end(self) -> None:
        """End the stream; any thread may do so, and a second time does nothing."""
        self._over.set()
        with self._lock:
            self._cut()

    @contextmanager
    def reading(self, line: socket.socket) -> Iterator[None]:
        """While the block runs, the end cuts this line off: whoever reads from it finds that there is no more."""
        with self._lock:
            self._line = line
            if self.is_over:
                self._cut()
        try:
            yield
        finally:
            with self._lock:
                self._line = None

    def _cut(self) -> None:
        if self._line is not None:
            with suppress(OSError):  # the other side was first
                socket.socket.shutdown(self._line, socket.SHUT_RDWR)  # of TLS too only the line, which is being read
