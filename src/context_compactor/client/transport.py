"""Connections to a server: reused, retried while it is away, for any number of threads, and cancelled from another."""

from __future__ import annotations

import gzip
import http.client
import math
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

from msgspec import Struct, field, structs

from context_compactor.errors import BadSetting, ServerUnavailable


class StreamCancel:
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


# A server closes a connection that was quiet for five seconds; one that is nearly so old is not used again.
_KEPT_SECONDS = 3.0
_MOST_KEPT = 8
_AWAY = frozenset({502, 503, 504})
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 2.0
# The longest wait that a server can ask for.
_LONGEST_ASKED = 10.0
RETRY_SECONDS = 30.0
T = TypeVar("T")


class HttpRequest(Struct, frozen=True, kw_only=True):
    """What is sent. One that changes something carries a key: a server which gets it twice does it once."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


class HttpReply(Struct, frozen=True):
    """What came back. `tried` says how often and how long a server that is away was asked, when that was in vain."""

    status: int
    headers: dict[str, str]
    body: bytes
    tried: str = ""


class RetryTimer:
    """How long a server that is away is asked again, from the first failure on, and how long to wait each time."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._began: float | None = None
        self._failures = 0

    def fail(self, asked_for: float = 0.0) -> float | None:
        """The seconds to wait after one more failure, or None when the time is over. The server may ask for longer."""
        now = self._clock()
        self._began = now if self._began is None else self._began
        self._failures += 1
        left = self._began + self._seconds - now
        if left <= 0:
            return None
        longest = min(_FIRST_WAIT * 2.0 ** min(self._failures - 1, 10), _LONGEST_WAIT)
        return min(max(longest * random.uniform(0.5, 1.0), asked_for), left)  # so that not all come again at once

    def succeed(self) -> None:
        """It answers: the next failure is the first one."""
        self._began, self._failures = None, 0

    def in_words(self) -> str:
        """How often it was asked, and for how long; nothing when it was asked once."""
        if self._failures < 2 or self._began is None:
            return ""
        return f"tried {self._failures:,} times in {self._clock() - self._began:.1f} seconds"


class Transport:
    """Sends requests to one server. `clock` and `sleep` are for tests."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout: float = 330.0,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        if not retry_seconds >= 0 or math.isnan(retry_seconds):
            raise BadSetting(f"retry_seconds: {retry_seconds} is not a number of seconds. Try: 30, or 0 to not retry.")
        self._scheme, self._host, self._port, self._base = _read_url(url)
        if token is not None and not (token.isascii() and token.isprintable()):
            raise BadSetting(
                "token: it contains characters that are not allowed in a token. "
                "Try: what `compactor token add` printed."
            )
        self._token = token
        self._timeout = timeout
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._sleep = sleep
        self._closing = StreamCancel()
        self._calls = threading.local()
        self._kept: list[tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Close the connections that are kept, and keep none from now on: a verb may end later. None is tried again."""
        self._closing.end()
        with self._lock:
            kept, self._kept, self._is_closed = self._kept, [], True
        for _, connection in kept:
            connection.close()

    def until(self, ending: StreamCancel, work: Callable[[], T]) -> T:
        """Do something in this thread that is not tried again once `ending` is over."""
        self._calls.ending = ending
        try:
            return work()
        finally:
            del self._calls.ending

    def retry_timer(self) -> RetryTimer:
        """How long a call may go on."""
        return RetryTimer(self._retry_seconds, self._clock)

    def send(self, request: HttpRequest) -> HttpReply:
        """The reply to a request; `ServerUnavailable` when there is none for as long as it is tried."""
        retries = self.retry_timer()
        ending: StreamCancel = getattr(self._calls, "ending", self._closing)
        while True:
            try:
                reply = self._once(request)
                if reply.status not in _AWAY:
                    return reply
                wait = retries.fail(_seconds(reply.headers.get("retry-after", "")))
                if wait is None or ending.is_over:
                    return structs.replace(reply, tried=retries.in_words())
            except (OSError, http.client.HTTPException) as error:
                wait = None if isinstance(error, ssl.SSLCertVerificationError) else retries.fail()
                if wait is None or ending.is_over:
                    raise self.unavailable(error, retries) from error
            (self._sleep or ending.wait)(wait)

    @contextmanager
    def stream(
        self, request: HttpRequest, quiet_seconds: float, ending: StreamCancel
    ) -> Iterator[tuple[HttpReply, Iterator[bytes]]]:
        """A reply that has no end but this one: what is known of it, and its lines.

        A silence that is too long is an `OSError`.
        """
        with closing(self._connect(quiet_seconds)) as connection, ending.reading(connection.sock):
            response = self._ask(connection, request)
            is_good = response.status == http.client.OK
            reply = HttpReply(response.status, _headers(response), b"" if is_good else response.read())
            yield reply, iter(response.readline, b"")

    def _once(self, request: HttpRequest) -> HttpReply:
        connection = self._take()
        try:
            response = self._ask(connection, request)
            reply = HttpReply(response.status, _headers(response), _unpacked(response))
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        return reply

    def _ask(self, connection: http.client.HTTPConnection, request: HttpRequest) -> http.client.HTTPResponse:
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
        except OSError:
            connection.close()
            raise
        return connection

    def unavailable(self, error: Exception, retries: RetryTimer) -> ServerUnavailable:
        """What to raise when a server stayed away; `error` is the last one."""
        why = str(error) or type(error).__name__
        tried = retries.in_words()
        address = f"{self._scheme}://{self._host}:{self._port}"
        return ServerUnavailable(
            f"no answer from {address}{', ' if tried else ''}{tried}: {why}. Try: check that it is running."
        )


def _read_url(url: str) -> tuple[str, str, int, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadSetting(f"url: {url!r:.80} is not a URL: {error}. Try: http://127.0.0.1:8377.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise BadSetting(f"url: {parts.scheme}://… is not a server URL. Try: http://127.0.0.1:8377.")
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), parts.path.rstrip("/")


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _unpacked(response: http.client.HTTPResponse) -> bytes:
    body = response.read()
    return gzip.decompress(body) if response.getheader("Content-Encoding") == "gzip" else body


def _seconds(text: str) -> float:
    return min(float(text), _LONGEST_ASKED) if text.isascii() and text.isdigit() else 0.0
