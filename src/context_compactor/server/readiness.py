"""Whether the server can do its work now: its store is written and read, in a bounded time, whatever else goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

_log = logging.getLogger("context_compactor")
ANSWER_SECONDS = 0.8
LOCK_SECONDS = 0.5
"""How long a check waits for a lock of the store: it is to know why it failed before the answer is due."""
_FRESH_SECONDS = 1.0
"""How long a result counts: whoever may ask, and anybody may, costs at most one small write in that time."""
_LATE = dict.fromkeys(("read", "write"), f"no answer from the store within {ANSWER_SECONDS:g} seconds")

Failing = Mapping[str, str]
"""What fails, `read` or `write`, and why."""


class Readiness:
    """Checks the store in a thread of its own. Those who ask while a check is under way share it."""

    def __init__(self, check: Callable[[], Failing]) -> None:
        self._check = check
        self._under_way: asyncio.Future[Failing] | None = None
        self._known: Failing = {}
        self._known_until = 0.0
        self._told: frozenset[str] = frozenset()

    async def failing(self) -> Failing:
        """What fails now; nothing when all is well."""
        loop = asyncio.get_running_loop()
        if self._under_way is None and loop.time() < self._known_until:
            return self._known
        if self._under_way is None:
            self._under_way = loop.create_future()
            threading.Thread(target=self._work, args=(loop,), name="context-compactor readiness", daemon=True).start()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await asyncio.shield(self._under_way)
        except TimeoutError:
            found = _LATE
        self._tell(found)
        return found

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            found = self._check()
        except Exception as error:  # noqa: BLE001  whoever waits is told, whatever it was
            found = dict.fromkeys(("read", "write"), f"{type(error).__name__}: {error}")
        with suppress(RuntimeError):  # the server has stopped meanwhile
            loop.call_soon_threadsafe(self._settle, found, loop.time())

    def _settle(self, found: Failing, now: float) -> None:
        self._known, self._known_until = found, now + _FRESH_SECONDS
        done, self._under_way = self._under_way, None
        if done is not None:
            done.set_result(found)

    def _tell(self, found: Failing) -> None:
        """Log when something else fails than before: checks come every few seconds."""
        if found.keys() != self._told:
            self._told = frozenset(found)
            for what, why in found.items():
                _log.error("the store fails to %s: %s", what, why)
            if not found:
                _log.warning("the store can be read and written again")
