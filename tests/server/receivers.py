"""Receivers of webhooks: a good one, and every kind of bad one, each on a socket of its own."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct


class Request(Struct):
    """What a receiver was sent."""

    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[socket.socket, Request], None]


class Receiver:
    """Takes requests one after the other and answers each as it was told; the last answer is given for ever."""

    def __init__(self, *answers: Answer, certificate: Path | None = None) -> None:
        self.requests: list[Request] = []
        self._answers = list(answers)
        self._place = socket.create_server(("127.0.0.1", 0))
        self._is_over = False
        self._tls = _tls(certificate) if certificate else None
        self._threads: list[threading.Thread] = []
        self.port = self._place.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?to=me"

    def serve(self) -> None:
        while not self._is_over:
            try:
                connection, _ = self._place.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._answer, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        self._is_over = True
        self._place.shutdown(socket.SHUT_RDWR)
        self._place.close()
        for thread in self._threads:
            thread.join()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(20)
        with connection:
            try:
                secured = self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
            except (OSError, ssl.SSLError):
                return  # the sender does not trust us
            with secured:
                request = _read(secured)
                self.requests.append(request)
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                with suppress(OSError):  # the sender may have had enough
                    answer(secured, request)


def _tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def _read(connection: socket.socket) -> Request:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65_536)
    head, _, body = received.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (each.split(": ", 1) for each in lines)}
    while len(body) < int(headers["content-length"]):
        body += connection.recv(65_536)
    return Request(line, headers, body)


def status(code: int, **headers: str) -> Answer:
    """Answers and is done."""
    lines = [f"HTTP/1.1 {code} So", "Content-Length: 0", *(f"{name}: {value}" for name, value in headers.items())]
    return lambda connection, _: connection.sendall("\r\n".join([*lines, "", ""]).encode())


def endless_body(connection: socket.socket, _: Request) -> None:
    """Says that all is well, and then never stops talking."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65_536)


def endless_head(connection: socket.socket, _: Request) -> None:
    """Never comes to the point."""
    while True:
        connection.sendall(b"X" * 65_536)


def endless_promises(connection: socket.socket, _: Request) -> None:
    """Says for ever that an answer is coming."""
    while True:
        connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)


def slow_loris(connection: socket.socket, _: Request) -> None:
    """One character at a time, so that there is always something, and never enough."""
    for char in b"HTTP/1.1 200 OK".ljust(1_000, b"."):
        connection.sendall(bytes([char]))
        if threading.Event().wait(0.1):
            return


def silent(connection: socket.socket, _: Request) -> None:
    """Takes everything and says nothing."""
    connection.recv(1)


def not_http(connection: socket.socket, _: Request) -> None:
    """Something else listens there."""
    connection.sendall(b"220 mail.example.org ESMTP\r\n")


def hung_up(*_: Any) -> None:
    """Closes without a word."""


@contextmanager
def receiving(*answers: Answer, certificate: Path | None = None) -> Iterator[Receiver]:
    receiver = Receiver(*(answers or (status(204),)), certificate=certificate)
    thread = threading.Thread(target=receiver.serve)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.close()
        thread.join()
