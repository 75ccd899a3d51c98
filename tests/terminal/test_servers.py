"""Sessions of a server that goes away, comes back, refuses, or talks nonsense."""

from __future__ import annotations

import json
import socket
import socketserver
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.sessions.talk import messages
from tests.terminal.terminal import COMPACTOR, left_well
from tests.tui.places import URL, a_few_sessions
from tests.waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def sessions(tmp_path, monkeypatch) -> None:
    """Three sessions in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    a_few_sessions()


@pytest.fixture
def port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


@pytest.fixture
def serve(port) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `compactor serve` on the port of the test, and waits until it listens."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*more: str) -> subprocess.Popen[bytes]:
        command = [COMPACTOR, "serve", "--port", str(port), "--store", URL, "--workers", "0", *more]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started.append(server)
        wait_for(lambda: _listens(port), server.poll)
        return server

    yield start
    for server in started:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def answering(says: Callable[[], bytes | None], calls: list[bytes] | None = None) -> Iterator[str]:
    """A server that answers everything with what it says now, or never, and notes the calls."""
    over = threading.Event()

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            heard = self.request.recv(65_536)
            if calls is not None:
                calls.append(heard)
            answer = says()
            if answer is None:
                over.wait()
            else:
                self.request.sendall(answer)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        over.set()
        server.shutdown()


def test_a_server_that_is_killed_and_started_again_is_said_to_be_away_and_all_goes_on(open_terminal, serve, port):
    server = serve()
    url = f"http://127.0.0.1:{port}"
    terminal = open_terminal("--server", url, "--session", "run-42", size=(100, 30))
    terminal.sees("120 messages", "turn_090")
    server.kill()
    server.wait()
    terminal.sees("offline, and what is shown may be old", "turn_090")
    serve()
    terminal.misses("offline")
    body = json.dumps({"messages": messages(120, 124)}).encode()
    request = urllib.request.Request(f"{url}/v1/sessions/run-42/messages", body, {"Content-Type": "application/json"})
    assert urllib.request.urlopen(request).status == 200
    terminal.sees("124 messages")
    terminal.press("End")
    terminal.sees("turn_093", "Part 30 does 90")
    terminal.press("Escape")
    terminal.sees("3 sessions", "run-42", "almost full")
    left_well(terminal, "C-q")


def test_a_server_that_is_not_there_yet_is_waited_for(open_terminal, serve, port):
    terminal = open_terminal("--server", f"http://127.0.0.1:{port}", size=(100, 30))
    terminal.sees("offline", "What to try")
    serve()
    terminal.sees("3 sessions", "run-42")
    left_well(terminal, "C-q")


def test_a_wrong_token_is_refused_with_words_and_the_right_one_is_let_in(open_terminal, serve, port, tmp_path):
    made = subprocess.run([COMPACTOR, "token", "add", "me"], capture_output=True, text=True, check=True, cwd=tmp_path)
    serve("--token-file", ".compactor/tokens")
    url = f"http://127.0.0.1:{port}"
    terminal = open_terminal("--server", url, "--token", "cct_wrong", size=(100, 30))
    terminal.sees("token", "What to try")
    left_well(terminal, "C-q")
    (tmp_path / "token").write_text(made.stdout)
    terminal = open_terminal("--server", url, "--token-file", "token", size=(100, 30))
    terminal.sees("3 sessions", "run-42")
    left_well(terminal, "C-q")


def http(body: bytes, status: str = "200 OK", kind: str = "application/json", size: int | None = None) -> bytes:
    """An answer, as long as it says or not."""
    length = len(body) if size is None else size
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n".encode() + body


NONSENSE = {
    "Expecting value": http(b"<html>Welcome!</html>", kind="text/html"),
    "[31mSSH-2.0-OpenSSH": b"\x00\xff\x1b[31mSSH-2.0-OpenSSH\r\n",
    "Expected `object`, got `array`": http(b'[{"id": [1, 2]}]'),
    "IncompleteRead": http(b"[", size=4_000),
    "the server answered 500: oops": http(b"oops", "500 Oops", "text/plain"),
    "the server answered 302": http(b"", "302 Found\r\nLocation: http://127.0.0.1:1/"),
}
"""What is said of an answer, and the answer."""


def test_a_server_that_talks_nonsense_is_told_and_can_be_left(open_terminal):
    answer = b""
    with answering(lambda: answer) as url:
        terminal = open_terminal("--server", url, size=(100, 30))
        for words, answer in NONSENSE.items():  # noqa: B007 - the server answers with it
            terminal.sees("offline", "What to try")
            terminal.press("r")
            seen = terminal.sees("offline", "What to try", words)
            assert "Traceback" not in seen
            assert "Unexpected" not in seen
        left_well(terminal, "C-q")


def test_a_server_that_never_answers_can_be_left_without_waiting_for_it(open_terminal):
    calls: list[bytes] = []
    with answering(lambda: None, calls) as url:
        terminal = open_terminal("--server", url)
        terminal.sees("Reading…")
        wait_for(lambda: len(calls) == 3, lambda: calls)  # the list, what changes in it, and events
        left_well(terminal, "C-q")
        assert len(calls) == 3, "it went on until a call was tried once more"
