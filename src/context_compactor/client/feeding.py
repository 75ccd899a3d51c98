"""Reading in an event loop what a thread gets piece by piece, however long it waits for each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing, suppress
from functools import partial
from typing import TypeVar

from msgspec import Struct

from context_compactor.client.ending import Ending

T = TypeVar("T")

_MOST_AHEAD = 100


class _Last(Struct, frozen=True):
    """Nothing comes behind it; `error` says why, when that was not meant."""

    error: Exception | None = None


async def fed(values: Generator[T, None, None], ending: Ending) -> AsyncGenerator[T, None]:
    """The values, got by a thread that is at most a hundred of them ahead. Whoever stops reading ends it."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[T | _Last]()
    room = threading.Semaphore(_MOST_AHEAD)

    def put(value: T | _Last) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody reads
            loop.call_soon_threadsafe(queue.put_nowait, value)

    work = partial(_feed, values, ending, room, put)
    threading.Thread(target=work, name="context-compactor events", daemon=True).start()
    try:
        while not isinstance(value := await queue.get(), _Last):
            room.release()
            yield value
        if value.error is not None:
            raise value.error
    finally:
        ending.end()
        room.release()


def _feed(
    values: Generator[T, None, None], ending: Ending, room: threading.Semaphore, put: Callable[[T | _Last], None]
) -> None:
    last = _Last()
    try:
        with closing(values):
            for value in values:
                room.acquire()
                if ending.is_over:
                    break
                put(value)
    except Exception as error:  # noqa: BLE001  it is raised where the values are read
        last = _Last(error)
    put(last)
