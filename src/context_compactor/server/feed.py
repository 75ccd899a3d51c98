"""The feed: reads new events from the desk, once for all, and gives them to everybody who follows.

Whoever emits an event here nudges it; those of other servers of the store are found by a short poll, or at once where
the database tells of them. So five hundred readers cost one look at the desk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from context_compactor.errors import StoreError
from context_compactor.protocols import Desk
from context_compactor.store.desk_rows import KeptEvent

_log = logging.getLogger("context_compactor")
_AT_ONCE = 500
_POLL_SECONDS = 0.25
# While the database tells of events, the poll is only there for what was told and not heard.
_TOLD_SECONDS = 2.0

Follower = Callable[[Sequence[KeptEvent]], None]


class Feed:
    """New events in the order in which they were kept. Followers are called in the event loop, and must be quick."""

    def __init__(self, desk: Desk, is_told: Callable[[], bool] = lambda: False) -> None:
        self.position = 0
        """The number of the last event that was given out."""
        self.told_seconds = _TOLD_SECONDS
        self._desk = desk
        self._is_told = is_told
        self._followers: list[Follower] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="context-compactor feed")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def follow(self, follower: Follower) -> None:
        """Have this called with every batch of new events."""
        self._followers.append(follower)

    def start(self) -> None:
        """Begin behind what is kept now. Call it in the event loop."""
        self.position = self._desk.events.last()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    def nudge(self) -> None:
        """There is something new. Any thread may say so."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._nudged.set)

    async def stop(self) -> None:
        """Give out nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._thread.shutdown()

    async def _run(self) -> None:
        is_ill = False
        while True:
            await self._rest()
            try:
                while batch := await self._read():
                    self._give(batch)
                is_ill = False
            except StoreError as error:  # what is there now will be there at the next look
                if not is_ill:
                    _log.warning("events cannot be read: %s", error)
                is_ill = True

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self.told_seconds if self._is_told() else _POLL_SECONDS):
                await self._nudged.wait()
        except TimeoutError:
            return
        finally:
            self._nudged.clear()

    async def _read(self) -> list[KeptEvent]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: self._desk.events.after(self.position, limit=_AT_ONCE))

    def _give(self, batch: Sequence[KeptEvent]) -> None:
        self.position = batch[-1].number
        for follower in self._followers:
            try:
                follower(batch)
            except Exception:  # noqa: BLE001  one that fails must not keep the events from the others
                _log.exception("events %d to %d could not be taken", batch[0].number, batch[-1].number)
