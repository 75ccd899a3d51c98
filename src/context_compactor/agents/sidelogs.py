"""The logs of sub-agents, which lie beside that of the session they were called in."""

from __future__ import annotations

from pathlib import Path

from context_compactor.agents.keeping_up import Log
from context_compactor.agents.places import AGENT_TOOLS, session_key
from context_compactor.agents.window_use import last_lines, tokens_at_end

_TAIL = 256 * 1024


def waiting_for(log: Log) -> Log | None:
    """The sub-agent that a session waits for, the fullest of several; None when it waits for none.

    Claude Code calls the hooks of a compaction within a sub-agent as if it were the session's own.
    """
    if not _waits(log.path):
        return None
    folder = Path(log.path).with_suffix("") / "subagents"
    found = sorted(folder.glob("agent-*.jsonl"), key=lambda path: tokens_at_end(str(path), with_children=True))
    if not found:
        return Log(log.root, session_key(log.key, "unknown"), "", log.agent)
    path = found[-1]
    return Log(log.root, session_key(log.key, path.stem.removeprefix("agent-")), str(path), log.agent)


def _waits(path: str) -> bool:
    """Whether a call of a sub-agent has no result at the end of a log."""
    answered: set[str] = set()
    for line in last_lines(path, _TAIL):
        message = line.get("message")
        blocks = message.get("content") if isinstance(message, dict) else None
        for block in blocks if isinstance(blocks, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") == "tool_result":
                answered.add(str(block.get("tool_use_id")))
            elif block.get("type") == "tool_use" and block.get("name") in AGENT_TOOLS:
                return str(block.get("id")) not in answered
    return False
