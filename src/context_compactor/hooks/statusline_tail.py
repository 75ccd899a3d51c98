"""What the end of a Claude Code transcript tells: the size of the last answers, and the last compaction.

Only the standard library: the status line begins with this.
"""

from __future__ import annotations

import json

from context_compactor.agents.window_use import count, last_bytes, reply_tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Read in about a millisecond, and as much as a session writes in half a window or more.
_TAIL = 2 * 1024 * 1024
_LONGEST_LINE = 512 * 1024
_FORECAST_TURNS = 10
_FEWEST_TURNS = 3

_BOUNDARY = b'"compact_boundary"'
_USAGE = b'"usage"'


class Compaction:
    """The last time the agent compacted: when, and the tokens in its window before and at the first answer after."""

    __slots__ = ("after", "at", "before")

    def __init__(self, line: dict[str, Any], after: int) -> None:
        facts = line.get("compactMetadata")
        stamp = line.get("timestamp")
        self.before = count(facts.get("preTokens")) if isinstance(facts, dict) else 0
        self.after = after
        self.at = stamp if isinstance(stamp, str) else ""


class Tail:
    """`totals` are the tokens in the window at each answer since the last compaction, the newest first."""

    __slots__ = ("compaction", "totals")

    def __init__(self, totals: list[int], compaction: Compaction | None = None) -> None:
        self.totals = totals
        self.compaction = compaction

    @property
    def growth(self) -> int | None:
        """The median of what the last turns have added, or None when there are too few to tell."""
        steps = [newer - older for newer, older in zip(self.totals, self.totals[1:], strict=False)]
        added = sorted(step for step in steps if step > 0)
        if len(added) < _FEWEST_TURNS:
            return None
        return (added[len(added) // 2] + added[(len(added) - 1) // 2] + 1) // 2


def read_tail(path: str) -> Tail:
    """The end of a transcript; nothing, when it cannot be read or tells nothing."""
    text = last_bytes(path, _TAIL)
    boundary, since = _last_boundary(text)
    totals: list[int] = []
    newest = ""
    for raw in _lines_backwards(text, since):
        line = _parse(raw) if _USAGE in raw else {}
        tokens, reply = _total(line), _reply(line)
        if tokens and not (reply and reply == newest):  # a reply is logged as several lines
            totals.append(tokens)
            newest = reply
        if len(totals) > _FORECAST_TURNS:
            break
    return Tail(totals, Compaction(boundary, _first_total(text, since)) if boundary else None)


def _last_boundary(text: bytes) -> tuple[dict[str, Any], int]:
    """The line that says that the agent compacted, and where the next one begins."""
    at = text.rfind(_BOUNDARY)
    while at >= 0:
        start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        line = _parse(text[start : end if end >= 0 else None])
        if line.get("subtype") == "compact_boundary":
            return line, end + 1 if end >= 0 else len(text)
        at = text.rfind(_BOUNDARY, 0, start)
    return {}, 0


def _lines_backwards(text: bytes, since: int) -> Iterator[bytes]:
    end = len(text)
    while end > since:
        start = text.rfind(b"\n", since, end) + 1 or since
        yield text[start:end]
        end = start - 1


def _first_total(text: bytes, since: int) -> int:
    at = text.find(_USAGE, since)
    while at >= 0:
        start, end = text.rfind(b"\n", since, at) + 1 or since, text.find(b"\n", at)
        tokens = _total(_parse(text[start : end if end >= 0 else None]))
        if tokens or end < 0:
            return tokens
        at = text.find(_USAGE, end)
    return 0


def _parse(raw: bytes) -> dict[str, Any]:
    """A line of the main conversation, or nothing: a sub-agent has a window of its own."""
    if len(raw) > _LONGEST_LINE:
        return {}
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):  # one that is still being written
        return {}
    return line if isinstance(line, dict) and not line.get("isSidechain") else {}


def _total(line: dict[str, Any]) -> int:
    message = line.get("message")
    if line.get("type") != "assistant" or not isinstance(message, dict):
        return 0
    is_by_client = line.get("isApiErrorMessage") or message.get("model") == "<synthetic>"
    return 0 if is_by_client else reply_tokens(message.get("usage"))


def _reply(line: dict[str, Any]) -> str:
    message = line.get("message")
    found = message.get("id") if isinstance(message, dict) else None
    return found if isinstance(found, str) else ""
