"""Waiting for what other threads and programs do, but not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

PATIENCE = 90.0
"""How many seconds a test waits at most. It is long, since only what fails takes so long."""
_PAUSE = 0.005


def wait_for(what: Callable[[], object] | Event, told: Callable[[], object] = lambda: "") -> None:
    """Wait until something is so; when it never is, `told` says how far it has come."""
    is_so = what.is_set if isinstance(what, Event) else what
    give_up = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < give_up, f"it never came: {told()}"
        time.sleep(_PAUSE)
