"""What does the work of each tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from context_compactor.mcp import recalling, standing
from context_compactor.mcp.answers import Answer
from context_compactor.mcp.place import Place
from context_compactor.mcp.tools import Tool

_WORK: Mapping[str, Callable[[Place, Any], Answer]] = {
    "recall": recalling.recall,
    "search_archive": recalling.search_archive,
    "list_turns": recalling.list_turns,
    "facts": recalling.facts,
    "context_status": standing.context_status,
    "compact_plan": standing.compact_plan,
    "checkpoint": standing.checkpoint,
    "handoff": standing.handoff,
}


def run(tool: Tool, place: Place, arguments: Mapping[str, Any]) -> Answer:
    """Do what is asked. An argument that is null counts as not given; `ValidationError` when one does not fit."""
    given = {name: value for name, value in arguments.items() if value is not None}
    return _WORK[tool.name](place, msgspec.convert(given, tool.asked, strict=False))
