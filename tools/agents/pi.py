"""pi in a live check: the settings it begins with, how its model calls tools, and what it writes down."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.settings import AgentCompaction
from tools.agents.home import Home
from tools.agents.messages import Messages
from tools.agents.scripted import Api, Call, Script
from tools.agents.story import PROMPT, main_story

_MODEL = {"id": "scripted", "contextWindow": 200_000, "maxTokens": 8_000}
_OFFLINE = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}


class Pi(Struct, frozen=True):
    """The agent that a program is."""

    program: Path
    name: str = "pi"
    title: str = "pi"
    shortens: bool = False
    hears_all: bool = False
    has_extension: bool = True
    compaction: AgentCompaction = "ours"
    summary_request: int = 0
    """Up to how many characters its model is asked for a summary: it is not asked at all."""
    api: Api = Messages(shell="bash", summaries=("# Instructions",))

    @property
    def story(self) -> Script:
        """What its model does."""
        return main_story(self)

    def settings(self, home: Home) -> list[Path]:
        """The files that an install changes."""
        return [home.folder / ".pi" / "agent" / "extensions" / "compactor.js"]

    def prepare(self, home: Home, address: str) -> None:
        """Settings as a user has them who has worked here before."""
        folder = home.folder / ".pi" / "agent"
        folder.mkdir(parents=True)
        provider = {"baseUrl": address, "api": "anthropic-messages", "apiKey": "no-key-is-needed", "models": [_MODEL]}
        (folder / "models.json").write_text(json.dumps({"providers": {"local": provider}}))
        # It compacts only what is older than this.
        (folder / "settings.json").write_text(json.dumps({"compaction": {"keepRecentTokens": 1_000}}))

    def review(self, home: Home) -> None:
        """Nobody has to agree to the user's own extensions."""

    def work(self, home: Home, address: str) -> subprocess.CompletedProcess[str]:  # noqa: ARG002
        """One prompt, to its end."""
        return home.run([self.program, "--model", "local/scripted", "-p", PROMPT], **_OFFLINE)

    def logs(self, home: Home) -> list[Path]:
        """What it has written down of its sessions."""
        return sorted((home.folder / ".pi" / "agent" / "sessions").glob("*/*.jsonl"))

    def complaints(self, home: Home, printed: str) -> Iterator[str]:  # noqa: ARG002
        """What it says about extensions that failed."""
        yield from (line for line in printed.splitlines() if "xtension" in line)

    def shell(self, label: str, command: str) -> Call:
        """A command in a shell."""
        return Call(label, "bash", {"command": command})

    def ours(self, label: str, tool: str, arguments: dict[str, Any]) -> Call:
        """A tool of our MCP server."""
        return Call(label, f"mcp__compactor__{tool}", arguments)

    def delegate(self, task: str) -> list[Call]:  # noqa: ARG002
        """It has no sub-agents of its own."""
        return []
