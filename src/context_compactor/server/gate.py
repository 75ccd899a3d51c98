"""The gate: who may come in, from where, and what for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from litestar import Request
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Send
from litestar.types import Scope as Connection

from context_compactor.server.problems import Refused, problem_of, problem_response
from context_compactor.server.scope import Scope
from context_compactor.server.tokens import TokenFile

_BEARER = "bearer "
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class Doorman:
    """Knows the tokens. Without a token file everybody on this machine may do everything in the default namespace."""

    def __init__(self, tokens: TokenFile | None) -> None:
        self._tokens = tokens

    @property
    def needs_token(self) -> bool:
        """Whether anybody is asked for a token at all."""
        return self._tokens is not None

    def admit(self, request: Request[Any, Any, Any], *, writes: bool, from_page: bool = False) -> Scope:
        """What the caller may see and do, or `Refused`.

        Whoever has logged in to the dashboard may read with its cookie too; to change something the request must come
        `from_page`, one of our own.
        """
        given = request.headers.get("authorization", "")
        if not given and (from_page or not writes):
            given = _from_cookie(request)
        scope = self._scope(given)
        if writes and not scope.may_write:
            raise Refused(403, "This token may only read. Try: one that was made without --read-only.")
        return scope

    def knows(self, token: str) -> bool:
        """Whether somebody with this token may come in."""
        return self._tokens is not None and self._tokens.find(token) is not None

    def _scope(self, given: str) -> Scope:
        if self._tokens is None:
            return Scope()
        if not given:
            raise Refused(401, "No token was sent. Try: the header `Authorization: Bearer TOKEN`.")
        found = self._tokens.find(given[len(_BEARER) :].strip()) if given[: len(_BEARER)].lower() == _BEARER else None
        if found is None:
            raise Refused(401, "This token is not known. Try: `compactor token list` on the server.")
        return found


def cookie_name(headers: Mapping[str, str]) -> str:
    """What the dashboard's cookie is called. A browser does not tell ports apart, so the name does."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"compactor_{port}" if port.isascii() and port.isdigit() else "compactor"


def _from_cookie(request: Request[Any, Any, Any]) -> str:
    token = request.cookies.get(cookie_name(request.headers), "")
    return _BEARER + token if token else ""


def house_rules(app: ASGIApp, hosts: Iterable[str] | None, origins: Iterable[str]) -> ASGIApp:
    """The same app for those who call it by its name, from a page of its own or from no page at all.

    A web page that had its own name led to this machine would come with that name; any other page says whose it is, or
    its browser that it is another's. Every answer says that it is what it is called, and for nobody else to keep.
    """
    known = None if hosts is None else frozenset(hosts)
    allowed = frozenset(origins)

    async def guarded(connection: Connection, receive: Receive, send: Send) -> None:
        if connection["type"] == ScopeType.HTTP:
            send = _guarded(send)
            found = {name: value.decode("latin-1") for name, value in connection["headers"] if name in _LOOKED_AT}
            host, origin = found.get(b"host", ""), found.get(b"origin")
            is_elsewhere = connection["method"] not in _LOOKING and found.get(b"sec-fetch-site") == "cross-site"
            reason = _objection(host, origin, known, allowed, is_elsewhere=is_elsewhere)
            if reason:
                await problem_response(problem_of(Refused(403, reason)))(connection, receive, send)
                return
        await app(connection, receive, send)

    return guarded


_LOOKED_AT: frozenset[bytes] = frozenset({b"host", b"origin", b"sec-fetch-site"})
_LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
_SAID = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_NOT_CHANGED = 304


def _guarded(send: Send) -> Send:
    """The same with the headers that every answer has, unless it says otherwise itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] != _NOT_CHANGED:
            there = [(name.lower(), value) for name, value in message["headers"]]
            names = {name for name, _ in there}
            message["headers"] = [*there, *(each for each in _SAID if each[0] not in names)]
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
