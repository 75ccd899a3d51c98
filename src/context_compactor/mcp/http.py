"""The server over HTTP: for this machine alone, unless tokens say who may call."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from mcp.server import Server
from msgspec import Struct
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from context_compactor.mcp.server import MAY_WRITE
from context_compactor.server.config import bind, check_address, url_of
from context_compactor.server.quiet_server import QuietServer

PATH = "/mcp"
_BEARER = "bearer "
_STOP_SECONDS = 5
_NO_TOKEN = PlainTextResponse(
    "No token that is known here was sent. Try: the header `Authorization: Bearer TOKEN`; "
    "`compactor token list` on the server.",
    401,
    {"WWW-Authenticate": "Bearer"},
)
_OTHER_PAGE = PlainTextResponse("Pages of other sites may not call this server.", 403)

TokenCheck = Callable[[str], bool | None]
"""Whether the caller with a token may write; None when nobody has it."""


class ListenAddress(Struct, frozen=True):
    """Where to listen, and who may call."""

    host: str = "127.0.0.1"
    port: int = 8378
    check_token: TokenCheck | None = None

    def __post_init__(self) -> None:
        check_address(self.host, self.port, has_tokens=self.check_token is not None)


class _McpListener(QuietServer):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish. A client that listens for news is cut off from now on, which uvicorn would call an error."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)


def serve_http(server: Server[Any], where: ListenAddress, on_listening: Callable[[str], None]) -> None:
    """Serve until somebody says stop. `on_listening` is called with the address once it can be called."""
    listening = bind(where.host, where.port)
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
    on_listening(url_of(where.host, listening) + PATH)
    _McpListener(config).run(sockets=[listening])


def with_authentication(app: ASGIApp, where: ListenAddress) -> ASGIApp:
    """The same app for those who have a token, when tokens are asked for, and never for pages of other sites."""

    async def guard(connection: Scope, receive: Receive, send: Send) -> None:
        if connection["type"] == "http" and where.check_token is not None:
            headers = {name: value.decode("latin-1") for name, value in connection["headers"]}
            may_write = _may_write(where.check_token, headers.get(b"authorization", ""))
            refusal = _NO_TOKEN if may_write is None else None if _is_own_page(headers) else _OTHER_PAGE
            if refusal is not None:
                await refusal(connection, receive, send)
                return
            connection[MAY_WRITE] = may_write
        await app(connection, receive, send)

    return guard


def _may_write(check_token: TokenCheck, given: str) -> bool | None:
    return check_token(given[len(_BEARER) :].strip()) if given[: len(_BEARER)].lower() == _BEARER else None


def _is_own_page(headers: dict[bytes, str]) -> bool:
    """A browser says from which site a page comes; other programs say nothing."""
    origin, host = headers.get(b"origin"), headers.get(b"host", "")
    return origin is None or origin in (f"http://{host}", f"https://{host}")
