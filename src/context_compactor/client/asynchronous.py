"""The same client for async callers: every verb of `Client`, done in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from context_compactor.client.client import Client

P = ParamSpec("P")
T = TypeVar("T")

_END = object()


def _awaited(verb: Callable[Concatenate[Client, P], T]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    @wraps(verb)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(verb, self._client, *args, **kwargs)

    return call


def _iterated(
    verb: Callable[Concatenate[Client, P], Iterator[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    @wraps(verb)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        values = verb(self._client, *args, **kwargs)
        while (value := await asyncio.to_thread(next, values, _END)) is not _END:
            yield value  # type: ignore[misc]

    return call


class AsyncClient:
    """A `Client` whose verbs are awaited, and whose lists without end are read with `async for`."""

    def __init__(self, url: str, token: str | None = None, **options: Any) -> None:
        self._client = Client(url, token, **options)

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
    append = _awaited(Client.append)
    context = _awaited(Client.context)
    history = _awaited(Client.history)
    compact = _awaited(Client.compact)
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
    handoff = _awaited(Client.handoff)
    health = _awaited(Client.health)
    events = _iterated(Client.events)
    add_webhook = _awaited(Client.add_webhook)
    webhooks = _awaited(Client.webhooks)
    remove_webhook = _awaited(Client.remove_webhook)
    deliveries = _awaited(Client.deliveries)
    replay = _awaited(Client.replay)
    close = _awaited(Client.close)
