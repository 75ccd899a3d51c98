"""The same client for async callers: every method of `Client`, run in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar
from weakref import WeakSet

from msgspec import Struct

from context_compactor.client.client import Client
from context_compactor.client.transport import StreamCancel
from context_compactor.sessions.schemas import SessionAnswer
from context_compactor.sessions.verbs import AsyncVerbCaller, Verb, Verbs
from context_compactor.store.events import Event

P = ParamSpec("P")
Q = TypeVar("Q", bound=Struct)
A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

_MOST_AHEAD = 100


class _EndOfValues(Struct, frozen=True):
    """Nothing comes behind it; `error` says why, when that was not meant."""

    error: Exception | None = None


async def iterate_in_thread(values: Generator[T, None, None], ending: StreamCancel) -> AsyncGenerator[T, None]:
    """The values, got by a thread that is at most a hundred of them ahead. Whoever stops reading ends it."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[T | _EndOfValues]()
    room = threading.Semaphore(_MOST_AHEAD)

    def put(value: T | _EndOfValues) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nobody reads
            loop.call_soon_threadsafe(queue.put_nowait, value)

    work = partial(_feed, values, ending, room, put)
    threading.Thread(target=work, name="context-compactor events", daemon=True).start()
    try:
        while not isinstance(value := await queue.get(), _EndOfValues):
            room.release()
            yield value
        if value.error is not None:
            raise value.error
    finally:
        ending.end()
        room.release()


def _feed(
    values: Generator[T, None, None],
    ending: StreamCancel,
    room: threading.Semaphore,
    put: Callable[[T | _EndOfValues], None],
) -> None:
    last = _EndOfValues()
    try:
        with closing(values):
            for value in values:
                room.acquire()
                if ending.is_over:
                    break
                put(value)
    except Exception as error:  # noqa: BLE001  it is raised where the values are read
        last = _EndOfValues(error)
    put(last)


_AT_ONCE = 32


class AsyncClient(Verbs, AsyncVerbCaller):
    """A `Client` whose verbs are awaited, and whose lists without end are read with `async for`.

    Up to 32 verbs go on at once. Each stream of events has a thread of its own, which ends with it.
    """

    def __init__(self, url: str, token: str | None = None, **options: Any) -> None:
        self._client = Client(url, token, **options)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="context-compactor client")
        self._endings: WeakSet[StreamCancel] = WeakSet()

    async def _run(self, work: Callable[[], T]) -> T:
        """A verb, in a thread. When whoever waits for it is cancelled, it is not tried again."""
        ending = StreamCancel()
        self._endings.add(ending)
        try:
            until = self._client._transport.until
            return await asyncio.get_running_loop().run_in_executor(self._threads, until, ending, work)
        finally:
            ending.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def call(self, verb: Verb[P, Q, A, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a verb, as its method does."""
        return await self._run(partial(self._client.call, verb, *args, **kwargs))

    async def every_session(self) -> AsyncIterator[SessionAnswer]:
        """All sessions, page by page."""
        page = await self.sessions()
        while True:
            for session in page.sessions:
                yield session
            if page.next is None:
                return
            page = await self.sessions(page.next)

    def events(
        self,
        session_id: str | None = None,
        after: str = "",
        types: Iterable[str] = (),
        on_gap: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Events as they happen; see `Client.events`. `on_gap` is called in the thread that reads.

        It ends when whoever reads is cancelled or has enough, and when the client is closed.
        """
        ending = StreamCancel()
        self._endings.add(ending)
        return iterate_in_thread(self._client._follow(ending, session_id, after, types, on_gap), ending)

    async def close(self) -> None:
        """End the streams and close the connections. What is under way comes to its end, and is not tried again."""
        for ending in list(self._endings):
            ending.end()
        self._client.close()
        self._threads.shutdown(wait=False)
