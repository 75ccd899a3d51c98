"""How full all sessions are, in numbers that are kept up to date: only what has changed is read again."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from threading import Lock

import msgspec
from msgspec import Struct

from context_compactor.protocols import Store
from context_compactor.store.rows import as_bytes, timestamp
from context_compactor.store.sql_store import SqlStore

_AT_ONCE = 1_000
_FRESH_SECONDS = 5.0
_ALL_SECONDS = 600.0
# Other machines write what they call the time.
_CLOCKS_DIFFER = 60.0


class _Gauge(Struct, frozen=True):
    tokens: int = 0


class _State(Struct, frozen=True):
    fired: str = ""
    gauge: _Gauge = _Gauge()


class StatisticsSnapshot(Struct, frozen=True):
    """How many sessions are at each level ("" is none), and the tokens of all contexts together."""

    levels: dict[str, int]
    tokens: int


class SessionStatistics:
    """Counts the sessions of a store. Reading costs what has changed in the last minute; deletions count after ten."""

    def __init__(self, store: Store) -> None:
        self._database = store._database if isinstance(store, SqlStore) else None
        self._known: dict[int, tuple[str, int]] = {}
        self._levels: Counter[str] = Counter()
        self._tokens = 0
        self._seen = ""
        self._read_at = self._all_at = 0.0
        self._lock = Lock()

    def read(self) -> StatisticsSnapshot:
        """The numbers, not older than a few seconds."""
        with self._lock:
            now = time.monotonic()
            if now >= self._read_at and self._database is not None:
                if now >= self._all_at:
                    self._known, self._levels, self._tokens, self._seen = {}, Counter(), 0, ""
                    self._all_at = now + _ALL_SECONDS
                self._read_changes()
                self._read_at = time.monotonic() + _FRESH_SECONDS
            return StatisticsSnapshot(dict(self._levels), self._tokens)

    def _read_changes(self) -> None:
        after, number = "", 0
        if self._seen:
            after = timestamp(datetime.fromisoformat(self._seen), -_CLOCKS_DIFFER)
        while rows := self._page(after, number):
            for found, _, state in rows:
                self._count(int(found), msgspec.json.decode(as_bytes(state), type=_State))
            number, after = rows[-1][0], rows[-1][1]
            self._seen = max(self._seen, after)

    def _page(self, after: str, number: int) -> list[tuple[int, str, bytes]]:
        assert self._database is not None
        return self._database.rows(
            "SELECT number, updated_at, state FROM sessions WHERE updated_at > ? OR (updated_at = ? AND number > ?) "
            "ORDER BY updated_at, number LIMIT ?",
            [after, after, number, _AT_ONCE],
        )

    def _count(self, number: int, state: _State) -> None:
        level, tokens = self._known.get(number, (None, 0))
        if level is not None:
            self._levels[level] -= 1
        self._known[number] = (state.fired, state.gauge.tokens)
        self._levels[state.fired] += 1
        self._tokens += state.gauge.tokens - tokens
