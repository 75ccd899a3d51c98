"""A coding agent in a project, as its hooks know it and as its log tells it, and its MCP server as a real program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent
from msgspec import Struct

from context_compactor.agents.project import ancestor_processes
from context_compactor.agents.sync import AgentLog, synced_session, update_hook_state
from context_compactor.mcp.handlers import run_tool
from context_compactor.mcp.tools import TOOLS, ToolContext
from context_compactor.settings import Settings

COMMAND = [sys.executable, "-c", "from context_compactor.start import main; main()", "mcp"]
NEEDLE = "the port of the lamp is 48151"
_MODEL = "claude-opus-4-6"


class Agent(Struct):
    """One session of an agent in a project."""

    root: Path
    key: str

    @property
    def path(self) -> Path:
        """The agent's own log."""
        return self.root / f"{self.key}.jsonl"

    @property
    def log(self) -> AgentLog:
        return AgentLog(str(self.root), self.key, str(self.path), "claude-code")

    @property
    def store(self) -> str:
        return f"sqlite:///{self.root}/.compactor/compactor.db"

    def write(self, lines: Iterable[dict[str, Any]]) -> None:
        """Write lines of a log, each behind the one before, as Claude Code does."""
        known = self.path.read_text().splitlines() if self.path.exists() else []
        parent = json.loads(known[-1])["uuid"] if known else None
        with self.path.open("a") as file:
            for number, line in enumerate(lines, len(known)):
                uuid = f"{self.key}-{number}"
                head = {"parentUuid": parent, "uuid": uuid, "sessionId": self.key, "isSidechain": False}
                file.write(json.dumps(head | {"cwd": str(self.root), "timestamp": "2026-03-01T10:00:00.000Z"} | line))
                file.write("\n")
                parent = uuid

    def follow(self, **how: bool) -> None:
        """What a hook does: take over what is new."""
        with synced_session(self.log, Settings(store=self.store), **how):
            pass

    def is_run_by(self, *processes: str) -> None:
        """What the hook at the start of a session notes: who the agent is, and where its log is."""
        update_hook_state(self.log, processes=" ".join(processes), transcript=str(self.path), agent="claude-code")


def said(text: str) -> dict[str, Any]:
    """The user says something."""
    return {"type": "user", "message": {"role": "user", "content": text}}


def replied(text: str, number: int) -> dict[str, Any]:
    """The agent says something."""
    return _assistant([{"type": "text", "text": text}], number)


def ran(command: str, output: str, number: int) -> list[dict[str, Any]]:
    """The agent runs a command and sees what it prints."""
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": command}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": output}
    return [_assistant([call], number), {"type": "user", "message": {"role": "user", "content": [result]}}]


def _assistant(content: list[dict[str, Any]], number: int) -> dict[str, Any]:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 20_000 + 100 * number, "output_tokens": 5}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": _MODEL, "content": content}
    return {"type": "assistant", "requestId": f"req_{number}", "message": message | {"usage": usage}}


def compacted(summary: str) -> list[dict[str, Any]]:
    """The agent compacts by itself."""
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "compactMetadata": {"trigger": "auto", "preTokens": 150_000},
    }
    text = {"isCompactSummary": True, "type": "user", "message": {"role": "user", "content": summary}}
    return [boundary, text]


def talk(needle: str = NEEDLE) -> list[dict[str, Any]]:
    """A small conversation: a task with a rule, a failure, a long output with something worth finding, an answer."""
    lines = [f"line {number} of the boot log" for number in range(1, 1_200)]
    lines[600] = f"lamp: {needle}"
    return [
        said("Make the lamp test green. Never touch the migrations folder."),
        *ran("pytest tests/test_lamp.py", "FAILED tests/test_lamp.py::test_on - AssertionError: 3 != 4\n1 failed", 1),
        replied("The test fails because the lamp counts from zero.", 2),
        said("Look at the boot log, too."),
        *ran("cat boot.log", "\n".join(lines), 3),
        replied("I have read the boot log.", 4),
        said("Good. Go on."),
        *ran("git commit -m 'Count from one'", "[main 1234567] Count from one", 5),
        replied("Done so far.", 6),
    ]


def known_agent(root: Path) -> Agent:
    """An agent whose session is known to its hooks; it is the program of the test itself."""
    agent = Agent(root, "lamp")
    agent.write(talk())
    agent.follow()
    agent.is_run_by(*ancestor_processes())
    return agent


def arguments(root: Path, *more: object) -> list[str]:
    """The command line of a server of a project."""
    return [*COMMAND[1:], "--project", str(root), *map(str, more)]


def environment(**more: str) -> dict[str, str]:
    """The environment of a server, without what a developer may have set."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("COMPACTOR_", "CLAUDE_"))} | more


@asynccontextmanager
async def connected(root: Path, *more: object, mode: str = "auto") -> AsyncIterator[Client]:
    """The real client at a real server, over standard input and output."""
    server = StdioServerParameters(command=COMMAND[0], args=arguments(root, *more), env=environment(), cwd=root)
    async with Client(stdio_client(server), mode=mode) as client:
        yield client


def text_of(result: CallToolResult) -> str:
    """What a client shows that shows texts."""
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def asking(place: Path | ToolContext, name: str, **given: Any) -> Any:
    """What a tool answers, in the program of the test."""
    return run_tool(_TOOLS[name], place if isinstance(place, ToolContext) else ToolContext(str(place)), given)


_TOOLS = {tool.name: tool for tool in TOOLS}


def started(root: Path, *more: object) -> subprocess.Popen[bytes]:
    """A server, to be spoken to in raw lines."""
    return subprocess.Popen(
        [COMMAND[0], *arguments(root, *more)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=root,
    )
