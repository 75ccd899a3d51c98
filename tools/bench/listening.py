"""Readers of events for benches: many in one process, each remembering what it was told and when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

_FIELD = b"id: "


class Listener:
    """Reads frames from a server, which are its `ids` in the order they came, and the `times` of them."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self.ids: list[bytes] = []
        self.times: list[float] = []
        self.frame = b""
        """The last one."""
        self._changed = asyncio.Event()
        self._known = b""

    async def follow(self) -> None:
        """Read until this is cancelled, or the server ends it. Called again, it goes on where it stood."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            known = b"Last-Event-ID: %s\r\n" % self._known if self._known else b""
            writer.write(f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\n".encode() + known + b"\r\n")
            while True:
                self._take(await reader.readuntil(b"\n\n"))
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()

    def _take(self, frame: bytes) -> None:
        found = frame.rpartition(_FIELD)[2].split(b"\n", 1) if _FIELD in frame else []
        if found:
            self._known = found[0]
            if b"data: " in frame:
                self.ids.append(found[0])
                self.times.append(time.perf_counter())
                self.frame = frame[frame.index(_FIELD) :]
        self._changed.set()

    async def hear(self, count: int, seconds: float) -> bool:
        """Wait until it was told so many events; False when that takes too long."""
        try:
            async with asyncio.timeout(seconds):
                while len(self.ids) < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def is_there(self) -> None:
        """Wait until the server knows it."""
        while not self._known:
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def listening(listeners: Iterable[Listener]) -> AsyncIterator[None]:
    """All of them read for the length of the block, each known to the server from the beginning."""
    known = list(listeners)
    tasks = [asyncio.create_task(each.follow()) for each in known]
    try:
        async with asyncio.timeout(60):
            await asyncio.gather(*(each.is_there() for each in known))
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
