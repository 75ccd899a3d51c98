"""A real server to call, and a scripted one that misbehaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.server.running import Running, running


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("client")) as made:
        yield made


class Script:
    """What a scripted server does with one request after the other, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.steps: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []


@pytest.fixture
def script() -> Iterator[Script]:
    class Scripted(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            known.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            known.steps.pop(0)(self)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815  the names of its base

        def log_message(self, *_args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as server:
        known = Script(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield known
        server.shutdown()
        thread.join()
