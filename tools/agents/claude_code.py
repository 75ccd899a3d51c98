"""Claude Code in a live check: the settings it begins with, how its model calls tools, and what it writes down."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.settings import AgentCompaction
from tools.agents.home import Home
from tools.agents.messages import Messages
from tools.agents.scripted import Api, Call, Doing, Request, Script, Step, Until
from tools.agents.story import PROMPT, main_story

MODEL = "claude-sonnet-4-6"
SESSION = "5f0c1a52-7d0e-4c39-9a41-2b6f8e3d9c10"
_WHOSE = {"ours": "our record", "steered": "its own summary in our format", "beside": "its own summary"}
_KEY = "no-key-is-needed"
_TOOLS = ("Bash", "Read", "Edit", "Write", "Agent", "mcp__compactor")
_ERRORS = ("hook_non_blocking_error", "hook_error_during_execution", "hook_blocking_error", "hook_cancelled")


class ClaudeCode(Struct, frozen=True):
    """The agent that a program is, with the `compaction` that the settings of the project ask for."""

    program: Path
    compaction: AgentCompaction = "ours"
    name: str = "claude-code"
    shortens: bool = True
    hears_all: bool = True
    has_extension: bool = False
    summary_request: int = 0
    api: Api = Messages()

    @property
    def title(self) -> str:
        """What it is called in a report."""
        return f"Claude Code, {_WHOSE[self.compaction]}"

    @property
    def story(self) -> Script:
        """What its model does."""
        return main_story(self, long_report=self.compaction == "ours")

    def settings(self, home: Home) -> list[Path]:
        """The files and folders that an install changes."""
        folder = home.folder / ".claude"
        return [folder / "settings.json", home.folder / ".claude.json", folder / "skills"]

    def prepare(self, home: Home, address: str) -> None:  # noqa: ARG002
        """Settings as a user has them who has worked here before."""
        settings, state, _ = self.settings(home)
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
        config = home.project / ".compactor" / "config.toml"
        config.parent.mkdir(exist_ok=True)
        config.write_text(f'agent_compaction = "{self.compaction}"\n')

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
        return self.ask(home, address, PROMPT, "--session-id", SESSION)

    def ask(self, home: Home, address: str, prompt: str, *options: str) -> subprocess.CompletedProcess[str]:
        """A prompt, to its end."""
        return home.run([self.program, "-p", prompt, *options], **self.env(address))

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

    def delegate(self, task: str) -> Sequence[Call | Doing]:
        """A sub-agent for a task; it works in the background, and the model waits for its report."""
        asked = {"description": "Find callers", "prompt": task, "subagent_type": "general-purpose"}
        waiting = Until(_has_report, Step(self.shell("waiting", "sleep 0.5"), 20_000))
        return [Call("sub-agent", "Agent", asked), waiting]


def _has_report(request: Request) -> bool:
    return any("<task-notification>" in text for text in request.texts)
