"""Appending for many at once: what has come in while the disk was busy is written in one transaction.

Each append is a part of its own in it, all or nothing, and nobody is answered before the whole is on the disk. So the
messages of many sessions cost one wait for the disk, and a lone message waits no longer than it would alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Any

from context_compactor.protocols import Desk

_MOST_AT_ONCE = 64
_ROUNDS = 4

Work = Callable[[], Any]
_Waiting = tuple[Work, "asyncio.Future[Any]"]


class Appends:
    """Does pieces of work in the order they came, as many as wait, within one transaction."""

    def __init__(self, desk: Desk, executor: Executor) -> None:
        self._desk = desk
        self._executor = executor
        self._waiting: list[_Waiting] = []
        self._runner: asyncio.Task[None] | None = None

    async def submit(self, work: Work) -> Any:
        """What the work returns, once it is on the disk, or what it raises, and then nothing of it was written."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((partial(copy_context().run, work), done))  # what belongs to a request goes with it
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        return await done

    async def _run(self) -> None:
        try:
            while self._waiting:
                for _ in range(_ROUNDS):  # those that are being read now come along
                    await asyncio.sleep(0)
                batch, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
                loop = asyncio.get_running_loop()
                outcomes = await loop.run_in_executor(self._executor, self._write, [work for work, _ in batch])
                for (_, done), outcome in zip(batch, outcomes, strict=True):
                    _settle(done, outcome)
        finally:
            self._runner = None

    def _write(self, works: list[Work]) -> list[Any]:
        """What each piece of work came to; what it raised is among it. When the disk refuses, it is so for all."""
        try:
            if len(works) == 1:
                return [works[0]()]
            with self._desk.writing():
                return [self._attempt(work) for work in works]
        except Exception as error:  # noqa: BLE001  whoever waits is told, whatever it was
            return [_Raised(error)] * len(works)

    def _attempt(self, work: Work) -> Any:
        try:
            with self._desk.part():
                return work()
        except Exception as error:  # noqa: BLE001  one that fails must not take back what the others have written
            return _Raised(error)


class _Raised:
    def __init__(self, error: Exception) -> None:
        self.error = error


def _settle(done: asyncio.Future[Any], outcome: Any) -> None:
    if done.done():
        return  # nobody waits any more; what was written stays written
    if isinstance(outcome, _Raised):
        done.set_exception(outcome.error)
    else:
        done.set_result(outcome)


class Alone:
    """For a store whose sessions are written side by side: each piece of work has a thread and a transaction."""

    def __init__(self, run: Callable[[Work], Awaitable[Any]]) -> None:
        self.submit = run
