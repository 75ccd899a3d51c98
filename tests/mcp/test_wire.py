"""Raw lines, as an inspector sends them: nothing but the protocol comes back, and nothing ends it but its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests import warm
from tests.mcp.agent import Agent, environment, known_agent, started
from tests.waiting import PATIENCE

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "inspector", "version": "0"},
    },
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Talk:
    """A conversation with a server in lines."""

    def __init__(self, agent: Agent, *more: object) -> None:
        self.server = started(agent.root, *more)
        self._id = 1
        self.opening = self.ask(INITIALIZE)
        self.send(READY)

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()
        with self.server:  # waits for it and closes its streams
            pass

    def send(self, line: dict[str, Any] | bytes) -> None:
        assert self.server.stdin is not None
        self.server.stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        self.server.stdin.flush()

    def ask(self, line: dict[str, Any]) -> dict[str, Any]:
        """Send a request; the answer to it."""
        assert self.server.stdout is not None
        self.send(line)
        answer = json.loads(self.server.stdout.readline())
        assert answer["id"] == line["id"]
        return answer

    def request(self, method: str, params: Any = None) -> dict[str, Any]:
        self._id += 1
        given = {} if params is None else {"params": params}
        return self.ask({"jsonrpc": "2.0", "id": self._id, "method": method, **given})

    def call(self, name: Any, arguments: Any = None) -> dict[str, Any]:
        return self.request("tools/call", {"name": name, "arguments": arguments})

    def end(self) -> tuple[int, bytes, bytes]:
        """Wait until the server has ended; its code and what it left behind."""
        out, err = self.server.communicate(timeout=PATIENCE)
        return self.server.returncode, out, err


@pytest.fixture(scope="module")
def talk(tmp_path_factory) -> Iterator[Talk]:
    """A server that goes on, whatever it is asked."""
    with Talk(known_agent(tmp_path_factory.mktemp("project"))) as talk:
        yield talk


def test_a_client_of_today_is_told_who_answers_and_how_to_use_it(talk: Talk):
    found = talk.opening["result"]
    assert found["protocolVersion"] == "2025-06-18"
    assert found["serverInfo"]["name"] == "context-compactor"
    assert "search_archive" in found["instructions"]
    assert talk.request("ping")["result"] == {}
    tools = talk.request("tools/list")["result"]["tools"]
    assert all(tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object" for tool in tools)
    assert [tool["name"] for tool in tools if tool.get("_meta")] == ["recall", "search_archive"]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("recall", {}, "`id`"),
    ("recall", {"id": 7}, "$.id"),
    ("recall", {"id": "tool_999"}, "11 are archived"),
    ("recall", {"id": "the boot log"}, "tool_017"),
    ("recall", {"id": "file_002", "page": 99}, "page=4"),
    ("recall", {"id": "file_002", "lines": "40-10"}, "1,199"),
    ("recall", {"id": "file_002", "lines": "first"}, "$.lines"),
    ("recall", {"id": "file_002", "offset": 3}, "`offset`"),
    ("search_archive", {"text": ""}, "$.text"),
    ("search_archive", {"text": "lamp", "kind": "poem"}, "test run"),
    ("search_archive", {"text": "lamp", "limit": 1_000_000}, "$.limit"),
    ("facts", {"kind": "poem"}, "constraint"),
    ("facts", {"page": 3}, "page=1"),
    ("compact_plan", {"level": "hard"}, "level"),
    ("handoff", {"phase": "sleep"}, "phase"),
    ("facts", {"session": "of somebody else"}, "session"),
    ("compact", {}, "compact_plan"),
]


def test_what_cannot_be_done_is_an_answer_that_says_what_to_try(talk: Talk):
    for name, arguments, found in WRONG:
        got = talk.call(name, arguments)["result"]
        assert got["isError"] is True, (name, arguments)
        assert found in got["content"][0]["text"]
        assert "Traceback" not in got["content"][0]["text"]
    assert talk.call("recall", {"id": "tool_001"})["result"]["isError"] is False


def test_garbage_and_requests_that_are_none_do_not_end_the_server(talk: Talk):
    talk.send(b"this is no JSON\n")
    talk.send(b"\xff\xfe\x00{}\n")
    talk.send(b"\n")
    talk.send(b"[" * 100_000 + b"\n")
    talk.send({"jsonrpc": "2.0", "method": "notifications/nobody/knows"})
    assert "error" in talk.request("tools/nonsense")
    assert "error" in talk.request("tools/call", {"arguments": {}})
    assert "error" in talk.request("tools/call", {"name": "recall", "arguments": ["tool_001"]})
    assert talk.request("ping")["result"] == {}


def test_half_a_character_in_a_question_is_answered_and_not_dropped(talk: Talk):
    line = b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"search_archive",'
    talk.send(line + b'"arguments":{"text":"lamp \\ud83d"}}}\n')
    assert talk.server.stdout is not None
    got = json.loads(talk.server.stdout.readline())
    assert got["id"] == 77
    assert got["result"]["structuredContent"]["hits"]


def test_the_end_of_the_input_ends_the_server_cleanly(agent: Agent):
    with Talk(agent) as talk:
        assert talk.request("ping")["result"] == {}
        assert talk.end() == (0, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly_while_it_waits_for_a_line(agent: Agent, number):
    with Talk(agent) as talk:
        assert talk.request("ping")["result"] == {}
        talk.server.send_signal(number)
        assert talk.end() == (0, b"", b"")


def test_a_client_that_is_gone_ends_the_server_without_a_traceback(agent: Agent):
    with Talk(agent) as talk:
        assert talk.server.stdout is not None
        talk.server.stdout.close()
        talk.send({"jsonrpc": "2.0", "id": 5, "method": "ping"})
        assert talk.server.stdin is not None
        assert talk.server.stderr is not None
        talk.server.stdin.close()
        talk.server.wait(PATIENCE)
        assert b"Traceback" not in talk.server.stderr.read()


def test_without_its_library_the_command_says_which_extra_it_needs(tmp_path):
    code = "import sys; sys.modules['mcp'] = None; from context_compactor.start import main; main()"
    got = subprocess.run(
        [sys.executable, "-c", code, "mcp"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (got.returncode, got.stdout) == (2, "")
    assert ".[mcp]" in got.stderr


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--project", "nowhere"], "--project"),
        (["--token-file", "tokens"], "token"),
        (["--http", "--host", "0.0.0.0"], "--token-file"),
        (["--http", "--port", "70000"], "--port"),
    ],
)
def test_a_wrong_option_is_told_in_one_line(tmp_path, more, told):
    got = warm.run("mcp", *more, cwd=tmp_path, env=environment())
    assert (got.returncode, got.stdout) == (2, b"")
    assert told in got.stderr.decode()
    assert len(got.stderr.splitlines()) == 1
