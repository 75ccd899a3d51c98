"""The logs of sub-agents, which lie beside that of the session they were called in."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import structs

from context_compactor.agents.keeping_up import Log
from context_compactor.agents.places import AGENT_TOOLS, session_key, side_log
from context_compactor.agents.window_use import last_lines, tokens_at_end

_TAIL = 512 * 1024
_LAUNCHED = "async_launched"


def compacted_log(log: Log) -> Log:
    """Whose window was compacted: that of a session, or that of one of its sub-agents.

    Claude Code calls the hooks of a compaction within a sub-agent as if it were the session's own. While a session
    waits for sub-agents it is one of them; while some run in the background, it is whoever is fullest.
    """
    waiting, beside = _running(log.path)
    found = [_of(log, agent_id) for call_id, agent_id in _callers(log.path) if call_id in (waiting or beside)]
    if waiting:
        return max(found, key=_fill, default=_of(log, "unknown"))
    return max([log, *found], key=_fill)


def _of(log: Log, agent_id: str) -> Log:
    return structs.replace(log, key=session_key(log.key, agent_id), path=side_log(log.path, agent_id))


def _fill(log: Log) -> int:
    return tokens_at_end(log.path, with_children=True)


def _running(path: str) -> tuple[set[str], set[str]]:
    """Calls of sub-agents that have no result, and those whose result says that they run in the background.

    One in the background is over when its end is told; that is seen from its id, which is told with it.
    """
    answered: dict[str, str] = {}
    asked: set[str] = set()
    for line in last_lines(path, _TAIL):
        message = line.get("message")
        blocks = message.get("content") if isinstance(message, dict) else None
        for block in blocks if isinstance(blocks, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") == "tool_result":
                answered[str(block.get("tool_use_id"))] = json.dumps(line.get("toolUseResult"))[:2_000]
            elif block.get("type") == "tool_use" and block.get("name") in AGENT_TOOLS:
                asked.add(str(block.get("id")))
    waiting = asked - answered.keys()
    return waiting, {call_id for call_id in asked & answered.keys() if _LAUNCHED in answered[call_id]}


def _callers(path: str) -> list[tuple[str, str]]:
    """The sub-agents of a session, each with the call that began it."""
    folder = Path(side_log(path, "")).parent
    found = []
    for meta in sorted(folder.glob("agent-*.meta.json")):
        try:
            told = json.loads(meta.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(told, dict):
            found.append((str(told.get("toolUseId")), meta.name.removeprefix("agent-").removesuffix(".meta.json")))
    return found
