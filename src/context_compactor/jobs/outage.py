"""Outages: a store that does not answer is spoken of once, and asked again ever more rarely until it does."""

from __future__ import annotations

import logging
import time
from threading import Lock

from context_compactor.errors import StoreError

_log = logging.getLogger("context_compactor")
_LONGEST_WAIT = 5.0


class Outage:
    """Whether the store answers, for all threads of an engine."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._since: float | None = None

    @property
    def wait(self) -> float:
        """How many seconds to wait before the store is asked again: as long as it has been away, within limits."""
        since = self._since
        return 0.0 if since is None else min(time.monotonic() - since, _LONGEST_WAIT)

    def begin(self, error: StoreError) -> None:
        """The store did not answer. Only the first who says so is heard."""
        with self._lock:
            is_known, self._since = self._since is not None, self._since or time.monotonic()
        if not is_known:
            _log.warning("no job can be done, and it is tried again until it works: %s", error)

    def end(self) -> None:
        """The store has answered."""
        with self._lock:
            was_away, self._since = self._since is not None, None
        if was_away:
            _log.warning("the store answers again, and jobs go on")
