"""The server over HTTP: for this machine alone, unless tokens say who may call."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from mcp.server import Server
from msgspec import Struct
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from context_compactor.errors import BadSetting
from context_compactor.mcp.server import MAY_WRITE

PATH = "/mcp"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_BEARER = "bearer "
_STOP_SECONDS = 5

TokenCheck = Callable[[str], bool | None]
"""Whether the caller with a token may write; None when nobody has it."""


class ListenAddress(Struct, frozen=True):
    """Where to listen, and who may call."""

    host: str = "127.0.0.1"
    port: int = 8378
    admit: TokenCheck | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65_536:
            raise BadSetting(
                f"--port: {self.port} is not a port number. Try: a number from 1 to 65535, or 0 for a free one."
            )
        if self.admit is None and self.host not in LOOPBACK:
            raise BadSetting(
                f"--host: {self.host!r:.80} is reachable from other machines, and no token file limits who may call. "
                "Try: `compactor token add NAME`, then --token-file; or --host 127.0.0.1."
            )


def serve_http(server: Server[Any], where: ListenAddress, told: Callable[[str], None]) -> None:
    """Serve until somebody says stop. `told` is called with the address once it can be called."""
    place = _bind(where)
    name = f"[{where.host}]" if ":" in where.host else where.host
    # On loopback the library itself refuses other names and pages of other sites.
    app = server.streamable_http_app(streamable_http_path=PATH, host=where.host)
    config = uvicorn.Config(
        with_authentication(app, where),
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    told(f"http://{name}:{place.getsockname()[1]}{PATH}")
    _QuietServer(config).run(sockets=[place])


class _QuietServer(uvicorn.Server):
    """A server that ends quietly after Ctrl-C or SIGTERM."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish. A client that listens for news is cut off from now on, which uvicorn would call an error."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on the first signal; a second Ctrl-C does not wait. Nothing is raised when all is done."""
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, known in before.items():
                signal.signal(each, known)


def _bind(where: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        return socket.create_server((where.host, where.port), family=family, backlog=128)
    except OSError as error:
        other = "--host" if isinstance(error, socket.gaierror) else "--port"
        raise BadSetting(
            f"cannot listen at {where.host}:{where.port}: {error.strerror or error}. Try: another {other}."
        ) from error


def with_authentication(app: ASGIApp, where: ListenAddress) -> ASGIApp:
    """The same app for those who have a token, when tokens are asked for, and never for pages of other sites."""

    async def guard(connection: Scope, receive: Receive, send: Send) -> None:
        if connection["type"] == "http" and where.admit is not None:
            headers = {name: value.decode("latin-1") for name, value in connection["headers"]}
            may_write = _may_write(where.admit, headers.get(b"authorization", ""))
            if may_write is None:
                refusal = PlainTextResponse(
                    "No token that is known here was sent. Try: the header `Authorization: Bearer TOKEN`; "
                    "`compactor token list` on the server.",
                    401,
                    {"WWW-Authenticate": "Bearer"},
                )
                await refusal(connection, receive, send)
                return
            if not _is_own_page(headers):
                await PlainTextResponse("Pages of other sites may not call this server.", 403)(
                    connection, receive, send
                )
                return
            connection[MAY_WRITE] = may_write
        await app(connection, receive, send)

    return guard


def _may_write(admit: TokenCheck, given: str) -> bool | None:
    return admit(given[len(_BEARER) :].strip()) if given[: len(_BEARER)].lower() == _BEARER else None


def _is_own_page(headers: dict[bytes, str]) -> bool:
    """A browser says from which site a page comes; other programs say nothing."""
    origin, host = headers.get(b"origin"), headers.get(b"host", "")
    return origin is None or origin in (f"http://{host}", f"https://{host}")
