"""What is not answered is tried again where that is safe, and said where it is not."""

from __future__ import annotations

import json
import threading

import pytest

from context_compactor.client import Client
from context_compactor.client.transport import Transport
from context_compactor.errors import ServerError, ServerUnavailable
from tests.server.running import running

HEALTH = {"status": "ok", "version": "1"}
APPENDED = {"session_id": "s", "appended": 1, "messages": 1, "tokens": 1, "share": 0.0, "level": None}
ASK = {"role": "user", "content": "Hello"}


def _say(status: int, body: object = None, **headers: str):
    def step(server) -> None:
        content = json.dumps(body).encode() if body is not None else b""
        server.send_response(status)
        for name, value in headers.items():
            server.send_header(name.replace("_", "-"), value)
        server.send_header("Content-Length", str(len(content)))
        server.end_headers()
        server.wfile.write(content)

    return step


def _hang_up(server) -> None:
    server.close_connection = True
    server.connection.close()


@pytest.fixture
def client(script, monkeypatch):
    with Client(script.url) as made:
        made._transport = Transport(script.url, None, sleep=script_sleeps.append)
        script_sleeps.clear()
        yield made


script_sleeps: list[float] = []


def test_a_busy_server_is_asked_again_after_the_time_it_names(script, client):
    script.steps = [_say(503, {}, Retry_After="3"), _say(429), _say(200, HEALTH)]
    assert client.health().status == "ok"
    assert script_sleeps[0] == 3
    assert len(script.asked) == 3


def test_an_append_is_sent_again_with_the_same_key(script, client):
    script.steps = [_hang_up, _say(503), _say(200, APPENDED)]
    client.append("s", ASK)
    keys = {headers["idempotency-key"] for _, _, headers, _ in script.asked}
    assert len(script.asked) == 3
    assert len(keys) == 1


def test_two_appends_have_two_keys(script, client):
    script.steps = [_say(200, APPENDED), _say(200, APPENDED)]
    client.append("s", ASK)
    client.append("s", ASK)
    assert len({headers["idempotency-key"] for _, _, headers, _ in script.asked}) == 2


@pytest.mark.parametrize("verb", [lambda c: c.compact("s"), lambda c: c.undo("s"), lambda c: c.handoff("s")])
def test_what_would_be_done_twice_is_not_sent_twice(script, client, verb):
    script.steps = [_hang_up, _say(200)]
    with pytest.raises(ServerUnavailable):
        verb(client)
    assert len(script.asked) == 1


def test_it_gives_up_in_the_end(script, client):
    script.steps = [_hang_up] * 3
    with pytest.raises(ServerUnavailable, match="Try:"):
        client.health()
    assert len(script.asked) == 3
    assert script_sleeps == sorted(script_sleeps)


def test_nobody_there_is_said(tmp_path):
    with running(tmp_path) as server:
        url = server.url
    with Client(url, attempts=1) as client, pytest.raises(ServerUnavailable, match="running"):
        client.compact("s")


@pytest.mark.parametrize("body", ["<html>", [], {"status": 1}, {"other": True}])
def test_an_answer_that_is_none_of_ours_is_said(script, client, body):
    script.steps = [_say(200, body)]
    with pytest.raises(ServerError, match="none of ours"):
        client.health()


def test_an_error_that_is_no_problem_is_said_with_its_status(script, client):
    script.steps = [_say(418, "teapot")]
    with pytest.raises(ServerError, match="418") as error:
        client.health()
    assert error.value.status == 418


def test_a_redirect_is_not_followed(script, client):
    script.steps = [_say(302, None, Location="http://127.0.0.1:1/steal")]
    with pytest.raises(ServerError):
        client.health()


def test_the_token_is_sent_and_never_told(script):
    with Client(script.url, "cct_secret", attempts=1) as client:
        script.steps = [_hang_up]
        with pytest.raises(ServerUnavailable) as error:
            client.health()
    assert script.asked[0][2]["authorization"] == "Bearer cct_secret"
    assert "cct_secret" not in str(error.value)


def test_a_base_path_stands_before_every_path(script):
    with Client(f"{script.url}/compactor/") as client:
        script.steps = [_say(200, HEALTH)]
        client.health()
    assert script.asked[0][1] == "/compactor/healthz"


def test_connections_are_used_again_and_by_many_threads(shared):
    with Client(shared.url) as client:
        for _ in range(5):
            client.health()
        assert len(client._transport._kept) == 1
        threads = [threading.Thread(target=client.health) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 1 <= len(client._transport._kept) <= 8
    assert client._transport._kept == []
