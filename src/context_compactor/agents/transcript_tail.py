"""The end of an agent's log: its last lines, and how full the window was at the last answer."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_TAIL = 128 * 1024
_MOST = 10**12
_SHOWN = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def last_window_tokens(path: str, size: int = _TAIL, *, with_children: bool = False) -> int:
    """Tokens in the window at the last answer; 0 when the end of the log does not tell.

    Lines of sub-agents are left out, unless it is the log of one.
    """
    for line in last_lines(path, size, (b"usage", b'"compact')):
        if is_compaction_line(line):
            return 0  # what was counted before no longer holds
        tokens = 0 if line.get("isSidechain") and not with_children else _tokens(line)
        if tokens:
            return tokens
    return 0


def is_compaction_line(line: dict[str, Any]) -> bool:
    """Whether the agent has compacted at this line of its log."""
    return line.get("subtype") == "compact_boundary" or line.get("type") in ("compacted", "compaction")


def last_lines(path: str, size: int, marks: tuple[bytes, ...] = (b"",)) -> Iterator[dict[str, Any]]:
    """The lines at the end of a log that hold one of these marks, the last first; unreadable ones are left out."""
    for line in reversed(last_bytes(path, size).split(b"\n")):
        if any(mark in line for mark in marks) and (value := json_object(line)):
            yield value


def json_object(line: bytes | str) -> dict[str, Any]:
    """The object on a line of a log; empty for anything else, such as a line that is cut or still being written."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def last_bytes(path: str, size: int) -> bytes:
    """The end of a file; nothing when it cannot be read."""
    try:
        if not os.path.isfile(path):  # a pipe would let us wait
            return b""
        with open(path, "rb", buffering=0) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size)
    except (OSError, ValueError):
        return b""


def reply_tokens(usage: object) -> int:
    """Tokens in the window once a reply of Claude is there, as the provider counted them; 0 when it did not."""
    if not isinstance(usage, dict):
        return 0
    shown = sum(token_count(usage.get(name)) for name in _SHOWN)
    return shown + token_count(usage.get("output_tokens")) if shown else 0


def token_count(value: object) -> int:
    """A number of tokens, or 0 for what cannot be one."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0
    return int(value) if 0 <= value <= _MOST else 0


def _tokens(line: dict[str, Any]) -> int:
    message, payload = line.get("message"), line.get("payload")
    if line.get("type") == "assistant" and isinstance(message, dict):
        return reply_tokens(message.get("usage"))
    if line.get("type") == "message" and isinstance(message, dict) and isinstance(message.get("usage"), dict):
        return token_count(message["usage"].get("totalTokens"))  # pi
    usage = payload.get("info") if isinstance(payload, dict) and payload.get("type") == "token_count" else None
    last = usage.get("last_token_usage") if isinstance(usage, dict) else None
    return token_count(last.get("total_tokens")) if isinstance(last, dict) else 0
