"""Claude Code in a live check: the settings it begins with, how its model calls tools, and what it writes down."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from tools.agents.home import Home
from tools.agents.messages import Messages
from tools.agents.scripted import Api, Call
from tools.agents.story import PROMPT, TASK

MODEL = "claude-sonnet-4-6"
SESSION = "5f0c1a52-7d0e-4c39-9a41-2b6f8e3d9c10"
_KEY = "no-key-is-needed"
_TOOLS = ("Bash", "Read", "Edit", "Write", "Agent", "mcp__compactor")
_ERRORS = ("hook_non_blocking_error", "hook_error_during_execution", "hook_blocking_error", "hook_cancelled")


class ClaudeCode(Struct, frozen=True):
    """The agent that a program is."""

    program: Path
    name: str = "claude-code"
    title: str = "Claude Code"
    shortens: bool = True
    hears_all: bool = True
    has_extension: bool = False
    summary_request: int = 0
    api: Api = Messages(TASK)

    def settings(self, home: Home) -> list[Path]:
        """The files that an install changes."""
        return [home.folder / ".claude" / "settings.json", home.folder / ".claude.json"]

    def prepare(self, home: Home, address: str) -> None:  # noqa: ARG002
        """Settings as a user has them who has worked here before."""
        settings, state = self.settings(home)
        settings.parent.mkdir()
        settings.write_text(json.dumps({"permissions": {"allow": _TOOLS}, "model": MODEL}, indent=2) + "\n")
        project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        known = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "numStartups": 3,
            "customApiKeyResponses": {"approved": [_KEY], "rejected": []},
            "projects": {str(home.project): project},
        }
        state.write_text(json.dumps(known, indent=2) + "\n")

    def review(self, home: Home) -> None:
        """Nobody has to agree to hooks in the user's own settings."""

    def env(self, address: str) -> dict[str, str]:
        """What it is told in the environment: its model is at this address, and nothing else is asked for."""
        return {
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_API_KEY": _KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def work(self, home: Home, address: str) -> subprocess.CompletedProcess[str]:
        """One prompt, to its end."""
        return home.run([self.program, "-p", PROMPT, "--session-id", SESSION], **self.env(address))

    def logs(self, home: Home) -> list[Path]:
        """What it has written down of its sessions."""
        return sorted((home.folder / ".claude" / "projects").glob("*/*.jsonl"))

    def complaints(self, home: Home, printed: str) -> Iterator[str]:  # noqa: ARG002
        """What it says about hooks that failed."""
        for log in self.logs(home):
            for line in log.read_text().splitlines():
                attachment = json.loads(line).get("attachment") or {}
                if attachment.get("type") in _ERRORS:
                    yield json.dumps(attachment)

    def shell(self, label: str, command: str) -> Call:
        """A command in a shell."""
        return Call(label, "Bash", {"command": command, "description": label})

    def ours(self, label: str, tool: str, arguments: dict[str, Any]) -> Call:
        """A tool of our MCP server."""
        return Call(label, f"mcp__compactor__{tool}", arguments)

    def delegate(self, task: str) -> list[Call]:
        """A sub-agent for a task, until it is done."""
        asked = {"description": "Find callers", "prompt": task, "subagent_type": "general-purpose"}
        return [Call("sub-agent", "Agent", asked)]
