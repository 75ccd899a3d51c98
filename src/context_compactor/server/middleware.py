"""What stands before the routes: limits on a connection, authentication, and checks of host and origin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from litestar import Request
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Send
from litestar.types import Scope as Connection
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from context_compactor.server.problems import RequestRefused, problem_of, problem_response
from context_compactor.server.tokens import Scope, TokenFile

ABORT = "context_compactor.abort"
"""Where the scope of a request has the function that ends its connection at once."""

_MAX_HEAD_BYTES = 64 * 1024
_READ_BYTES = 8 * 1024
_HEAD_SECONDS = 20.0


class BoundedConnection(HttpToolsProtocol):
    """Like its base, which would read a head of any length, and wait for the end of a request for ever.

    Whoever answers a request limits its body. What is no body is limited here: the head, and the headers that may
    follow the last chunk.
    """

    head_seconds = _HEAD_SECONDS
    body_seconds = 60.0
    _loose_bytes = 0
    """Bytes since the last that were body, or since a head began or ended."""
    _is_in_head = True
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come: its first request must follow."""
        super().connection_made(transport)
        self._expect(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, piece: bytes) -> None:
        """Some bytes of it, read a few at a time, so that what is too long is not kept first."""
        for first in range(0, len(piece), _READ_BYTES):
            if self.transport.is_closing():
                return
            part = piece[first : first + _READ_BYTES]
            self._loose_bytes += len(part)
            super().data_received(part)
            if self._loose_bytes > _MAX_HEAD_BYTES:
                self._refuse()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]
        self._loose_bytes, self._is_in_head = 0, True
        self._expect(self.head_seconds)

    def on_headers_complete(self) -> None:
        """Its head is there; the body must follow."""
        self._loose_bytes, self._is_in_head = 0, False
        self._expect(self.body_seconds)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Some of its body is there."""
        self._loose_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._expect(None)
        super().on_message_complete()

    def _expect(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._give_up)

    def _refuse(self) -> None:
        if self._is_in_head and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")
        self._give_up()

    def _unsupported_upgrade_warning(self) -> None:
        """A client that would like to speak otherwise is answered as if it had not said so."""

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def connection_class(body_seconds: float) -> type[BoundedConnection]:
    """The connections of a server that waits so long for a request's body."""
    return type("Connection", (BoundedConnection,), {"body_seconds": body_seconds})


_BEARER = "bearer "


class Authenticator:
    """Knows the tokens. Without a token file everybody on this machine may do everything in the default namespace."""

    def __init__(self, tokens: TokenFile | None) -> None:
        self._tokens = tokens

    @property
    def requires_token(self) -> bool:
        """Whether anybody is asked for a token at all."""
        return self._tokens is not None

    def authenticate(self, request: Request[Any, Any, Any], *, writes: bool, from_page: bool = False) -> Scope:
        """What the caller may see and do, or `RequestRefused`.

        Whoever has logged in to the dashboard may read with its cookie too; to change something the request must come
        `from_page`, one of our own.
        """
        given = request.headers.get("authorization", "")
        if not given and (from_page or not writes):
            given = _token_from_cookie(request)
        scope = self._scope(given)
        if writes and not scope.may_write:
            raise RequestRefused(403, "This token may only read. Try: one that was made without --read-only.")
        return scope

    def knows(self, token: str) -> bool:
        """Whether somebody with this token may come in."""
        return self._tokens is not None and self._tokens.find(token) is not None

    def _scope(self, given: str) -> Scope:
        if self._tokens is None:
            return Scope()
        if not given:
            raise RequestRefused(401, "No token was sent. Try: the header `Authorization: Bearer TOKEN`.")
        found = self._tokens.find(given[len(_BEARER) :].strip()) if given[: len(_BEARER)].lower() == _BEARER else None
        if found is None:
            raise RequestRefused(401, "This token is not known. Try: `compactor token list` on the server.")
        return found


def cookie_name(headers: Mapping[str, str]) -> str:
    """What the dashboard's cookie is called. A browser does not tell ports apart, so the name does."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"compactor_{port}" if port.isascii() and port.isdigit() else "compactor"


def _token_from_cookie(request: Request[Any, Any, Any]) -> str:
    token = request.cookies.get(cookie_name(request.headers), "")
    return _BEARER + token if token else ""


def guard_hosts_and_origins(app: ASGIApp, hosts: Iterable[str] | None, origins: Iterable[str]) -> ASGIApp:
    """The same app for those who call it by its name, from a page of its own or from no page at all.

    A web page that had its own name led to this machine would come with that name; any other page says whose it is, or
    its browser that it is another's. Every answer says that it is what it is called, and for nobody else to keep.
    """
    known = None if hosts is None else frozenset(hosts)
    allowed = frozenset(origins)

    async def guarded(connection: Connection, receive: Receive, send: Send) -> None:
        if connection["type"] == ScopeType.HTTP:
            send = _with_security_headers(send)
            found = {name: value.decode("latin-1") for name, value in connection["headers"] if name in _CHECKED_HEADERS}
            host, origin = found.get(b"host", ""), found.get(b"origin")
            is_elsewhere = connection["method"] not in _SAFE_METHODS and found.get(b"sec-fetch-site") == "cross-site"
            reason = _objection(host, origin, known, allowed, is_elsewhere=is_elsewhere)
            if reason:
                await problem_response(problem_of(RequestRefused(403, reason)))(connection, receive, send)
                return
        await app(connection, receive, send)

    return guarded


_CHECKED_HEADERS: frozenset[bytes] = frozenset({b"host", b"origin", b"sec-fetch-site"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_NOT_MODIFIED = 304


def _with_security_headers(send: Send) -> Send:
    """The same with the headers that every answer has, unless it says otherwise itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] != _NOT_MODIFIED:
            there = [(name.lower(), value) for name, value in message["headers"]]
            names = {name for name, _ in there}
            message["headers"] = [*there, *(each for each in _SECURITY_HEADERS if each[0] not in names)]
        await send(message)

    return sending


def _objection(
    host: str, origin: str | None, known: frozenset[str] | None, allowed: frozenset[str], *, is_elsewhere: bool
) -> str:
    if known is not None and host_name(host) not in known:
        return f"The server is not called {host[:80]!r}. Try: http://127.0.0.1, or a token file to be called otherwise."
    if origin is not None and origin not in allowed and origin not in (f"http://{host}", f"https://{host}"):
        return f"Pages of {origin[:80]!r} may not call this server. Try: --allow-origin."
    if is_elsewhere and origin not in allowed:
        return "Pages of other sites may not write to this server. Try: --allow-origin."
    return ""


def host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    name = host.lower()
    return name if name.endswith("]") else name.rpartition(":")[0] or name
