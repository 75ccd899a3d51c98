"""Looking at a source again and again, and saying what has changed since the last look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from context_compactor.errors import CompactorError
from context_compactor.tui.values import Change

_REST = 10
"""What takes long to look at is looked at so many times more seldom than it takes."""


async def changes(look: Callable[[], Awaitable[dict[str, str]]], seconds: float) -> AsyncIterator[Change]:
    """Sessions whose mark is another than before; that the source went away, and that it came back."""
    known: dict[str, str] | None = None
    problem = ""
    while True:
        began = time.monotonic()
        try:
            now = await look()
        except CompactorError as error:
            if str(error) != problem:
                problem = str(error)
                yield Change(offline=problem)
        else:
            before = known if known is not None else now
            changed = frozenset(name for name in now.keys() | before if now.get(name) != before.get(name))
            if problem:
                yield Change()
            elif changed:
                yield Change(changed)
            known, problem = now, ""
        await asyncio.sleep(max(seconds, _REST * (time.monotonic() - began)))
