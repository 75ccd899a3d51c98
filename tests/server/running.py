"""A real server on loopback, in a thread of the test, and a plain way to call it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.server.config import ServerConfig, bind
from context_compactor.server.listener import Listener, listener_of
from context_compactor.server.service import Service
from tests.waiting import PATIENCE, wait_for

JSON = {"Content-Type": "application/json"}


class Got(Struct):
    """What came back."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def problem(self) -> str:
        """The name of the problem, which must be one."""
        assert self.headers["content-type"] == "application/problem+json", self.raw
        assert self.json["status"] == self.status
        return self.json["type"].rpartition(":")[2]


class Running:
    """A server that runs."""

    def __init__(self, service: Service, listener: Listener, port: int) -> None:
        self.service = service
        self.listener = listener
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._count = 41

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Got:
        """One request on a connection of its own. A body that is bytes goes as it is."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            given = {**JSON, **given}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, given)
            response = connection.getresponse()
            return Got(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Got:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Got:
        return self.call("POST", path, body, **headers)

    def made(self, session_id: str = "", window: int = 200_000, **more: Any) -> str:
        """The path of a new session; without a name it has one of its own."""
        self._count += 1
        session_id = session_id or f"run-{self._count}"
        got = self.post("/v1/sessions", {"id": session_id, "window": window, **more})
        assert got.status == 201, got.raw
        return f"/v1/sessions/{session_id}"


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[Running]:
    """A server with its store in a folder."""
    config = ServerConfig(**{"store": f"sqlite:///{folder}/compactor.db", "port": 0, "workers": 0} | options)
    place = bind("127.0.0.1", config.port)
    service = Service(config)
    listener = listener_of(service)
    thread = threading.Thread(target=listener.run, args=([place],))
    thread.start()
    try:
        wait_for(lambda: listener.started or not thread.is_alive())
        assert listener.started, "the server did not start"
        yield Running(service, listener, place.getsockname()[1])
    finally:
        listener.should_exit = True
        thread.join()
        place.close()


@contextmanager
def serving(folder: Path, port: int) -> Iterator[subprocess.Popen]:
    """`compactor serve` in a process of its own, until it is told to stop and has finished."""
    given = ["serve", "--port", str(port), "--store", "sqlite:///own.db"]
    code = f"from context_compactor.cli.main import main; main({given!r})"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
    with subprocess.Popen([sys.executable, "-c", code], cwd=folder, stderr=subprocess.PIPE, env=environment) as process:
        try:
            assert b"127.0.0.1" in process.stderr.readline()
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
