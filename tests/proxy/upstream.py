"""Both ends of the wire as bytes: a provider that keeps what it was sent and answers what it was told, and a client.

An answer is a row of steps: bytes are sent, an event is waited for, `HANG_UP` waits until the other side is gone, and
`CUT` breaks off. Nothing here knows HTTP any better than it has to.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Literal, Self

from msgspec import Struct

from tests.waiting import PATIENCE

HANG_UP: Literal["hang up"] = "hang up"
CUT: Literal["cut"] = "cut"
FRAMING = frozenset(
    b"connection keep-alive proxy-connection te trailer transfer-encoding upgrade host content-length expect".split()
)
"""Headers that belong to one connection, or to how a body is framed on it."""

Step = bytes | threading.Event | Literal["hang up", "cut"]
Header = tuple[bytes, bytes]


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


class Heard(Struct, frozen=True):
    """A request or an answer as its bytes were: its first line, its header lines and its body."""

    line: bytes
    headers: list[Header]
    body: bytes
    is_whole: bool = True

    def values(self, name: bytes) -> list[bytes]:
        return [value for each, value in self.headers if each.lower() == name.lower()]

    def passed(self) -> list[Header]:
        """The headers that go from end to end, in an order that does not matter."""
        return sorted((name, value) for name, value in self.headers if name.lower() not in FRAMING)

    @property
    def target(self) -> bytes:
        return self.line.split(b" ")[1]

    @property
    def status(self) -> int:
        return int(self.line.split(b" ")[1])

    @property
    def is_chunked(self) -> bool:
        return b"chunked" in b",".join(self.values(b"Transfer-Encoding")).lower()


Answer = Callable[[Heard], Iterable[Step]]


def answer(
    body: bytes = b"{}",
    status: bytes = b"200 OK",
    headers: Iterable[Header] = ((b"Content-Type", b"application/json"),),
    *,
    has_length: bool = True,
) -> bytes:
    """The bytes of a whole answer."""
    length = [(b"Content-Length", b"%d" % len(body))] if has_length else []
    return head(b"HTTP/1.1 " + status, [*headers, *length]) + body


def head(line: bytes, headers: Iterable[Header]) -> bytes:
    return line + b"\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in headers) + b"\r\n"


def stream_head(headers: Iterable[Header] = (), content_type: bytes = b"text/event-stream") -> bytes:
    framed = [(b"Content-Type", content_type), *headers, (b"Transfer-Encoding", b"chunked")]
    return head(b"HTTP/1.1 200 OK", framed)


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


END_OF_CHUNKS = b"0\r\n\r\n"


class Upstream:
    """A provider on a socket of its own. `respond` says how each request is answered."""

    def __init__(self, respond: Answer | bytes = b"", tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.respond: Answer | bytes = respond or answer()
        self.heard: list[Heard] = []
        self.connections = 0
        self.has_hung_up = threading.Event()
        """Whether somebody was gone while an answer waited for that."""
        self._tls = tls
        self._place = socket.create_server(("127.0.0.1", port))
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.port = self._place.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://{'localhost' if tls else '127.0.0.1'}:{self.port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._place.shutdown(socket.SHUT_RDWR)
        self._place.close()
        self._thread.join()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._place.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._talk, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _talk(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(PATIENCE)
        with connection, suppress(OSError, ssl.SSLError, EOFError):
            secured = self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
            self._open.add(secured)
            with secured:
                try:
                    self._answer_all(secured)
                finally:
                    self._open.discard(secured)

    def _answer_all(self, connection: socket.socket) -> None:
        wire = Wire(connection)
        while True:
            request = wire.read_request()
            self.heard.append(request)
            steps = [self.respond] if isinstance(self.respond, bytes) else self.respond(request)
            for step in steps:
                if step == CUT:
                    return
                if step == HANG_UP:
                    wire.wait_for_end()
                    self.has_hung_up.set()
                    return
                if isinstance(step, threading.Event):
                    assert step.wait(PATIENCE)
                elif isinstance(step, bytes):
                    connection.sendall(step)


class Wire:
    """One end of a connection, read by hand."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._buffer = bytearray()
        self._seen = 0

    def read_request(self) -> Heard:
        """The next request; `EOFError` when there is none."""
        line, headers = self.read_head()
        if b"100-continue" in [value for name, value in headers if name.lower() == b"expect"]:
            self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        request = Heard(line, headers, b"")
        return Heard(line, headers, self._body(request, is_request=True))

    def read_answer(self, method: bytes = b"POST") -> Heard:
        """The next answer. One that breaks off is not whole, and has what came of it."""
        line, headers = self.read_head()
        found = Heard(line, headers, b"")
        if found.status // 100 == 1 and found.status != 101:
            return self.read_answer(method)
        if method == b"HEAD" or found.status in (204, 304):
            return found
        try:
            return Heard(line, headers, self._body(found, is_request=False))
        except EOFError as error:
            return Heard(line, headers, error.args[0] if error.args else b"", is_whole=False)

    def read_head(self) -> tuple[bytes, list[Header]]:
        line, *lines = self._until(b"\r\n\r\n")[:-4].split(b"\r\n")
        return line, [(each.partition(b":")[0], each.partition(b":")[2].strip(b" \t")) for each in lines]

    def _body(self, heard: Heard, *, is_request: bool) -> bytes:
        if heard.is_chunked:
            return b"".join(self._chunks())
        if lengths := heard.values(b"Content-Length"):
            return self._exactly(int(lengths[0]))
        return b"" if is_request else self._rest()

    def _chunks(self) -> Iterator[bytes]:
        whole: list[bytes] = []
        try:
            while content := self.read_chunk():
                whole.append(content)
        except EOFError:
            raise EOFError(b"".join(whole)) from None
        yield from whole

    def read_chunk(self) -> bytes:
        """The next chunk; b"" for the last one."""
        size = int(self._until(b"\r\n").split(b";")[0], 16)
        content = self._exactly(size)
        self._exactly(2)
        return content

    def wait_for_end(self) -> None:
        """Wait until the other side is gone."""
        with suppress(ConnectionError):
            while self.connection.recv(1 << 16):
                pass

    def _until(self, mark: bytes) -> bytes:
        while (at := self._buffer.find(mark)) < 0:
            self._more()
        return self._take(at + len(mark))

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            try:
                self._more()
            except EOFError:
                raise EOFError(bytes(self._buffer)) from None
        return self._take(size)

    def _rest(self) -> bytes:
        with suppress(EOFError):
            while True:
                self._more()
        return self._take(len(self._buffer))

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _more(self) -> None:
        try:
            received = self.connection.recv(1 << 18)
        except ConnectionError:
            received = b""
        if not received:
            raise EOFError
        self._buffer += received


