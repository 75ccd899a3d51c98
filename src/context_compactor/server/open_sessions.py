"""The sessions that a server keeps open, one request at a time in each, and the threads in which compactions run."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

from context_compactor.errors import Cancelled, ModelStopped
from context_compactor.protocols import Store
from context_compactor.sessions.core import Core
from context_compactor.sessions.events import Bus
from context_compactor.sessions.jobs.schedule import Schedule
from context_compactor.sessions.lifecycle import continue_core
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_profile
from context_compactor.store.rows import SessionRow

CANCEL_POLL_SECONDS = 0.05
"""How often it is seen whether what is ended is over."""


class PendingCall:
    """Something long that somebody has asked for: it may wait for its turn, be under way, or be about to begin."""

    def __init__(self) -> None:
        self.session: Session | None = None
        """Who does it, once it is its turn."""
        self.is_cancelled = False
        self.was_stopped = False

    def check(self) -> None:
        """Raise once it is cancelled."""
        if self.is_cancelled:
            raise ModelStopped("cancelled before it began")


class SessionHandle:
    """A session that may be open. Its `turn` is held by whoever uses it, `compaction` by whoever compacts it."""

    def __init__(self, store_id: str, store: Store, bus: Bus, schedule: Schedule) -> None:
        self.id = store_id
        self.turn = asyncio.Lock()
        self.compaction = asyncio.Lock()
        self.users = 0
        self._store = store
        self._bus = bus
        self._schedule = schedule
        self._core: Core | None = None
        self._session: Session | None = None
        self._is_stale = False
        self._pending: set[PendingCall] = set()

    @contextmanager
    def pending(self, *, is_listed: bool) -> Iterator[PendingCall]:
        """While the block runs somebody asks for something long, which can be ended if it is listed."""
        pending = PendingCall()
        if is_listed:
            self._pending.add(pending)
        try:
            yield pending
        except ModelStopped as error:
            if not pending.is_cancelled:
                raise
            pending.was_stopped = True
            raise Cancelled("cancelled; nothing was changed") from error
        finally:
            self._pending.discard(pending)

    async def cancel_compactions(self) -> bool:
        """End what was asked for and what came by itself, and wait until it is over; whether anything was ended."""
        ending = set(self._pending)
        for pending in ending:
            pending.is_cancelled = True
        is_under_way = self._session is not None and self._session.cancel()
        while ending & self._pending:
            for session in filter(None, (pending.session for pending in ending)):
                session.cancel()  # again and again: it may only be about to begin
            await asyncio.sleep(CANCEL_POLL_SECONDS)
        return any(pending.was_stopped for pending in ending) if ending else is_under_way

    def session(self) -> Session:
        """The session, as it is in the store now; `UnknownSession` when it is not there. Blocks."""
        self.check_row(self._store.session(self.id))
        return self.cached_session()

    def check_row(self, row: SessionRow) -> None:
        """See whether somebody else has changed what the session is; then the next use opens it anew."""
        known = self._core
        if known is not None and (row.created_at != known.created_at or read_profile(row.profile) != known.profile):
            self._is_stale = True

    def cached_session(self) -> Session:
        """The session without a look at the store, for whoever looks afterwards. Blocks."""
        if self._is_stale:
            self.close()
        if self._session is None:
            self._core = continue_core(self.id, self._store, self._bus, schedule=self._schedule)
            self._session = Session(self._core, owns_store=False)
        return self._session

    @property
    def is_open(self) -> bool:
        """Whether there is anything to close."""
        return self._session is not None

    @property
    def core(self) -> Core:
        """The inside of the session that is open."""
        if self._core is None:
            self.session()
        assert self._core is not None
        return self._core

    def close(self) -> None:
        """Let the session go; the next use opens it anew. Blocks."""
        session, self._session, self._core, self._is_stale = self._session, None, None, False
        if session is not None:
            session.close()


class OpenSessions:
    """At most `most` sessions stay open, those used last; one that is in use is never closed."""

    def __init__(self, store: Store, bus: Bus, most: int, schedule: Schedule) -> None:
        self._make: Callable[[str], SessionHandle] = lambda store_id: SessionHandle(store_id, store, bus, schedule)
        self._most = most
        self._known: OrderedDict[str, SessionHandle] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    @contextmanager
    def use(self, store_id: str) -> Iterator[SessionHandle]:
        """The session of this id, which stays open for the length of the block."""
        handle = self._known.get(store_id)
        if handle is None:
            handle = self._known[store_id] = self._make(store_id)
        self._known.move_to_end(store_id)
        handle.users += 1
        try:
            yield handle
        finally:
            handle.users -= 1
            if not handle.users and not handle.is_open:  # it turned out not to be there, or was closed
                del self._known[store_id]

    def known(self, store_id: str) -> SessionHandle | None:
        """The session of this id, if anybody uses it or it is still open."""
        return self._known.get(store_id)

    def evict(self) -> list[SessionHandle]:
        """Those that are to be closed now. They are no longer known here."""
        gone: list[SessionHandle] = []
        too_many = len(self._known) - self._most
        for store_id in list(self._known)[:too_many] if too_many > 0 else ():
            if not self._known[store_id].users:
                gone.append(self._known.pop(store_id))
        return gone

    def close(self) -> None:
        """Let all of them go. Blocks."""
        for handle in self._known.values():
            handle.close()
        self._known.clear()


_CLOSE_POLL_SECONDS = 0.05
T = TypeVar("T")


class CompactionPool:
    """At most so many compactions at once, and of one namespace no more than half of them."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="context-compactor compaction")
        self._rooms = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(max(1, threads // 2)))
        self._under_way: set[Session] = set()
        self._is_over = False

    def room(self, namespace: str) -> asyncio.Semaphore:
        """What a compaction of a namespace waits for."""
        return self._rooms[namespace]

    async def run(self, session: Session, work: Callable[[Session], T]) -> T:
        """Do something with a session that nobody else uses, and close it."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, copy_context().run, self._do, session, work
        )

    def _do(self, session: Session, work: Callable[[Session], T]) -> T:
        with session:
            if self._is_over:
                raise ModelStopped("the server is shutting down. Try: send the request again in a moment.")
            self._under_way.add(session)
            try:
                return work(session)
            finally:
                self._under_way.discard(session)

    def cancel(self) -> None:
        """End what waits for a model, and begin nothing more; whoever asked for it gets an error."""
        self._is_over = True
        for session in list(self._under_way):
            session.cancel()

    def close(self) -> None:
        """End it all. Blocks."""
        self.cancel()
        while self._under_way:  # what can be cancelled may only be about to begin
            time.sleep(_CLOSE_POLL_SECONDS)
            self.cancel()
        self._threads.shutdown()
