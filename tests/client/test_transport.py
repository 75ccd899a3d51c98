"""What is not answered is tried again for a time, and does nothing twice."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading

import pytest

from context_compactor.client import AsyncClient, Client
from context_compactor.client.transport import Transport
from context_compactor.errors import BadSetting, CompactorError, ServerError, ServerUnavailable
from tests.server.running import running
from tests.waiting import PATIENCE, until, wait_for

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


class Clock:
    """A time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def client(script, clock):
    with Client(script.url) as made:
        made._transport = Transport(script.url, None, clock=lambda: clock.now, sleep=clock.sleep)
        yield made


def test_a_busy_server_is_asked_again_after_the_time_it_names(script, client, clock):
    script.steps = [_say(503, {}, Retry_After="3"), _say(502), _say(504), _say(200, HEALTH)]
    assert client.health().status == "ok"
    assert clock.sleeps[0] == 3
    assert len(script.asked) == 4


def test_a_server_cannot_ask_for_a_wait_without_end(script, client, clock):
    script.steps = [_say(503, {}, Retry_After="86400"), _say(200, HEALTH)]
    assert client.health().status == "ok"
    assert clock.sleeps == [10]


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 422, 429, 500])
def test_what_a_server_refuses_is_not_asked_again(script, client, status):
    script.steps = [_say(status, {})]
    with pytest.raises(CompactorError):
        client.append("s", ASK)
    assert len(script.asked) == 1


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


@pytest.mark.parametrize(
    "verb",
    [
        lambda c: c.create(window=8_000),
        lambda c: c.compact("s"),
        lambda c: c.undo("s"),
        lambda c: c.restore("s", "tool_001"),
        lambda c: c.handoff("s"),
        lambda c: c.add_webhook("https://example.org"),
        lambda c: c.remove_webhook("wh_1"),
        lambda c: c.delete("s"),
        lambda c: c.receive("s", "PROCEED"),
    ],
)
def test_every_write_is_sent_again_with_the_same_key(script, client, verb):
    script.steps = [_hang_up, _say(503, {}), _say(404, {})]
    with pytest.raises(CompactorError):
        verb(client)
    keys = [headers["idempotency-key"] for _, _, headers, _ in script.asked]
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize("step", [_hang_up, _say(503, {"type": "x:busy", "title": "Busy", "status": 503})])
def test_it_gives_up_when_the_time_is_over_and_says_how_long_it_has_tried(script, client, clock, step):
    script.steps = [step] * 1_000
    with pytest.raises(ServerUnavailable, match=r"tried \d+ times in 30\.0 seconds"):
        client.health()
    assert clock.now == pytest.approx(30)
    assert 15 <= len(script.asked) < 100
    assert max(clock.sleeps) <= 2


def test_nothing_is_tried_again_when_that_is_turned_off(script):
    script.steps = [_hang_up, _say(200, HEALTH)]
    with Client(script.url, retry_seconds=0) as client, pytest.raises(ServerUnavailable) as error:
        client.health()
    assert len(script.asked) == 1
    assert "tried" not in str(error.value)


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_time_that_is_none_is_refused(seconds):
    with pytest.raises(BadSetting, match="retry_seconds"):
        Client("http://127.0.0.1:8377", retry_seconds=seconds)


def test_a_verb_that_is_cancelled_is_not_tried_again(tmp_path):
    """Nobody listens there, and there would be half a minute to try it again."""
    with running(tmp_path) as server:
        url = server.url

    async def cancel() -> None:
        async with AsyncClient(url, retry_seconds=3600) as client:
            call = asyncio.create_task(client.append("s", ASK))
            await until(_callers)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            threads = client._threads
        await asyncio.to_thread(threads.shutdown, True)

    asyncio.run(cancel())


def _callers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("context-compactor client")]


def test_closing_a_client_ends_what_it_tries_again(tmp_path):
    with running(tmp_path) as server:
        client = Client(server.url, retry_seconds=3600)
    failed: list[Exception] = []

    def call() -> None:
        try:
            client.health()
        except ServerUnavailable as error:
            failed.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    client.close()
    caller.join(PATIENCE)
    assert len(failed) == 1


def test_ctrl_c_ends_what_is_tried_again(tmp_path):
    with running(tmp_path) as server:
        url = server.url
    code = f"from context_compactor.client import Client; print('asks', flush=True); Client('{url}').health()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()

        def is_ended() -> bool:
            """It may not have come as far as to wait, so it is told again."""
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        wait_for(is_ended, pause=1.0)
        assert b"KeyboardInterrupt" in process.stderr.read()


def test_nobody_there_is_said(tmp_path):
    with running(tmp_path) as server:
        url = server.url
    with Client(url, retry_seconds=0) as client, pytest.raises(ServerUnavailable, match="running"):
        client.compact("s")


@pytest.mark.parametrize("body", ["<html>", [], {"status": 1}, {"other": True}])
def test_an_answer_that_is_none_of_ours_is_said(script, client, body):
    script.steps = [_say(200, body)]
    with pytest.raises(ServerError, match="not from a compactor server"):
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
    with Client(script.url, "cct_secret", retry_seconds=0) as client:
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
