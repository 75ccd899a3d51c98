"""Tidying: what is too old to be asked for is deleted now and then, while nobody waits for it."""

from __future__ import annotations

import logging

from context_compactor.errors import CompactorError
from context_compactor.protocols import Desk, Store
from context_compactor.session.core import Clock
from context_compactor.session.deleting import clear_deleted
from context_compactor.session.opening import expire_old
from context_compactor.settings import load_settings

_log = logging.getLogger("context_compactor")
_SECONDS = 600.0


class Tidier:
    """Deletes old jobs, events and answers, and sessions that nobody has used for `retention_days`.

    What a deletion has left behind whose process was killed goes too.
    """

    def __init__(self, store: Store, desk: Desk, clock: Clock) -> None:
        self._store = store
        self._desk = desk
        self._clock = clock

    def look(self) -> float:
        """Delete what is too old; the seconds until the next look."""
        try:
            self._desk.tidy(self._clock())
            expire_old(self._store, load_settings().settings, self._clock)
            clear_deleted(self._store)
        except CompactorError as error:
            _log.warning("what is old cannot be deleted: %s", error)
        return _SECONDS
