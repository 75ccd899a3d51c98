"""Runs the app with uvicorn: bind, listen, and a shutdown that finishes what was begun."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from context_compactor.errors import BadSetting
from context_compactor.server.app import make_app
from context_compactor.server.config import ServerConfig
from context_compactor.server.dashboard.layout import on_not_found
from context_compactor.server.dashboard.routes import dashboard_routes
from context_compactor.server.middleware import connection_class
from context_compactor.server.service import Service

_BACKLOG = 2048


class Listener(uvicorn.Server):
    """A server that ends quietly: after Ctrl-C or SIGTERM it finishes its requests and returns."""

    def __init__(self, config: uvicorn.Config, on_shutdown: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_shutdown = on_shutdown

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish. Requests without an end are ended first, since all are waited for."""
        self._on_shutdown()
        await super().shutdown(sockets)

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


def listen(config: ServerConfig, on_listening: Callable[[str], None] = lambda _: None) -> bool:
    """Serve until somebody says stop. `on_listening` is called with the address once it can be called.

    False when somebody would not wait until everything was finished: what is under way then has no end in sight.
    """
    listening = bind(config.host, config.port)
    try:
        service = Service(config)
    except BaseException:
        listening.close()
        raise
    on_listening(url_of(config.host, listening))
    listener = listener_of(service)
    listener.run(sockets=[listening])
    return not listener.force_exit


def listener_of(service: Service) -> Listener:
    """What listens for a service, set up but not running."""
    return Listener(
        uvicorn.Config(
            make_app(service, dashboard_routes(service), on_not_found),
            http=connection_class(service.config.body_seconds),
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=service.config.stop_seconds,
        ),
        service.begin_shutdown,
    )


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at an address, or an error that says why not."""
    name = host.strip("[]")
    try:
        family, *_, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
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
