"""The same tools over HTTP: for this machine, for whoever has a token, and for no page of another site."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from context_compactor.server.tokens import add_token
from tests.mcp.agent import COMMAND, NEEDLE, Agent, environment, started, text_of
from tests.mcp.test_wire import INITIALIZE
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

ACCEPTS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@contextmanager
def listening(agent: Agent, *more: object) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server that listens, and its address."""
    with started(agent.root, "--http", "--port", 0, *more) as server:
        try:
            assert server.stderr is not None
            output = server.stderr.readline().decode().split()
            assert output[:2] == ["listening", "at"], output
            yield server, output[2]
        finally:
            server.kill()


def post(url: str, body: Any = INITIALIZE, **headers: str) -> tuple[int, str]:
    """One request as anybody could send it: its status and the text of the answer."""
    place, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(place, timeout=PATIENCE)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", f"/{path}", json.dumps(body), ACCEPTS | given)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_the_real_client_calls_tools_over_http(agent: Agent):
    async def story(url: str, mode: str):
        async with Client(streamable_http_client(url), mode=mode) as client:
            assert len((await client.list_tools()).tools) == 8
            found = await client.call_tool("search_archive", {"text": "port of the lamp"})
            wrong = await client.call_tool("recall", {"id": "tool_999"})
            return text_of(found), wrong.is_error

    with listening(agent) as (_, url):
        assert url.startswith("http://127.0.0.1:")
        for mode in ("auto", "legacy"):
            found, is_error = anyio.run(story, url, mode)
            assert (mode, NEEDLE in found, is_error) == (mode, True, True)


def test_without_tokens_only_this_machine_by_its_own_name_is_answered(agent: Agent):
    found = [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "evil.example:80"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ]
    with listening(agent) as (_, url):
        assert [(headers, post(url, **headers)[0]) for headers, _ in found] == found


def test_with_a_token_file_only_who_has_a_token_is_answered(agent: Agent):
    tokens = agent.root / "tokens"
    full = add_token(tokens, "me", "", read_only=False)
    reader = add_token(tokens, "reader", "", read_only=True)
    stranger = add_token(tokens, "team", "team", read_only=False)

    async def story(url: str):
        answers = {}
        for name, token in {"full": full, "reader": reader}.items():
            async with (
                httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as calling,
                Client(streamable_http_client(url, http_client=calling)) as client,
            ):
                wrote = await client.call_tool("checkpoint", {"note": name})
                read = await client.call_tool("facts", {})
                answers[name] = wrote.is_error, read.is_error
        return answers

    with listening(agent, "--token-file", "tokens") as (_, url):
        assert post(url)[0] == 401
        for wrong in ("Bearer cct_nothing", f"Basic {full}", f"Bearer {stranger}"):
            assert post(url, Authorization=wrong)[0] == 401
        assert post(url, Authorization=f"Bearer {full}")[0] == 200
        assert post(url, Authorization=f"Bearer {full}", Origin="http://evil.example")[0] == 403
        assert anyio.run(story, url) == {"full": (False, False), "reader": (True, False)}
    assert "full" in (agent.root / ".compactor" / "progress-checkpoint.md").read_text()


def test_garbage_over_http_is_refused_and_the_server_goes_on(agent: Agent):
    with listening(agent) as (_, url):
        for body in ("no request", [], {"jsonrpc": "2.0"}, {"method": 7}, None):
            assert 400 <= post(url, body)[0] < 500
        assert post(f"{url}/elsewhere")[0] == 404
        assert post(url)[0] == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_though_a_client_listens(agent: Agent, number):
    async def story(server: subprocess.Popen[bytes], url: str) -> bytes:
        async with Client(streamable_http_client(url, terminate_on_close=False), mode="legacy") as client:
            await client.call_tool("facts", {})
            server.send_signal(number)
            return await anyio.to_thread.run_sync(lambda: server.communicate(timeout=PATIENCE)[1])

    with listening(agent) as (server, url):
        said = anyio.run(story, server, url)
    assert server.returncode == 0
    assert said.decode() == "stopped; all requests were completed\n"


def test_a_port_that_is_taken_is_told(agent: Agent):
    with listening(agent) as (_, url):
        port = url.split(":")[2].partition("/")[0]
        with started(agent.root, "--http", "--port", port) as second:
            assert second.stderr is not None
            said = second.stderr.read().decode()
        assert second.returncode == 2
        assert "Try: another --port" in said


def test_the_project_is_the_one_around_the_folder_it_is_started_in(agent: Agent):
    deep = agent.root / "src" / "deep"
    deep.mkdir(parents=True)
    command = [*COMMAND, "--http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=deep, env=environment(), text=True) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        server.terminate()
    assert f"(project: {agent.root})" in line
