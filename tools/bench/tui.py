"""The part of `make bench` about the terminal UI: does a page of a long session take longer than one of a short one?

`python -m tools.bench.tui` runs it alone.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import chdir

import msgspec
from textual.pilot import Pilot

from context_compactor import Session, Settings
from context_compactor.store.rows import MESSAGE
from context_compactor.tui.app import CompactorApp
from context_compactor.tui.sources.local import LocalSource
from context_compactor.tui.widgets.row_list import RowList

FEW, MANY = 100, 100_000
_PAGE = 60
_TIMES = 25
_SIZE = (120, 40)

Line = Callable[[str, float, float], None]


def bench(line: Line) -> None:
    """Measure and print, each line with its limit."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/sessions.db"
        for size in (FEW, MANY):
            _fill(url, size)
        read = {size: asyncio.run(_reading(url, size)) for size in (FEW, MANY)}
        line("the last turns of 100,000 messages, times those of 100", read[MANY] / read[FEW], 2)
        with chdir(folder):
            shown = {size: asyncio.run(_paging(url, size)) for size in (FEW, MANY)}
        line("a page on the terminal at the end of 100,000, times one of 100", shown[MANY] / shown[FEW], 2)


def _fill(url: str, size: int) -> None:
    settings = Settings(window=10**9, idle_seconds=0)
    with Session.open(f"session-{size}", store=url, dialect="openai-chat", settings=settings) as session:
        core = session._core
        said = ({"role": ("user", "assistant")[at % 2], "content": f"Message {at} of many. " * 9} for at in range(size))
        with core.writing():
            core.store.append(core.id, MESSAGE, map(msgspec.json.encode, said), core.now())


async def _reading(url: str, size: int) -> float:
    """The time to read the last page of turns, once it is known where they are."""
    source, session_id = LocalSource(url), f"session-{size}"
    while not (known := await source.turns(session_id, 0, 0)).is_all:
        pass
    times = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        await source.turns(session_id, known.total - _PAGE, _PAGE)
        times.append(time.perf_counter() - start)
    await source.close()
    return statistics.median(times)


async def _paging(url: str, size: int) -> float:
    """The time from a key to the page with all its rows, at the end of the session."""
    app = CompactorApp(LocalSource(url, look_seconds=3_600), f"session-{size}")
    app.animation_level = "none"
    async with app.run_test(size=_SIZE) as pilot:
        rows = await _rows(pilot, size)
        times = []
        for at in range(_TIMES):
            rows.forget(rows.total)  # so that the page is read again
            start = time.perf_counter()
            await pilot.press("pageup" if at % 2 == 0 else "end")
            await _until(pilot, lambda: rows.missing() is None)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


async def _rows(pilot: Pilot[None], size: int) -> RowList:
    await _until(pilot, lambda: bool(pilot.app.screen.query("#turn-rows")))
    rows = pilot.app.screen.query_one("#turn-rows", RowList)
    await _until(pilot, lambda: rows.total == size and rows.missing() is None)
    return rows


async def _until(pilot: Pilot[None], is_so: Callable[[], bool]) -> None:
    while not is_so():
        await pilot.pause()


if __name__ == "__main__":
    from tools.bench.main import print_line

    bench(print_line)