def address_of(url: str) -> tuple[str, int]:
    host, _, port = url.rpartition("/")[2].rpartition(":")
    return host, int(port)


@contextmanager
def connected(url: str, receive_buffer: int = 0) -> Iterator[Wire]:
    """A connection to a proxy or a provider. A small buffer makes a reader slow as soon as it stops reading."""
    with socket.socket() as connection:
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(PATIENCE)
        connection.connect(address_of(url))
        yield Wire(connection)


def request(
    url: str,
    target: bytes,
    body: bytes | None = b"{}",
    headers: Iterable[Header] = ((b"Content-Type", b"application/json"),),
    method: bytes = b"POST",
    *,
    chunks: Iterable[bytes] | None = None,
    host: bytes | None = None,
) -> bytes:
    """The bytes of a request: with a length, or in these chunks."""
    lines = [(b"Host", "{}:{}".format(*address_of(url)).encode() if host is None else host), *headers]
    if chunks is not None:
        lines.append((b"Transfer-Encoding", b"chunked"))
        framed = b"".join(map(chunk, chunks)) + END_OF_CHUNKS
    else:
        framed = body or b""
        lines += [] if body is None else [(b"Content-Length", b"%d" % len(body))]
    return head(method + b" " + target + b" HTTP/1.1", lines) + framed


def ask(url: str, target: bytes, body: bytes | None = b"{}", method: bytes = b"POST", **more: object) -> Heard:
    """Send one request on a connection of its own; the answer."""
    with connected(url) as wire:
        wire.connection.sendall(request(url, target, body, method=method, **more))  # type: ignore[arg-type]
        return wire.read_answer(method)
