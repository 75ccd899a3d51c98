"""Work that may wait for a model: in threads of its own, so that nobody else waits for it, and with an end."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import TypeVar

from context_compactor.errors import ModelStopped
from context_compactor.session.session import Session

_LOOK_SECONDS = 0.05
T = TypeVar("T")


class LongWork:
    """At most so many compactions at once, and of one namespace no more than half of them."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="context-compactor compaction")
        self._rooms = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(max(1, threads // 2)))
        self._under_way: set[Session] = set()
        self._is_over = False

    @asynccontextmanager
    async def room(self, namespace: str) -> AsyncIterator[None]:
        """Wait for one's turn."""
        async with self._rooms[namespace]:
            yield

    async def run(self, session: Session, work: Callable[[Session], T]) -> T:
        """Do something with a session that nobody else uses, and close it."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, copy_context().run, self._do, session, work
        )

    def _do(self, session: Session, work: Callable[[Session], T]) -> T:
        with session:
            if self._is_over:
                raise ModelStopped("the server stops. Try: again in a moment.")
            self._under_way.add(session)
            try:
                return work(session)
            finally:
                self._under_way.discard(session)

    def cancel(self) -> None:
        """End what waits for a model, and begin nothing more; whoever asked for it is told."""
        self._is_over = True
        for session in list(self._under_way):
            session.cancel()

    def close(self) -> None:
        """End it all. Blocks."""
        self.cancel()
        while self._under_way:  # what can be cancelled may only be about to begin
            time.sleep(_LOOK_SECONDS)
            self.cancel()
        self._threads.shutdown()
