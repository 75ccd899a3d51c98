"""How a store is used by the screens: blocking work in threads, which a cancelled task brings to an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from context_compactor.session.core import Clock
from context_compactor.session.session import Session
from context_compactor.store.connect import connect
from context_compactor.store.sql_store import SqlStore
from context_compactor.tui.ending import ended_with_its_task
from context_compactor.tui.opened import Opened, OpenedSessions

T = TypeVar("T")


class LocalWork:
    """One store and its sessions. It is opened at the first look, and again when it was not there."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="context-compactor tui")
        self._lock = Lock()
        self._kept: SqlStore | None = None
        self._opened = OpenedSessions(url, clock)

    async def close(self) -> None:
        """End what is under way and give back the store."""
        await self._run(self._opened.close)
        self._threads.shutdown(wait=False)
        if self._kept is not None:
            self._kept.close()

    def _store(self) -> SqlStore:
        with self._lock:
            if self._kept is None:
                self._kept = connect(self._url, create=False)
            return self._kept

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _use(self, session_id: str, work: Callable[[Opened], T]) -> T:
        return await self._run(lambda: self._opened.use(self._store().session(session_id), work))

    async def _beside(self, session_id: str, work: Callable[[Session, Opened], T]) -> T:
        return await self._run(lambda: self._opened.beside(self._store().session(session_id), work))

    async def _cancellable(
        self, session_id: str, work: Callable[[Session, Opened], T], is_done: Callable[[T], bool] = lambda _: False
    ) -> T:
        """The same, ended with its task; when it `is_done` by then, its result counts."""

        async def end() -> None:
            self._opened.cancel(session_id)

        return await ended_with_its_task(self._beside(session_id, work), end, is_done)
