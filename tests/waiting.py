"""The one way in which tests wait: for something to be so, and not for ever.

`wait_for` is for threads and processes, `until` for what runs on the same event loop. `PATIENCE` is for what waits by
itself, such as `Event.wait` or `subprocess.run`. `tools/checks/waits.py` looks that no test waits in another way.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from threading import Event

PATIENCE = 120.0
"""How many seconds a test waits at most. It is long, since only what fails takes so long."""
_PAUSE = 0.005

Told = Callable[[], object]


def wait_for(what: Callable[[], object] | Event, told: Told = lambda: "", pause: float = _PAUSE) -> None:
    """Wait until something is so; when it never is, `told` says how far it has come."""
    looks = _Looks(what, told)
    while not looks.is_so():
        time.sleep(pause)


async def until(what: Callable[[], object], told: Told = lambda: "", pause: float = _PAUSE) -> None:
    """The same while the event loop goes on."""
    looks = _Looks(what, told)
    while not looks.is_so():
        await asyncio.sleep(pause)


class _Looks:
    """Looks at something again and again, and fails with what was seen last."""

    def __init__(self, what: Callable[[], object] | Event, told: Told) -> None:
        self._look = what.is_set if isinstance(what, Event) else what
        self._told = told
        self._give_up = time.monotonic() + PATIENCE

    def is_so(self) -> bool:
        seen = self._look()
        if not seen and time.monotonic() > self._give_up:
            found = f"{_source(self._look)}\nThe last look gave {seen!r:.2000}. {self._told()}"
            raise AssertionError(f"it never came in {PATIENCE:g} seconds: {found}")
        return bool(seen)


def _source(look: Callable[[], object]) -> str:
    """What is waited for, as the test has it."""
    try:
        return inspect.getsource(look).strip()
    except (OSError, TypeError):
        return repr(look)
