"""Work whose task may be cancelled: it is ended where it is done, and what it came to is told as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from context_compactor.errors import CompactorError

T = TypeVar("T")

_AGAIN_SECONDS = 0.05


async def ended_with_its_task(
    work: Coroutine[Any, Any, T], end: Callable[[], Awaitable[object]], is_done: Callable[[T], bool]
) -> T:
    """The result of some work. When the task that waits for it is cancelled, `end` is called until it is over.

    It may only be about to begin, so `end` is called again and again; when that fails nobody waits any longer. What was
    done before it could be ended is no less done: then it `is_done`, and its result is returned as if nobody had
    cancelled.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it
        await _until_over(task, end)
        if not task.done() or task.cancelled() or task.exception() is not None or not is_done(task.result()):
            raise
    waiting = asyncio.current_task()
    if waiting is not None:
        waiting.uncancel()
    return task.result()


async def _until_over(task: asyncio.Future[Any], end: Callable[[], Awaitable[object]]) -> None:
    while not task.done():
        # To be cancelled once more is no reason to leave the work behind.
        with suppress(asyncio.CancelledError):
            try:
                await end()
            except CompactorError:
                return
            await asyncio.wait([task], timeout=_AGAIN_SECONDS)
