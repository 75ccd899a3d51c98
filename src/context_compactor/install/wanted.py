"""What is registered with each agent, as its settings have it: the same for the settings and for the plugin.

A hook and a status line of ours leave with 0 whatever happens, so any other code is the shell's: the command has gone,
or its Python has. Then the status line says so, and so does the hook that a session begins with, as a message to the
user. All other hooks keep quiet: agents show an error for each that fails, which would be one for every tool call.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from context_compactor.agents.known import CLAUDE_CODE, Agent, Hook
from context_compactor.install.ours import SERVER
from context_compactor.install.program import BY_NAME, LAUNCHER_FOLDER, Command

_FIRST = "session-start"
_FOUND_LATER = f'PATH="$PATH:$HOME/{LAUNCHER_FOLDER}"'
"""Behind everything on the PATH: the command that the last install on this machine was run by."""


def hook_groups(agent: Agent, command: Command) -> dict[str, Mapping[str, Any]]:
    """For each event the group of hooks that runs this command, as the agent's settings have it."""
    return {hook.event: _group(agent, hook, command) for hook in agent.hooks}


def mcp_server(agent: Agent, command: Command) -> dict[str, Any]:
    """The MCP server, as the agent's settings have it. Of one that does not start, agents tell their user."""
    if command == BY_NAME:
        server = {"command": "sh", "args": ["-c", f"{_FOUND_LATER} exec {shlex.join(command)} mcp"]}
    else:
        server = {"command": command[0], "args": [*command[1:], "mcp"]}
    return {"type": "stdio", **server} if agent is CLAUDE_CODE else server


def status_line(command: Command) -> dict[str, Any]:
    """The status line, which only Claude Code has."""
    return {"type": "command", "command": _shell_line(command, "statusline", _missing(CLAUDE_CODE, command))}


def plugin_files() -> dict[str, dict[str, Any]]:
    """The files of the Claude Code plugin that register something, by their names in its folder."""
    return {
        "hooks/hooks.json": {"hooks": {event: [group] for event, group in hook_groups(CLAUDE_CODE, BY_NAME).items()}},
        ".mcp.json": {"mcpServers": {SERVER: mcp_server(CLAUDE_CODE, BY_NAME)}},
    }


def _group(agent: Agent, hook: Hook, command: Command) -> dict[str, Any]:
    matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
    message = {"systemMessage": _missing(agent, command)}
    said = json.dumps(message, ensure_ascii=False) if hook.word == _FIRST else ""
    line = _shell_line(command, f"hook {hook.word}", said)
    return {**matcher, "hooks": [{"type": "command", "command": line, "timeout": hook.timeout}]}


def _shell_line(command: Command, arguments: str, otherwise: str) -> str:
    """A line that any shell runs; when the command does not run, what is printed in its place."""
    before = f"{_FOUND_LATER} " if command == BY_NAME else ""
    fallback = f"printf '%s\\n' {shlex.quote(otherwise)}" if otherwise else "true"
    return f"{before}{shlex.join(command)} {arguments} || {fallback}"


def _missing(agent: Agent, command: Command) -> str:
    return (
        f"Context Compactor does not run, so nothing is archived: {' '.join(command)} is not there, or broken. "
        f"Try: install the package again, then compactor install {agent.name}"
    )
