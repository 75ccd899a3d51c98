"""Work that must come to its end, whoever no longer waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def to_its_end(task: asyncio.Future[T], hurry: Callable[[], object], grace: float = 0.0) -> T:
    """The result of a task. When the one who waits is cancelled, the task is told to `hurry` and waited for first.

    It is told so after `grace` seconds, for which it may go on undisturbed. However it ends then, the cancel goes on.
    """
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
            asyncio.get_running_loop().call_later(grace, hurry)
    if is_cancelled:
        if not task.cancelled():
            task.exception()  # nobody waits for it any more
        raise asyncio.CancelledError
    return task.result()
