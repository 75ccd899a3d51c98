"""Connections to a server: kept for the next call, tried again where that is safe, any number of threads at once."""

from __future__ import annotations

import gzip
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlencode, urlsplit

from msgspec import Struct, field

from context_compactor.client.ending import Ending
from context_compactor.errors import BadSetting, ServerUnavailable

# A server closes a connection that was quiet for five seconds; one that is nearly so old is not used again.
_KEPT_SECONDS = 3.0
_MOST_KEPT = 8
_BUSY = frozenset({429, 502, 503, 504})
_LONGEST_WAIT = 10.0


class Request(Struct, frozen=True, kw_only=True):
    """What is sent. `may_repeat` says that a server which gets it twice does it once."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    may_repeat: bool = False

    @property
    def target(self) -> str:
        """The path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


class Reply(Struct, frozen=True):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


class Transport:
    """Sends requests to one server."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout: float = 330.0,
        attempts: int = 3,
        delay: float = 0.2,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._scheme, self._host, self._port, self._base = _read_url(url)
        if token is not None and not (token.isascii() and token.isprintable()):
            raise BadSetting("token: it has characters that no token has. Try: what `compactor token add` printed.")
        self._token = token
        self._timeout = timeout
        self._attempts = attempts
        self._delay = delay
        self._sleep = sleep
        self._kept: list[tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Close the connections that are kept, and keep none from now on: a verb may end later."""
        with self._lock:
            kept, self._kept, self._is_closed = self._kept, [], True
        for _, connection in kept:
            connection.close()

    def send(self, request: Request) -> Reply:
        """The reply to a request; `ServerUnavailable` when there is none, however often it was tried."""
        problem = ServerUnavailable("it was not tried")
        for attempt in range(self._attempts):
            wait = self._delay * 2**attempt
            try:
                reply = self._once(request)
                if reply.status not in _BUSY or not request.may_repeat or attempt == self._attempts - 1:
                    return reply
                wait = max(wait, _seconds(reply.headers.get("retry-after", "")))
            except _NotSent as error:
                problem = self._unavailable(error.cause)
            except (OSError, http.client.HTTPException) as error:
                problem = self._unavailable(error)
                if not request.may_repeat:
                    raise problem from error
            if attempt < self._attempts - 1:
                self._sleep(wait)
        raise problem

    @contextmanager
    def stream(self, request: Request, quiet_seconds: float, ending: Ending) -> Iterator[tuple[Reply, Iterator[bytes]]]:
        """A reply that has no end but this one: what is known of it, and its lines.

        A silence that is too long is an `OSError`.
        """
        with closing(self._connect(quiet_seconds)) as connection, ending.reading(connection.sock):
            response = self._ask(connection, request)
            is_good = response.status == http.client.OK
            reply = Reply(response.status, _headers(response), b"" if is_good else response.read())
            yield reply, iter(response.readline, b"")

    def _once(self, request: Request) -> Reply:
        connection = self._take()
        try:
            response = self._ask(connection, request)
            reply = Reply(response.status, _headers(response), _unpacked(response))
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        return reply

    def _ask(self, connection: http.client.HTTPConnection, request: Request) -> http.client.HTTPResponse:
        headers = {"Accept-Encoding": "gzip", **request.headers}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        connection.request(request.method, self._base + request.target, request.body, headers)
        return connection.getresponse()

    def _take(self) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                if not self._kept:
                    break
                kept_at, connection = self._kept.pop()
            if time.monotonic() - kept_at < _KEPT_SECONDS:
                return connection
            connection.close()
        return self._connect(self._timeout)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self._is_closed and len(self._kept) < _MOST_KEPT:
                self._kept.append((time.monotonic(), connection))
                return
        connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._scheme == "https" else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise _NotSent(error) from error
        return connection

    def _unavailable(self, error: Exception) -> ServerUnavailable:
        why = str(error) or type(error).__name__
        return ServerUnavailable(
            f"no answer from {self._scheme}://{self._host}:{self._port}: {why}. Try: is it running?"
        )


class _NotSent(OSError):
    """Nobody was there to take the request, so it can be sent again whatever it is."""

    def __init__(self, cause: OSError) -> None:
        self.cause = cause
        super().__init__(str(cause))


def _read_url(url: str) -> tuple[str, str, int, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadSetting(f"url: {url!r:.80} is no address: {error}. Try: http://127.0.0.1:8377.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise BadSetting(f"url: {parts.scheme}://… is no address of a server. Try: http://127.0.0.1:8377.")
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), parts.path.rstrip("/")


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _unpacked(response: http.client.HTTPResponse) -> bytes:
    body = response.read()
    return gzip.decompress(body) if response.getheader("Content-Encoding") == "gzip" else body


def _seconds(text: str) -> float:
    return min(float(text), _LONGEST_WAIT) if text.isascii() and text.isdigit() else 0.0
