"""Streams that can be ended at any moment.

A blocked read cannot be interrupted from another thread, an asyncio task can. So all calls run in one background
loop, and the thread that asked waits for pieces, looks at the clock and at the cancel, and shows the text.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, TypeVar

from context_compactor.llm.model import Control
from context_compactor.llm.retry import check

Result = TypeVar("Result")
Piece = tuple[str, bool]
"""Some text, and whether it is reasoning."""
Hear = Callable[[Piece], None]

_LOOK_SECONDS = 0.05


def call(start: Callable[[Hear], Coroutine[Any, Any, Result]], control: Control) -> Result:
    """Run a coroutine that tells each piece of what is said; its result, or `ModelStopped` as soon as it has to end.

    Whatever ends the wait, an interrupt by the user included, also cancels the coroutine, which closes its stream.
    """
    check(control)
    pieces: SimpleQueue[Piece | None] = SimpleQueue()
    future = asyncio.run_coroutine_threadsafe(start(pieces.put), _loop(os.getpid()))
    future.add_done_callback(lambda _: pieces.put(None))
    try:
        while (piece := _next(pieces, control)) is not None:
            show = control.on_thought if piece[1] else control.on_text
            if show:
                show(piece[0])
        return future.result()
    finally:
        future.cancel()


def _next(pieces: SimpleQueue[Piece | None], control: Control) -> Piece | None:
    while True:
        check(control)
        try:
            return pieces.get(timeout=max(min(_LOOK_SECONDS, control.deadline - monotonic()), 0.001))
        except Empty:
            continue


@cache
def _loop(pid: int) -> asyncio.AbstractEventLoop:  # a fork has the parent's cache but not its threads
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=f"model-calls-{pid}", daemon=True).start()
    return loop
