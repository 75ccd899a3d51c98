"""A server that is told to stop finishes what was begun, and then it is gone."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from context_compactor.sessions.session import Session
from tests.waiting import PATIENCE, wait_for

BODY = json.dumps({"messages": [{"role": "user", "content": "begun before the end"}]}).encode()


# What is under way when it is to stop is given more time than the test has.
PATIENT = f"""
from functools import partial
from context_compactor.server import config
config.ServerConfig = partial(config.ServerConfig, stop_seconds={2 * int(PATIENCE)})
from context_compactor.cli.main import main
main(["serve", "--port", "0", "--store", "sqlite:///own.db"])
"""


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[subprocess.Popen, int]]:
    """`compactor serve` in a process of its own; its port."""
    command = [sys.executable, "-c", PATIENT]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = process.stderr.readline()
            yield process, int(line.split("127.0.0.1:")[1].split()[0])
        finally:
            process.kill()


def _post(port: int, path: str, body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    return status


def _begin(connection: socket.socket) -> None:
    """Send the head of a request and some of its body, once the server says that it has begun with it."""
    head = "POST /v1/sessions/run/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(BODY)}\r\nExpect: 100-continue\r\n\r\n".encode())
    assert connection.recv(65_536).startswith(b"HTTP/1.1 100")
    connection.sendall(BODY[:10])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_the_middle_is_finished_and_nobody_new_is_taken(tmp_path, number):
    with _serving(tmp_path) as (process, port):
        assert _post(port, "/v1/sessions", b'{"id": "run", "window": 200000}') == 201
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            _begin(connection)
            process.send_signal(number)
            _wait_until_closed(port)
            connection.sendall(BODY[10:])
            answer = connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert process.wait(PATIENCE) == 0
        assert "stopped" in process.stderr.read()
    with Session.open("run", store=f"sqlite:///{tmp_path}/own.db") as session:
        assert [message["content"] for message in session.history()] == ["begun before the end"]
        assert session._core.store.open_sessions() == []


def _wait_until_closed(port: int) -> None:
    def is_closed() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_for(is_closed)


def test_a_second_ctrl_c_does_not_wait(tmp_path):
    with _serving(tmp_path) as (process, port):
        assert _post(port, "/v1/sessions", b'{"id": "run", "window": 200000}') == 201
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            _begin(connection)
            process.send_signal(signal.SIGINT)
            _wait_until_closed(port)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 130


def test_a_quiet_server_ends_at_once(tmp_path):
    with _serving(tmp_path) as (process, port):
        assert _post(port, "/v1/sessions", b'{"id": "run", "window": 200000}') == 201
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_a_server_that_is_killed_has_kept_all_it_answered_for(tmp_path):
    with _serving(tmp_path) as (process, port):
        _post(port, "/v1/sessions", b'{"id": "run", "window": 200000}')
        for at in range(20):
            body = json.dumps({"messages": [{"role": "user", "content": f"number {at}"}]}).encode()
            assert _post(port, "/v1/sessions/run/messages", body) == 200
        process.kill()
        process.wait()
    with Session.open("run", store=f"sqlite:///{tmp_path}/own.db") as session:
        assert [message["content"] for message in session.history()] == [f"number {at}" for at in range(20)]
        assert session.verify() == []


def test_without_the_extra_it_is_said_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['litestar'] = None\n"
        "from context_compactor.cli.main import main\n"
        "main(['serve', '--port', '0'])"
    )
    got = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert got.returncode == 2
    assert ".[server]" in got.stderr
    assert list(tmp_path.iterdir()) == []
