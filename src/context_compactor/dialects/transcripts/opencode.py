"""Sessions of OpenCode as `opencode export` prints them, as messages in Anthropic's form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from context_compactor.dialects.messages import ReportedUsage, read_usage
from context_compactor.dialects.transcripts.transcript import (
    Block,
    CompactionBoundary,
    Transcript,
    TranscriptBuilder,
    as_blocks,
    utc_time,
)

LogMessage = dict[str, Any]


def is_session(value: object) -> bool:
    """Whether a JSON value is such a session: messages that each have an `info` and their `parts`."""
    messages = value.get("messages") if isinstance(value, dict) else None
    return isinstance(messages, list) and bool(messages) and all(_is_message(message) for message in messages)


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("info"), dict) and isinstance(value.get("parts"), list)


def read(value: dict[str, Any]) -> Transcript:
    """The conversation, up to an answer that is still being written."""
    messages: list[LogMessage] = value["messages"]
    header = _table(value, "info")
    steps = TranscriptBuilder()
    boundaries = _boundaries(messages)
    model = ""
    for message in messages:
        head = message["info"]
        time = _table(head, "time")
        steps.at = utc_time(time.get("created"))
        name = str(head.get("id"))
        if name in boundaries:
            steps.add_boundary(boundaries[name])
        if _is_summary(head) or _compaction(message) is not None:
            continue
        if head.get("role") != "assistant":
            steps.add_user(list(_user_blocks(message)))
            continue
        if "completed" not in time:
            break
        model = str(head.get("modelID") or model)
        steps.add_reply(name, list(_reply_blocks(message)), _usage(head.get("tokens")))
        steps.add_user([result for part in _parts(message) if (result := _result(part)) is not None])
    joined = steps.join()
    return Transcript(
        messages=joined.messages,
        dialect="anthropic",
        source="opencode",
        session_id=str(header.get("id") or ""),
        model=model,
        cwd=str(header.get("directory") or ""),
        usages=joined.usages,
        times=joined.times,
        compactions=joined.compactions,
    )


def _boundaries(messages: list[LogMessage]) -> dict[str, CompactionBoundary]:
    """The compactions, by the message that follows the summary: the newest turns before it are kept as they are."""
    summaries = {
        str(message["info"].get("parentID")): _text(message)
        for message in messages
        if _is_summary(message["info"]) and message["info"].get("finish") and not message["info"].get("error")
    }
    found: dict[str, CompactionBoundary] = {}
    for message in messages:
        part, name = _compaction(message), str(message["info"].get("id"))
        if part is not None and name in summaries:
            boundary = CompactionBoundary("auto" if part.get("auto") else "manual")
            boundary.summary = summaries[name]
            found[str(part.get("tail_start_id") or name)] = boundary
    return found


def _is_summary(head: dict[str, Any]) -> bool:
    return head.get("role") == "assistant" and head.get("summary") is True


def _compaction(message: LogMessage) -> Block | None:
    return next((part for part in _parts(message) if part.get("type") == "compaction"), None)


def _parts(message: LogMessage) -> list[Block]:
    return [part for part in as_blocks(message.get("parts")) if isinstance(part, dict)]


def _text(message: LogMessage) -> str:
    return "\n\n".join(str(part.get("text") or "") for part in _parts(message) if part.get("type") == "text").strip()


def _user_blocks(message: LogMessage) -> Iterator[Block]:
    for part in _parts(message):
        if part.get("type") == "text" and not part.get("ignored"):
            yield {"type": "text", "text": str(part.get("text") or "")}
        elif part.get("type") == "file":
            yield {"type": "text", "text": f"[Attached {part.get('mime')}: {part.get('filename') or 'a file'}]"}


def _reply_blocks(message: LogMessage) -> Iterator[Block]:
    for part in _parts(message):
        if part.get("type") == "text":
            yield {"type": "text", "text": str(part.get("text") or "")}
        elif part.get("type") == "reasoning" and part.get("text"):
            yield {"type": "thinking", "thinking": str(part["text"])}
        elif part.get("type") == "tool":
            given = _table(_table(part, "state"), "input")
            yield {"type": "tool_use", "id": str(part.get("callID")), "name": str(part.get("tool")), "input": given}


def _result(part: Block) -> Block | None:
    state = _table(part, "state")
    result = {"type": "tool_result", "tool_use_id": str(part.get("callID"))}
    match part.get("type"), state.get("status"):
        case "tool", "completed":
            return {**result, "content": str(state.get("output") or "")}
        case "tool", "error":
            return {**result, "content": str(state.get("error") or ""), "is_error": True}
    return None


def _table(values: dict[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _usage(tokens: object) -> ReportedUsage | None:
    if not isinstance(tokens, dict):
        return None
    cache = _table(tokens, "cache")
    return read_usage({**tokens, "cacheRead": cache.get("read"), "cacheWrite": cache.get("write")})
