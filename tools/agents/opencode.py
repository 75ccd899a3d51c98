"""OpenCode in a live check: the settings it begins with, how its model calls tools, and what it writes down."""

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

_MODEL = {"name": "Scripted", "tool_call": True, "limit": {"context": 190_000, "output": 8_000}}
_OFFLINE = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
}
# Where there are plugins, OpenCode installs its own package for them unless it is locked already.
_PLUGIN_PACKAGE = {"dependencies": {"@opencode-ai/plugin": "*"}}


class OpenCode(Struct, frozen=True):
    """The agent that a program is."""

    program: Path
    name: str = "opencode"
    title: str = "OpenCode"
    shortens: bool = False
    hears_all: bool = False
    has_extension: bool = True
    compaction: AgentCompaction = "ours"
    summary_request: int = 200
    """Up to how many characters its model is asked for a summary: it is asked for one word."""
    api: Api = Messages(shell="bash", summaries=("The summary is written already", "Here is the conversation so"))

    @property
    def story(self) -> Script:
        """What its model does."""
        return main_story(self)

    def settings(self, home: Home) -> list[Path]:
        """The files that an install changes."""
        return [home.folder / ".config" / "opencode" / "plugins" / "compactor.js"]

    def prepare(self, home: Home, address: str) -> None:
        """Settings as a user has them who has worked here before."""
        folder = home.folder / ".config" / "opencode"
        (folder / "node_modules").mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps(_PLUGIN_PACKAGE))
        (folder / "package-lock.json").write_text(json.dumps({"packages": {"": _PLUGIN_PACKAGE}}))
        options = {"baseURL": f"{address}/v1", "apiKey": "no-key-is-needed"}
        provider = {"npm": "@ai-sdk/anthropic", "name": "Local", "options": options, "models": {"scripted": _MODEL}}
        settings = {
            "model": "local/scripted",
            "small_model": "local/scripted",
            "enabled_providers": ["local"],
            "share": "disabled",
            "autoupdate": False,
            "provider": {"local": provider},
        }
        (folder / "opencode.json").write_text(json.dumps(settings))

    def review(self, home: Home) -> None:
        """Nobody has to agree to the user's own plugins."""

    def work(self, home: Home, address: str) -> subprocess.CompletedProcess[str]:  # noqa: ARG002
        """One prompt, to its end."""
        return home.run([self.program, "run", "--auto", PROMPT], **_OFFLINE)

    def logs(self, home: Home) -> list[Path]:
        """It keeps a database: what its plugin has sent is written down here."""
        return sorted((home.project / ".compactor" / "logs").glob("opencode-*.json"))

    def complaints(self, home: Home, printed: str) -> Iterator[str]:  # noqa: ARG002
        """What it says about plugins that failed."""
        yield from (line for line in printed.splitlines() if "plugin" in line)

    def shell(self, label: str, command: str) -> Call:
        """A command in a shell."""
        return Call(label, "bash", {"command": command, "description": label})

    def ours(self, label: str, tool: str, arguments: dict[str, Any]) -> Call:
        """A tool of our MCP server."""
        return Call(label, f"compactor_{tool}", arguments)

    def delegate(self, task: str) -> list[Call]:  # noqa: ARG002
        """Its sub-agents are sessions of their own, and are not part of this check."""
        return []
