"""What is registered with each agent, as its settings have it: the same for the settings and for the plugin."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from context_compactor.agents.known import CLAUDE_CODE, Agent, Hook
from context_compactor.install.ours import SERVER


def hook_groups(agent: Agent, command: str) -> dict[str, Mapping[str, Any]]:
    """For each event the group of hooks that runs this command, as the agent's settings have it."""
    return {hook.event: _group(hook, command) for hook in agent.hooks}


def mcp_server(agent: Agent, command: str) -> dict[str, Any]:
    """The MCP server, as the agent's settings have it."""
    server = {"command": command, "args": ["mcp"]}
    return {"type": "stdio", **server} if agent is CLAUDE_CODE else server


def status_line(command: str) -> dict[str, Any]:
    """The status line, which only Claude Code has."""
    return {"type": "command", "command": f"{shlex.quote(command)} statusline"}


def plugin_files() -> dict[str, dict[str, Any]]:
    """The files of the Claude Code plugin that register something, by their names in its folder."""
    return {
        "hooks/hooks.json": {"hooks": {event: [group] for event, group in hook_groups(CLAUDE_CODE, SERVER).items()}},
        ".mcp.json": {"mcpServers": {SERVER: mcp_server(CLAUDE_CODE, SERVER)}},
    }


def _group(hook: Hook, command: str) -> dict[str, Any]:
    matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
    return {**matcher, "hooks": [_entry(hook, command)]}


def _entry(hook: Hook, command: str) -> dict[str, Any]:
    return {"type": "command", "command": f"{shlex.quote(command)} hook {hook.word}", "timeout": hook.timeout}
