"""Keeping: signs of life for an engine's jobs, and an eye on those of dead ones."""

from __future__ import annotations

import time
from collections.abc import Callable

from context_compactor.errors import StoreError
from context_compactor.jobs.leases import Leases
from context_compactor.jobs.outage import Outage
from context_compactor.jobs.values import Pace


class Keeper:
    """Looks after leases. `freed` is called when a job waits again whose holder is gone."""

    def __init__(self, leases: Leases, outage: Outage, pace: Pace, freed: Callable[[], None]) -> None:
        self._leases = leases
        self._outage = outage
        self._pace = pace
        self._freed = freed
        self._beat_at = time.monotonic()

    def look(self) -> float:
        """Give a sign of life when it is time, and free what lapsed; the seconds until the next look."""
        try:
            if time.monotonic() >= self._beat_at:
                self._leases.renew()
                self._beat_at = time.monotonic() + self._pace.beat
            if self._leases.free_lapsed():
                self._freed()
            self._outage.end()
        except StoreError as error:
            self._outage.begin(error)
        return max(min(self._pace.watch, self._pace.beat), self._outage.wait)
