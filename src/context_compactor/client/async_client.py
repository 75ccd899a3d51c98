"""The same client for async callers: every method of `Client`, run in a thread of the client's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from weakref import WeakSet

from msgspec import Struct

from context_compactor.client.client import Client
from context_compactor.client.transport import StreamCancel
from context_compactor.store.events import Event

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


P = ParamSpec("P")

_END = object()
_AT_ONCE = 32


def _awaited(
    verb: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    @wraps(verb)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(partial(verb, self._client, *args, **kwargs))

    return call


def _iterated(
    verb: Callable[Concatenate[Client, P], Iterator[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    @wraps(verb)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        values = verb(self._client, *args, **kwargs)
        while (value := await self._run(lambda: next(values, _END))) is not _END:
            yield value  # type: ignore[misc]

    return call


class AsyncClient:
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

    create = _awaited(Client.create)
    session = _awaited(Client.session)
    sessions = _awaited(Client.sessions)
    every_session = _iterated(Client.every_session)
    delete = _awaited(Client.delete)
    append = _awaited(Client.append)
    context = _awaited(Client.context)
    history = _awaited(Client.history)
    compact = _awaited(Client.compact)
    cancel = _awaited(Client.cancel)
    plan = _awaited(Client.plan)
    steer = _awaited(Client.steer)
    unsteer = _awaited(Client.unsteer)
    steering = _awaited(Client.steering)
    compactions = _awaited(Client.compactions)
    undo = _awaited(Client.undo)
    redo = _awaited(Client.redo)
    archive = _awaited(Client.archive)
    recall = _awaited(Client.recall)
    page = _awaited(Client.page)
    restore = _awaited(Client.restore)
    search = _awaited(Client.search)
    facts = _awaited(Client.facts)
    checkpoint = _awaited(Client.checkpoint)
    write_checkpoint = _awaited(Client.write_checkpoint)
    handoff = _awaited(Client.handoff)
    receive = _awaited(Client.receive)
    health = _awaited(Client.health)
    add_webhook = _awaited(Client.add_webhook)
    webhooks = _awaited(Client.webhooks)
    remove_webhook = _awaited(Client.remove_webhook)
    deliveries = _awaited(Client.deliveries)
    replay = _awaited(Client.replay)

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
