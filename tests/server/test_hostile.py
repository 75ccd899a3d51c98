"""Whatever comes in, the server answers, keeps what it accepted byte for byte, and goes on."""

from __future__ import annotations

import json
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.running import running
from tests.waiting import PATIENCE


@pytest.fixture
def server(shared):
    return shared


def _kept(server, content) -> object:
    path = server.made()
    got = server.post(f"{path}/messages", {"messages": [{"role": "user", "content": content}]})
    assert got.status == 200, got.raw
    return server.get(f"{path}/history").json["messages"][0]["content"]


def test_a_line_of_five_megabytes_comes_back_as_it_was(server):
    text = "0123456789" * 500_000
    assert _kept(server, text) == text


@pytest.mark.parametrize(
    "text",
    [
        "🚀👩‍👩‍👧‍👦 ünïcode 漢字",
        "\ud83d",
        "\udc00 half a character \ud800",
        "\x00\x01\x1b[31m",
        "\u2028\u2029",
        "",
        "</script><script>alert(1)</script>",
        "A" * 70_000,
    ],
)
def test_odd_text_comes_back_as_it_was(server, text):
    assert _kept(server, text) == text


@given(st.text(alphabet=st.characters(), max_size=200))
def test_any_text_comes_back_as_it_was(shared, text):
    assert _kept(shared, text) == text


def test_half_a_character_goes_through_every_look(server):
    path = server.made()
    server.post(f"{path}/messages", {"messages": [{"role": "user", "content": "half \ud800 of it"}]})
    for look in ("", "/context", "/history", "/facts", "/checkpoint", "/search?q=half", "/archive/turn_001"):
        got = server.get(f"{path}{look}")
        assert got.status == 200, (look, got.raw)


@pytest.mark.parametrize("number", ["12345678901234567890123456789", "1e400", "-0", "0.1", "1E5", "1e999"])
def test_a_number_is_kept_or_refused_but_never_changed(server, number):
    path = server.made()
    body = f'{{"messages": [{{"role": "user", "content": "x", "n": {number}}}]}}'.encode()
    got = server.post(f"{path}/messages", body)
    if got.status == 200:
        (message,) = json.loads(server.get(f"{path}/history").raw)["messages"]
        assert message["n"] == json.loads(number)
    else:
        assert got.status in (400, 422)
        assert server.get(f"{path}/history").json["total"] == 0


@pytest.mark.parametrize("depth", [50, 300, 900, 100_000])
def test_deep_json_is_kept_or_refused(server, depth):
    path = server.made()
    deep = "[" * depth + "]" * depth
    body = f'{{"messages": [{{"role": "user", "content": "x", "deep": {deep}}}]}}'.encode()
    got = server.post(f"{path}/messages", body)
    assert got.status in (200, 400, 422), got.raw
    if got.status == 200:
        assert server.get(f"{path}/history").status == 200
        assert server.get(f"{path}/context").status == 200


def _talk(port: int, *pieces: bytes, pause: float = 0.0, leave: bool = True) -> bytes:
    """Send pieces, say that there will be no more unless told otherwise, and read until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
            if leave:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has closed already
        found = b""
        try:
            while piece := connection.recv(65_536):
                found += piece
        except OSError:
            pass
        return found


def test_a_head_without_end_is_cut_off(server):
    junk = b"X-Junk: " + b"a" * 1_000_000
    found = _talk(server.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", junk, b"\r\n\r\n")
    assert b"200" not in found.split(b"\r\n")[0]
    assert server.get("/healthz").status == 200


def test_many_headers_are_cut_off(server):
    lines = b"".join(b"X-%d: %s\r\n" % (at, b"v" * 100) for at in range(5_000))
    found = _talk(server.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", lines, b"\r\n")
    assert b"200" not in found.split(b"\r\n")[0]
    assert server.get("/healthz").status == 200


@pytest.mark.parametrize("junk", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"\x16\x03\x01"])
def test_what_is_no_http_is_refused(server, junk):
    assert b" 200 " not in _talk(server.port, junk)
    assert server.get("/healthz").status == 200


def test_a_body_that_comes_too_slowly_ends_its_connection(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running(tmp_path, body_seconds=1) as server:
        path = server.made()
        head = f"POST {path}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        pieces = [f"{head}Content-Length: 1000\r\n\r\n".encode(), *[b" "] * 8]
        assert _talk(server.port, *pieces, pause=0.3) == b""
        assert server.get(f"{path}/history").json["total"] == 0


def test_a_body_in_many_pieces_is_one_body(server):
    path = server.made()
    body = json.dumps({"messages": [{"role": "user", "content": "in pieces"}]}).encode()
    head = (
        f"POST {path}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    pieces = [f"{head}Content-Length: {len(body)}\r\n\r\n".encode(), *(bytes([each]) for each in body)]
    assert b" 200 " in _talk(server.port, *pieces, leave=False)
    assert server.get(f"{path}/history").json["messages"][0]["content"] == "in pieces"


def test_a_client_that_leaves_in_the_middle_of_a_body_appends_nothing(server):
    path = server.made()
    head = f"POST {path}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    _talk(server.port, f"{head}Content-Length: 1000\r\n\r\n".encode(), b'{"messages": [')
    assert server.get(f"{path}/history").json["total"] == 0
