"""The same session for async callers: every verb of `Session`, done in a thread, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from context_compactor.events.bus import Bus
from context_compactor.session.session import Session

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(verb: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate[AsyncSession, P], Awaitable[T]]:
    @wraps(verb)
    async def call(self: AsyncSession, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._turn:
            return await asyncio.to_thread(verb, self._session, *args, **kwargs)

    return call


class AsyncSession:
    """A `Session` whose verbs are awaited; the event loop goes on while they work. Open it with `AsyncSession.open`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, session_id: str, **options: Any) -> Self:
        """Open a session; the options are those of `Session.open`."""
        return cls(await asyncio.to_thread(Session.open, session_id, **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def id(self) -> str:
        """The session's name."""
        return self._session.id

    @property
    def bus(self) -> Bus:
        """Where events are told; subscribe to hear them."""
        return self._session.bus

    append = _awaited(Session.append)
    record = _awaited(Session.record)
    answer = _awaited(Session.answer)
    context = _awaited(Session.context)
    history = _awaited(Session.history)
    usage = _awaited(Session.usage)
    verify = _awaited(Session.verify)
    compact = _awaited(Session.compact)
    undo = _awaited(Session.undo)
    redo = _awaited(Session.redo)
    diff = _awaited(Session.diff)
    compactions = _awaited(Session.compactions)
    totals = _awaited(Session.totals)
    recall = _awaited(Session.recall)
    page = _awaited(Session.page)
    search = _awaited(Session.search)
    refetch = _awaited(Session.refetch)
    restore_rate = _awaited(Session.restore_rate)
    export = _awaited(Session.export)
    restore = _awaited(Session.restore)
    facts = _awaited(Session.facts)
    work_ahead = _awaited(Session.work_ahead)
    checkpoint = _awaited(Session.checkpoint)
    resume = _awaited(Session.resume)
    fresh = _awaited(Session.fresh)
    handoff = _awaited(Session.handoff)
    receive = _awaited(Session.receive)
    orchestrator = _awaited(Session.orchestrator)
    points = _awaited(Session.points)
    close = _awaited(Session.close)
