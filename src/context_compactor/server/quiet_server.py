"""A uvicorn server that ends quietly; for the API and for MCP over HTTP."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


class QuietServer(uvicorn.Server):
    """A server that finishes its requests and returns after Ctrl-C or SIGTERM."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on the first signal; a second Ctrl-C does not wait. Nothing is raised when all is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, kept in before.items():
                signal.signal(number, kept)
