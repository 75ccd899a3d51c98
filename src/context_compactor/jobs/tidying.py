"""Tidying: what is too old to be asked for is deleted now and then, in a thread that nobody waits for."""

from __future__ import annotations

import logging
from threading import Event, Thread

from context_compactor.errors import CompactorError
from context_compactor.protocols import Desk, Store
from context_compactor.session.core import Clock
from context_compactor.session.opening import expire_old
from context_compactor.settings import load_settings

_log = logging.getLogger("context_compactor")
_SECONDS = 600.0


class Tidier:
    """Deletes old jobs, events and answers, and sessions that nobody has used for `retention_days`."""

    def __init__(self, store: Store, desk: Desk, clock: Clock) -> None:
        self._store = store
        self._desk = desk
        self._clock = clock
        self._over = Event()
        self._thread = Thread(target=self._run, name="tidying", daemon=True)

    def start(self) -> None:
        """Begin, with a look at once."""
        self._thread.start()

    def stop(self) -> None:
        """Delete nothing more; what is being deleted is finished."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def tidy(self) -> None:
        """Delete what is too old."""
        self._desk.tidy(self._clock())
        expire_old(self._store, load_settings().settings, self._clock)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.tidy()
            except CompactorError as error:
                _log.warning("what is old cannot be deleted: %s", error)
            self._over.wait(_SECONDS)
