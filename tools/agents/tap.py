"""A tap between two programs that speak HTTP: it passes on what they say, and notes what it was by its digest."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from msgspec import Struct

from context_compactor.proxy.recorder import OWN_ITEM

_SECONDS = 600
_PIECE = 1 << 16
# How the ids of answers begin that a proxy gives by itself: msg_compactor_ or resp_compactor_.
_OWN_ANSWER = re.compile(rb'"(?:msg|resp)_compactor_')
# What belongs to one connection.
_NOT_COMPARED = frozenset(("host", "connection", "keep-alive", "transfer-encoding", "date", "server"))


class Exchange(Struct, frozen=True):
    """What passed: the request and its answer, their headers and bodies by their digests."""

    method: str
    path: str
    headers: frozenset[tuple[str, str]]
    body: str
    has_item: bool
    """Whether a compaction item of ours stands in the request."""
    is_socket: bool
    """Whether a WebSocket was asked for."""
    status: int = 0
    """0 when there was no answer."""
    answer_headers: frozenset[tuple[str, str]] = frozenset()
    answer: str = ""
    is_ours: bool = False
    """Whether the proxy has given the answer by itself."""

    @property
    def sent(self) -> tuple[object, ...]:
        """All that must be the same on both sides of a proxy that changes nothing."""
        return self.method, self.path, self.headers, self.body, self.status, self.answer_headers, self.answer


class Tap:
    """Where a program is called instead of `target`. What has passed is in `exchanges`, as it ended."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self.exchanges: list[Exchange] = []
        self.before: Callable[[int], bool] = lambda _: True
        """Is told how many requests with a body have come, before one is passed on; without a yes it breaks off."""
        self._posted = 0
        self._lock = threading.Lock()

    def may_pass(self) -> bool:
        """Whether the next request with a body is passed on."""
        with self._lock:
            self._posted += 1
            posted = self._posted
        return self.before(posted)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    tap: Tap


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Pass a request on, and its answer back while it comes in."""
        tap = cast("_Server", self.server).tap
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        asked: dict[str, Any] = {
            "method": self.command,
            "path": self.path,
            "headers": _compared(self.headers.items()),
            "body": _digest(body),
            "has_item": OWN_ITEM.encode() in body,
            "is_socket": self.headers.get("upgrade", "").lower() == "websocket",
        }
        self.close_connection = True
        answered: dict[str, Any] = {}
        if not body or tap.may_pass():
            with suppress(OSError, HTTPException):
                answered = self._passed(tap.target, body)
        tap.exchanges.append(Exchange(**asked, **answered))

    def _passed(self, target: str, body: bytes) -> dict[str, Any]:
        connection = HTTPConnection(target.removeprefix("http://"), timeout=_SECONDS)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            content, is_ours = sha256(), False
            while piece := answer.read1(_PIECE):
                content.update(piece)
                is_ours |= bool(_OWN_ANSWER.search(piece))
                self.wfile.write(piece)
            headers = _compared(answer.getheaders())
            digest = content.hexdigest()
            return {"status": answer.status, "answer_headers": headers, "answer": digest, "is_ours": is_ours}
        finally:
            connection.close()

    do_POST = do_HEAD = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def _compared(headers: Any) -> frozenset[tuple[str, str]]:
    return frozenset((name.lower(), value) for name, value in headers if name.lower() not in _NOT_COMPARED)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()


@contextmanager
def tapped(target: str) -> Iterator[Tap]:
    """A tap for the length of the block."""
    server = _Server(("127.0.0.1", 0), _Passing)
    server.tap = Tap(target)
    server.tap.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.tap
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
