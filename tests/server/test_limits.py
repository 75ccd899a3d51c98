"""Nobody, with a token or without one, can make the server read or keep more than a request is allowed to be."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from context_compactor.server.tokens import add_token
from tests.server.running import Running, running
from tests.waiting import PATIENCE

FORM = {"Content_Type": "application/x-www-form-urlencoded"}
KILOBYTE = 1024


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("guarded")
    add_token(folder / "tokens", "red", "", read_only=False)
    with running(folder, token_file=folder / "tokens") as server:
        yield server


@pytest.mark.parametrize("path", ["/login", "/logout"])
def test_a_form_of_whoever_is_a_stranger_is_not_read_beyond_a_few_kilobytes(guarded, path):
    got = guarded.post(path, b"token=" + b"%41" * (1 << 20), **FORM)
    assert got.status in (303, 413)
    assert (got.status == 413) == (path == "/login")


@pytest.mark.parametrize("button", ["compact", "undo", "archive/turn_001/restore"])
def test_a_button_takes_a_form_of_a_few_kilobytes(shared, button):
    session_id = shared.made().rpartition("/")[2]
    path = f"/sessions/{session_id}/{button}"
    got = shared.post(path, b"focus=" + b"%41" * (1 << 20), **FORM)
    assert got.status == 413
    assert got.headers["content-type"].startswith("text/html")
    assert b"64 KB" in got.raw


def test_a_form_that_does_not_say_how_long_it_is_has_the_same_limit(guarded):
    found = _sent(guarded, b"Transfer-Encoding: chunked", b"".join([_chunk(b"a" * KILOBYTE)] * 100), path="/login")
    assert b" 413 " in found.split(b"\r\n")[0]


def test_a_focus_as_long_as_allowed_fits_into_a_form(shared):
    session_id = shared.made().rpartition("/")[2]
    got = shared.post(f"/sessions/{session_id}/compact", b"focus=" + b"a" * 20_000, **FORM)
    assert got.status == 200


@pytest.mark.parametrize("path", ["/login", "/healthz", "/v1/sessions"])
@pytest.mark.parametrize("is_one_line", [True, False])
def test_what_follows_a_body_counts_too(guarded, path, is_one_line):
    """A body in chunks may end in further headers, which nobody reads."""
    line = b"a" * KILOBYTE if is_one_line else b"X: %s\r\n" % (b"a" * KILOBYTE)
    assert _taken(guarded, path, line) < 4 << 20
    assert guarded.get("/healthz").status == 200


def test_a_body_in_small_chunks_is_one_body(shared):
    path = shared.made()
    body = b'{"messages": [{"role": "user", "content": "%s"}]}' % (b"abc" * 40_000)
    pieces = b"".join(_chunk(body[at : at + 7]) for at in range(0, len(body), 7))
    fields = b"Content-Type: application/json\r\nConnection: close\r\nTransfer-Encoding: chunked"
    found = _sent(shared, fields, pieces + b"0\r\nX-After: 1\r\n\r\n", path=f"{path}/messages")
    assert b" 200 " in found.split(b"\r\n")[0]
    assert shared.get(f"{path}/history").json["messages"][0]["content"] == "abc" * 40_000


@pytest.mark.parametrize("size", [100, 200, 1_000])
def test_a_head_that_comes_at_once_has_the_limit_of_one_that_comes_in_pieces(shared, size):
    found = _sent(shared, b"X-Junk: " + b"a" * (size * KILOBYTE), b"", method="GET", path="/healthz")
    assert b" 200 " not in found.split(b"\r\n")[0]
    assert shared.get("/healthz").status == 200


def test_a_head_of_many_kilobytes_is_fine(shared):
    fields = b"Connection: close\r\nX-Long: " + b"a" * (60 * KILOBYTE)
    found = _sent(shared, fields, b"", method="GET", path="/healthz")
    assert b" 200 " in found.split(b"\r\n")[0]


def test_many_requests_at_once_on_one_connection_are_all_answered(shared):
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: %s\r\n\r\n" % (b"a" * 8_000)
    with socket.create_connection(("127.0.0.1", shared.port), timeout=PATIENCE) as connection:
        connection.sendall(request * 40)
        found = b""
        while found.count(b" 200 OK") < 40:
            piece = connection.recv(65_536)
            assert piece, "the connection has ended"
            found += piece


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def _sent(server: Running, fields: bytes, body: bytes, *, path: str, method: str = "POST") -> bytes:
    """What comes back to one request, sent in one piece."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost:{server.port}\r\n".encode() + fields + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        found = b""
        try:
            connection.sendall(head + body)
            while piece := connection.recv(65_536):
                found += piece
                if b"\r\n\r\n" in found and b"connection: close" not in found.lower():
                    break
        except OSError:
            pass  # it has closed before all was sent
        return found


def _taken(server: Running, path: str, line: bytes) -> int:
    """How many bytes behind the last chunk are taken before the connection ends."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost:{server.port}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    taken = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + b"X: ")
        try:
            while taken < 16 << 20:
                connection.sendall(line)
                taken += len(line)
        except OSError:
            pass
    return taken
