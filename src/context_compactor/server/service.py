"""The service behind the routes: the store, the open sessions, the threads, and who may come in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from context_compactor.errors import CompactorError, DeletedSession
from context_compactor.events.bus import Bus
from context_compactor.events.kept import DeskSink
from context_compactor.jobs.dropping import drop_compactions
from context_compactor.jobs.engine import WAKING, Engine
from context_compactor.jobs.schedule import Schedule
from context_compactor.messages.ready_types import make_types_ready
from context_compactor.protocols import Desk, Store
from context_compactor.server.appending import Alone, Appends
from context_compactor.server.config import Config
from context_compactor.server.feed import Feed
from context_compactor.server.gate import Doorman
from context_compactor.server.long_work import LongWork
from context_compactor.server.looking import looking
from context_compactor.server.metrics import Metrics
from context_compactor.server.open_sessions import LOOK_SECONDS, Opened, OpenSessions
from context_compactor.server.readers import Readers
from context_compactor.server.readiness import LOCK_SECONDS, Readiness
from context_compactor.server.sender import Sender
from context_compactor.server.tokens import TokenFile
from context_compactor.session.append import Ready
from context_compactor.session.deleting import clear_deleted, delete_from
from context_compactor.session.lens import Raw
from context_compactor.session.opening import continue_core
from context_compactor.session.project import project_of
from context_compactor.session.session import Session
from context_compactor.store.connect import connect
from context_compactor.store.desk import desk_of
from context_compactor.store.desk_rows import Job, namespace_of
from context_compactor.store.notices import notices_of
from context_compactor.store.sqlite import SqliteStore
from context_compactor.store.survey import Survey

_log = logging.getLogger("context_compactor")
# So long before the time is up what waits for a model is broken off, so that whoever asked can still be told.
_LAST_SECONDS = 5.0
T = TypeVar("T")


class Service:
    """What every route works with. Everything that blocks is done in a thread; the event loop only waits."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.doorman = Doorman(TokenFile(config.token_file) if config.token_file else None)
        self.bus = Bus()
        opened = connect(config.store)
        self.store: Store = opened
        self.readiness = Readiness(lambda: opened.failing(LOCK_SECONDS))
        self.desk: Desk = desk_of(self.store)
        self.bus.subscribe(DeskSink(self.desk))
        self.notices = notices_of(self.store, self._hear)
        self.feed = Feed(self.desk, lambda: self.notices is not None and self.notices.is_listening)
        self.bus.subscribe(lambda _: self.feed.nudge())
        self.schedule = Schedule(self.desk)
        self.engine = Engine(self.store, self.desk, workers=config.workers, bus=self.bus) if config.workers else None
        self.opened = OpenSessions(self.store, self.bus, config.open_sessions, self.schedule)
        self.long_work = LongWork(config.threads)
        self._threads = ThreadPoolExecutor(config.threads, thread_name_prefix="context-compactor")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="context-compactor append")
        one_file = isinstance(self.store, SqliteStore)
        self.appends = Appends(self.desk, self._writer) if one_file else Alone(self.run)
        self.readers = Readers(config.event_readers, self.store.path, are_shared=self.doorman.needs_token)
        self.sender = Sender(
            self.desk,
            self.bus,
            self.run,
            store_path=self.store.path,
            allow_private=config.allow_private_webhooks,
        )
        self._stopping: asyncio.Future[None] | None = None
        self._clearing: asyncio.Task[None] | None = None
        self._is_uncleared = False
        survey = Survey(self.store)
        self.metrics = Metrics(looking(survey, self.desk, self.opened, self.readers, self.sender))
        for follower in (self.readers.give, self.metrics.count, lambda _: self.sender.nudge()):
            self.feed.follow(follower)

    async def run(self, work: Callable[[], T]) -> T:
        """Do something that blocks. What belongs to a request, such as its trace, goes with it."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, work)

    async def in_session(self, store_id: str, work: Callable[[Opened], T]) -> T:
        """Do something with a session: one request after the other, in the order they came."""
        return await self._use(store_id, lambda opened: self.run(partial(work, opened)))

    async def append(
        self,
        store_id: str,
        work: Callable[[Opened, list[Raw] | Ready], T],
        messages: list[Raw],
        *,
        is_large: bool,
    ) -> T:
        """The same for an append: it may share its transaction with those of other sessions.

        What `is_large` is made ready in a thread of its own before, so that the others do not wait for that.
        """

        async def append(opened: Opened) -> T:
            given: list[Raw] | Ready = messages
            if is_large:
                given = await self.run(lambda: opened.as_known().make_ready(messages))
            written: T = await self.appends.submit(partial(work, opened, given))
            return written

        try:
            return await self._use(store_id, append)
        except DeletedSession:
            await self.let_go(store_id)
            return await self._use(store_id, append)  # somebody may have made a new one of this name
        except CompactorError:
            await self.let_go(store_id)  # what it has seen or noted was perhaps never written
            raise

    async def let_go(self, store_id: str) -> None:
        """Close a session, so that the next use opens it anew."""
        await self.in_session(store_id, _let_go)

    async def beside(self, store_id: str, work: Callable[[Session], T], *, can_cancel: bool = False) -> T:
        """Do something long with a session, while messages can still be appended to it; one such thing at a time.

        What `can_cancel` is ended by `cancel`, before it is its turn as well.
        """
        room = self.long_work.room(namespace_of(store_id))
        with self.opened.use(store_id) as opened, opened.asking(is_listed=can_cancel) as asking:
            async with opened.compaction, room:
                asking.check()
                asking.session = await self.in_session(store_id, lambda opened: opened.session().twin())
                return await self.long_work.run(asking.session, work)

    async def cancel(self, store_id: str) -> tuple[bool, bool]:
        """End the compactions of a session; whether one was ended here, and whether one in another process is told.

        Here nothing of it goes on when this returns.
        """
        core = await self.run(lambda: continue_core(store_id, self.store, self.bus))
        opened = self.opened.known(store_id)
        here = await opened.end_compactions() if opened is not None else False
        dropped = await self.run(lambda: drop_compactions(core, self.desk))
        ours = self.engine.cancel(dropped) if self.engine is not None else []
        while self.engine is not None and self.engine.cancel(ours):
            await asyncio.sleep(LOOK_SECONDS)
        return here or bool(ours), len(dropped) > len(ours)

    async def delete(self, store_id: str) -> None:
        """Delete a session for good. What is done to it here is ended first; elsewhere it finds no session any more."""
        running = await self.run(lambda: self._running(store_id))
        opened = self.opened.known(store_id)
        if opened is not None:
            await opened.end_compactions()

        def remove(opened: Opened) -> None:
            _let_go(opened)
            delete_from(self.store, store_id, bus=self.bus, project=project_of(self.config.store))

        try:
            await self.in_session(store_id, remove)
        finally:
            if self.engine is not None:
                self.engine.cancel(running)
        self._is_uncleared = True
        if self._clearing is None:
            self._clearing = asyncio.create_task(self._clear())

    async def _clear(self) -> None:
        """Remove what deleted sessions have left behind. In a large store that takes long, and nobody waits for it."""
        try:
            while self._is_uncleared:
                self._is_uncleared = False
                await asyncio.to_thread(clear_deleted, self.store)
        except CompactorError as error:  # or the server stops: jobs look again, here or elsewhere
            _log.info("what deleted sessions have left behind is removed later: %s", error)
        finally:
            self._clearing = None

    def _running(self, store_id: str) -> list[Job]:
        """The jobs of a session that are being done; `UnknownSession` when it is not there."""
        self.store.session(store_id)
        return [job for job in self.desk.jobs.open(store_id) if job.state == "running"]

    async def _use(self, store_id: str, work: Callable[[Opened], Awaitable[T]]) -> T:
        try:
            with self.opened.use(store_id) as opened:
                async with opened.turn:
                    return await work(opened)
        finally:
            for opened in self.opened.surplus():
                await self.run(partial(_let_go, opened))

    def start(self) -> None:
        """Begin with jobs, events and webhooks, with what waits from before too. Call it in the event loop."""
        make_types_ready()
        self.feed.start()
        self.sender.start()
        if self.notices is not None:
            self.notices.start()
        if self.engine is not None:
            self.engine.start()

    def _hear(self, kind: str) -> None:
        """Somebody has committed an event, in whichever process; "" when some may have been missed."""
        self.feed.nudge()
        if self.engine is not None and kind in WAKING:
            self.engine.wake()

    def begin_to_stop(self) -> None:
        """Take no more jobs, tell those who follow events to come again, and let what waits for a model have an end.

        Call it in the event loop, `stop` when all requests are answered.
        """
        self.readers.end()
        loop, seconds = asyncio.get_running_loop(), self.config.stop_seconds
        loop.call_later(max(0.0, seconds - _LAST_SECONDS), self.long_work.cancel)
        if self.engine is not None:
            self._stopping = loop.run_in_executor(None, partial(self.engine.stop, finish=True, timeout=seconds))

    async def stop(self) -> None:
        """Close without keeping the event loop from what it still has to send."""
        if self._stopping is not None:
            await self._stopping
        await self.sender.stop()
        await self.feed.stop()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Finish what is under way, give back the jobs that take longer, and let go of everything. Blocks."""
        if self.engine is not None:
            self.engine.stop(finish=True, timeout=self.config.stop_seconds)
        if self.notices is not None:
            self.notices.stop()
        self.long_work.close()
        self._writer.shutdown()
        self._threads.shutdown()
        self.opened.close()
        self.store.close()


def _let_go(opened: Opened) -> None:
    """Close a session. When that fails, it is no failure of what somebody has just asked for."""
    try:
        opened.close()
    except CompactorError as error:
        _log.warning("session %r could not be closed: %s", opened.id, error)
