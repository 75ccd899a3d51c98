"""The same session for async callers: every method of `Session`, run in a thread, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from context_compactor.sessions.events import Bus
from context_compactor.sessions.facts import PreparedWork
from context_compactor.sessions.session import Session, renamed

_POLL_SECONDS = 0.05

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(verb: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate[AsyncSession, P], Awaitable[T]]:
    @wraps(verb)
    async def call(self: AsyncSession, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._turn:
            return await self._do(verb, *args, **kwargs)

    return call


class AsyncSession:
    """A `Session` with async methods that do not block the event loop. Open it with `AsyncSession.open`."""

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

    async def _do(self, verb: Callable[Concatenate[Session, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """A verb in a thread. When the task is cancelled, what can be ended is, and the thread is waited for."""
        work = asyncio.ensure_future(asyncio.to_thread(verb, self._session, *args, **kwargs))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            while not work.done():
                self._session.cancel()
                with suppress(asyncio.CancelledError):  # to be cancelled twice is no reason to leave the thread behind
                    await asyncio.wait([work], timeout=_POLL_SECONDS)
            work.exception()  # nobody waits for it any more
            raise

    async def prepare(self) -> PreparedWork:
        """Prepare the next search and compaction, like `Session.prepare`; other methods can be called meanwhile."""
        return await asyncio.to_thread(self._session.prepare)

    def cancel(self) -> bool:
        """Cancel running work, like `Session.cancel`. Cancelling the task does this too."""
        return self._session.cancel()

    async def fork(self, at: int | None = None, id: str | None = None) -> Self:  # noqa: A002  as in `Session`
        """A new session that begins with the first messages of this one, like `Session.fork`."""
        async with self._turn:
            return type(self)(await self._do(Session.fork, at, id))

    @property
    def id(self) -> str:
        """The session's name."""
        return self._session.id

    @property
    def bus(self) -> Bus:
        """Where events are emitted; subscribe to receive them."""
        return self._session.bus

    append = _awaited(Session.append)
    record = _awaited(Session.record)
    answer = _awaited(Session.answer)
    context = _awaited(Session.context)
    set_prompt = _awaited(Session.set_prompt)
    sync = _awaited(Session.sync)
    truncate = _awaited(Session.truncate)
    history = _awaited(Session.history)
    usage = _awaited(Session.usage)
    verify = _awaited(Session.verify)
    compact = _awaited(Session.compact)
    plan = _awaited(Session.plan)
    set_tier = _awaited(Session.set_tier)
    clear_tier = _awaited(Session.clear_tier)
    tiers = _awaited(Session.tiers)
    undo = _awaited(Session.undo)
    redo = _awaited(Session.redo)
    diff = _awaited(Session.diff)
    compactions = _awaited(Session.compactions)
    totals = _awaited(Session.totals)
    delete = _awaited(Session.delete)
    recall = _awaited(Session.recall)
    original = _awaited(Session.original)
    turns = _awaited(Session.turns)
    page = _awaited(Session.page)
    search = _awaited(Session.search)
    tools = _awaited(Session.tools)
    call = _awaited(Session.call)
    refetch = _awaited(Session.refetch)
    restore_rate = _awaited(Session.restore_rate)
    export = _awaited(Session.export)
    restore = _awaited(Session.restore)
    facts = _awaited(Session.facts)
    checkpoint = _awaited(Session.checkpoint)
    resume = _awaited(Session.resume)
    fresh = _awaited(Session.fresh)
    handoff = _awaited(Session.handoff)
    receive = _awaited(Session.receive)
    orchestrator = _awaited(Session.orchestrator)
    points = _awaited(Session.points)
    close = _awaited(Session.close)

    # Names of earlier versions

    steer = renamed("steer", set_tier)
    unsteer = renamed("unsteer", clear_tier)
    steering = renamed("steering", tiers)
    work_ahead = renamed("work_ahead", prepare)
