"""Keeping: a thread that gives signs of life for an engine's jobs and looks for those of dead ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread

from context_compactor.errors import StoreError
from context_compactor.jobs.leases import Leases
from context_compactor.jobs.outage import Outage
from context_compactor.jobs.values import Pace


class Keeper:
    """Looks after leases, from `start` to `stop`. `freed` is called when a job waits again whose holder is gone."""

    def __init__(self, leases: Leases, outage: Outage, pace: Pace, freed: Callable[[], None]) -> None:
        self._leases = leases
        self._outage = outage
        self._pace = pace
        self._freed = freed
        self._over = Event()
        self._thread = Thread(target=self._run, name="job leases", daemon=True)

    def start(self) -> None:
        """Begin, with a look at once."""
        self._thread.start()

    def stop(self) -> None:
        """Give no sign of life any more."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        beat = time.monotonic()
        while not self._over.is_set():
            try:
                if time.monotonic() >= beat:
                    self._leases.renew()
                    beat = time.monotonic() + self._pace.beat
                if self._leases.free_lapsed():
                    self._freed()
                self._outage.end()
            except StoreError as error:
                self._outage.begin(error)
            self._over.wait(max(min(self._pace.watch, self._pace.beat), self._outage.wait))
