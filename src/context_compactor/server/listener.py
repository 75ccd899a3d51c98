"""Runs the app with uvicorn: listen, and a shutdown that finishes what was begun."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from context_compactor.server.app import make_app
from context_compactor.server.config import ServerConfig, bind, url_of
from context_compactor.server.dashboard.layout import on_not_found
from context_compactor.server.dashboard.routes import dashboard_routes
from context_compactor.server.middleware import connection_class
from context_compactor.server.quiet_server import QuietServer
from context_compactor.server.service import Service


class Listener(QuietServer):
    """The server of an app whose streams have to be ended before it can finish."""

    def __init__(self, config: uvicorn.Config, on_shutdown: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_shutdown = on_shutdown

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish. Requests without an end are ended first, since all are waited for."""
        self._on_shutdown()
        await super().shutdown(sockets)


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
