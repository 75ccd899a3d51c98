"""Listening at an address, and a uvicorn server that ends quietly; for the API and for MCP over HTTP."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from context_compactor.errors import BadSetting

_BACKLOG = 2048


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


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at an address, or an error that says why not."""
    try:
        family, *_, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        other = "--host" if isinstance(error, socket.gaierror) else "--port"
        raise BadSetting(f"cannot listen at {host}:{port}: {error.strerror or error}. Try: another {other}.") from error
    return listening


def url_of(host: str, listening: socket.socket) -> str:
    """Where a socket listens, as a URL."""
    name = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{name}:{listening.getsockname()[1]}"
