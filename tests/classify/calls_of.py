"""Short ways to write tool calls."""

from __future__ import annotations

import json

from context_compactor.dialects.messages import ToolCall


def tool(name: str, **arguments: object) -> ToolCall:
    """A call with JSON arguments."""
    return ToolCall("c1", name, json.dumps(arguments))


def bash(command: str) -> ToolCall:
    """A shell command as Claude Code runs it."""
    return tool("Bash", command=command)
