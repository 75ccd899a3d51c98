"""An event: one thing that happened to a session, in an envelope of bounded size that every sink can read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from context_compactor.text import clip

LARGEST_PAYLOAD = 16 * 1024
"""Bytes of JSON that a payload may have."""

TRUNCATED = "truncated"
_DEEPEST = 12
# Characters that a text keeps and items that a list keeps, tried in this order until the payload fits.
_CUTS = ((4_000, 200), (2_000, 100), (1_000, 50), (500, 25), (200, 12), (100, 6), (40, 3), (20, 1))


def fit_payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of plain JSON values that is never over the limit; when something was cut, it says so."""
    plain = {plain_text(key): _plain(value) for key, value in payload.items()}
    if _size(plain) <= LARGEST_PAYLOAD:
        return plain
    for characters, items in _CUTS:
        shorter = {key: _cut(value, characters, items) for key, value in plain.items()} | {TRUNCATED: True}
        if _size(shorter) <= LARGEST_PAYLOAD:
            return shorter
    return _first_keys(plain)


def _first_keys(plain: dict[str, Any]) -> dict[str, Any]:
    """Thousands of keys, or keys that are texts themselves: as many of the first ones as there is room for."""
    kept: dict[str, Any] = {TRUNCATED: True}
    room = LARGEST_PAYLOAD - _size(kept)
    for key, value in plain.items():
        entry = {key[:100]: _cut(value, 20, 1)}
        room -= _size(entry)
        if room < 0:
            break
        kept |= entry
    return kept | {TRUNCATED: True}


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))


def _cut(value: Any, characters: int, items: int) -> Any:
    if isinstance(value, str):
        return clip(value, characters, strip=False)
    if isinstance(value, list):
        return [_cut(item, characters, items) for item in value[:items]]
    if isinstance(value, dict):
        return {
            _cut(key, characters, items): _cut(item, characters, items) for key, item in list(value.items())[:items]
        }
    return value


def _plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    if value is None or isinstance(value, bool | str | int | float):
        return _scalar(value)
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if not isinstance(value, Mapping | list | tuple | Set):
        return plain_text(value)
    if len(above) >= _DEEPEST or id(value) in above:
        return "…"
    within = (*above, id(value))
    if isinstance(value, Mapping):
        return {plain_text(key): _plain(item, within) for key, item in value.items()}
    return [_plain(item, within) for item in value]


def _scalar(value: bool | str | float | None) -> Any:
    """The value as JSON's own type, whatever subclass it is; numbers that readers of JSON would not take as text."""
    if isinstance(value, str):
        return plain_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() < 64 else hex(value)
    return float(value)


def plain_text(value: object) -> str:
    """The value as a text that UTF-8 can hold: lone surrogates are written out."""
    return str(value).encode("utf-8", "backslashreplace").decode()


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
    return Event(_ids.next_id(now), type, plain_text(session_id), created_at, fit_payload(payload))


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
