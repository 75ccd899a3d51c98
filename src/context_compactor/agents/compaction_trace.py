"""What an agent's log says about its compactions: when the last one was, and whether a text of ours arrived."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct

from context_compactor.agents.transcript_tail import is_compaction_line, last_lines

Arrival = Literal["given", "run", "absent"]

_TAIL = 32 * 1024 * 1024
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})


class CompactionTrace(Struct, frozen=True):
    """When an agent compacted last, 0 for never, and whether its model has answered since.

    `by_plugin`: a plugin of the agent has compacted in its place, and hooks before a compaction were not called.
    """

    compacted_at: float = 0.0
    has_continued: bool = False
    by_plugin: bool = False


def read_compaction_trace(path: str) -> CompactionTrace:
    """The last compaction in a log."""
    has_continued = has_summary = has_rows = False
    for line in last_lines(path, _TAIL, (b'"compact', b'"user"', b"assistant", b"_call")):
        has_summary |= bool(line.get("isCompactSummary"))
        has_rows |= line.get("type") == "user"
        if is_compaction_line(line):
            by_plugin = line.get("subtype") == "compact_boundary" and has_rows and not has_summary
            return CompactionTrace(timestamp_seconds(line.get("timestamp")), has_continued, by_plugin)
        payload = line.get("payload")
        if line.get("type") == "response_item" and isinstance(payload, dict):
            has_continued |= payload.get("role") == "assistant" or payload.get("type") in _CALLS
        message = line.get("message")
        has_continued |= line.get("type") == "assistant"
        if line.get("type") == "message" and isinstance(message, dict):  # pi
            has_continued |= message.get("role") == "assistant"
    return CompactionTrace()


def read_time(text: object) -> datetime | None:
    """A time as logs and people write it; without a zone it is in UTC."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
        return found and (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def timestamp_seconds(text: object) -> float:
    """The same as seconds; 0 for what is no time."""
    found = read_time(text)
    return found.timestamp() if found else 0.0


def brief_arrival(path: str, mark: str) -> Arrival:
    """Whether a text with this mark stands in a log as one that the model was given, or only as what a hook said."""
    found: Arrival = "absent"
    for line in last_lines(path, _TAIL, (mark.encode(),)):
        if line.get("type") == "custom_message" or "messages" in line:  # in pi and OpenCode
            return "given"
        attachment, payload = line.get("attachment"), line.get("payload")
        if isinstance(attachment, dict):
            if attachment.get("type") == "hook_additional_context" and mark in str(attachment.get("content")):
                return "given"
            found = "run"
        elif line.get("type") == "response_item" and isinstance(payload, dict) and payload.get("role") == "developer":
            return "given"
    return found
