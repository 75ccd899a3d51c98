"""An event: one thing that happened to a session, in an envelope that every sink can read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Literal, get_args

from msgspec import Struct

from context_compactor.events.payload import fitting, plain_text

EventType = Literal[
    "threshold.crossed",
    "job.queued",
    "job.retried",
    "job.dropped",
    "summary.applied",
    "session.compacted",
    "compaction.refused",
    "compaction.failed",
    "compaction.undone",
    "compaction.suggested",
    "compaction.expected",
    "item.recalled",
    "item.restored",
    "fact.promoted",
    "session.deleted",
]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)


class Event(Struct, frozen=True):
    """`id` sorts by time, `created_at` is in UTC, `payload` is plain JSON of at most 16 KB and not to be changed."""

    id: str
    type: EventType
    session_id: str
    created_at: str
    payload: dict[str, Any]


def make_event(type: EventType, session_id: str, payload: Mapping[str, Any], now: datetime) -> Event:  # noqa: A002
    """An event with an id of its own. A payload that is too large is shortened and says `"truncated": true`."""
    created_at = now.astimezone(UTC).isoformat(timespec="milliseconds")
    return Event(_ids.next_id(now), type, plain_text(session_id), created_at, fitting(payload))


class _Ids:
    """Version 7 UUIDs that only rise within this interpreter, even while the clock stands still or goes back."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = 0

    def next_id(self, now: datetime) -> str:
        """Milliseconds and a counter of 12 bits, then random bits: a forked child shares the first, not the second."""
        milliseconds = max(int(now.timestamp() * 1000), 0)
        with self._lock:
            self._last = max(milliseconds << 12, self._last + 1)
            last = self._last
        time, counter = f"{last >> 12:012x}", last & 0xFFF
        rest = f"{int.from_bytes(os.urandom(8)) & (1 << 62) - 1 | 1 << 63:016x}"
        return f"{time[:8]}-{time[8:]}-7{counter:03x}-{rest[:4]}-{rest[4:]}"


_ids = _Ids()
