"""The service behind the routes: store, open sessions, threads, batched appends, readiness, start and stop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from context_compactor.errors import CompactorError, DeletedSession
from context_compactor.json_values import prepare_types
from context_compactor.protocols import ServiceStore, Store
from context_compactor.server.config import ServerConfig
from context_compactor.server.event_feed import EventFeed, Subscribers
from context_compactor.server.metrics import ServerMetrics, make_collector
from context_compactor.server.middleware import Authenticator
from context_compactor.server.open_sessions import CANCEL_POLL_SECONDS, CompactionPool, OpenSessions, SessionHandle
from context_compactor.server.tokens import TokenFile
from context_compactor.server.webhook_delivery import WebhookSender
from context_compactor.sessions.append import ReadyMessages
from context_compactor.sessions.events import Bus, ServiceStoreSink
from context_compactor.sessions.jobs.schedule import Schedule, cancel_compactions
from context_compactor.sessions.jobs.worker import WAKING_EVENTS, WorkerPool
from context_compactor.sessions.lifecycle import clear_deleted, continue_core, delete_from
from context_compactor.sessions.log import Raw
from context_compactor.sessions.project import project_of
from context_compactor.sessions.session import Session
from context_compactor.store.connect import connect
from context_compactor.store.rows import Job, namespace_of
from context_compactor.store.service_store import event_listener_of, service_store_of
from context_compactor.store.sqlite import SqliteStore
from context_compactor.store.statistics import SessionStatistics

_log = logging.getLogger("context_compactor")
ANSWER_SECONDS = 0.8
LOCK_SECONDS = 0.5
"""How long a check waits for a lock of the store: it is to know why it failed before the answer is due."""
_FRESH_SECONDS = 1.0
"""How long a result counts: whoever may ask, and anybody may, costs at most one small write in that time."""
_TIMED_OUT = dict.fromkeys(("read", "write"), f"no answer from the store within {ANSWER_SECONDS:g} seconds")

StoreFailures = Mapping[str, str]
"""What fails, `read` or `write`, and why."""


class ReadinessCheck:
    """Checks the store in a thread of its own. Those who ask while a check is under way share it."""

    def __init__(self, check: Callable[[], StoreFailures]) -> None:
        self._check = check
        self._under_way: asyncio.Future[StoreFailures] | None = None
        self._known: StoreFailures = {}
        self._known_until = 0.0
        self._logged: frozenset[str] = frozenset()

    async def failing(self) -> StoreFailures:
        """What fails now; nothing when all is well."""
        loop = asyncio.get_running_loop()
        if self._under_way is None and loop.time() < self._known_until:
            return self._known
        if self._under_way is None:
            self._under_way = loop.create_future()
            threading.Thread(target=self._work, args=(loop,), name="context-compactor readiness", daemon=True).start()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await asyncio.shield(self._under_way)
        except TimeoutError:
            found = _TIMED_OUT
        self._log_change(found)
        return found

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            found = self._check()
        except Exception as error:  # noqa: BLE001  whoever waits gets it, whatever it was
            found = dict.fromkeys(("read", "write"), f"{type(error).__name__}: {error}")
        with suppress(RuntimeError):  # the server has stopped meanwhile
            loop.call_soon_threadsafe(self._settle, found, loop.time())

    def _settle(self, found: StoreFailures, now: float) -> None:
        self._known, self._known_until = found, now + _FRESH_SECONDS
        done, self._under_way = self._under_way, None
        if done is not None:
            done.set_result(found)

    def _log_change(self, found: StoreFailures) -> None:
        """Log when something else fails than before: checks come every few seconds."""
        if found.keys() != self._logged:
            self._logged = frozenset(found)
            for what, why in found.items():
                _log.error("the store fails to %s: %s", what, why)
            if not found:
                _log.warning("the store can be read and written again")


_MAX_BATCH = 64
_YIELDS = 4

Work = Callable[[], Any]
_QueuedWork = tuple[Work, "asyncio.Future[Any]"]


class AppendBatcher:
    """Does pieces of work in the order they came, as many as wait, within one transaction."""

    def __init__(self, service_store: ServiceStore, executor: Executor) -> None:
        self._service_store = service_store
        self._executor = executor
        self._waiting: list[_QueuedWork] = []
        self._runner: asyncio.Task[None] | None = None

    async def submit(self, work: Work) -> Any:
        """What the work returns, once it is on the disk, or what it raises, and then nothing of it was written."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((partial(copy_context().run, work), done))  # what belongs to a request goes with it
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        return await done

    async def _run(self) -> None:
        try:
            while self._waiting:
                for _ in range(_YIELDS):  # those that are being read now come along
                    await asyncio.sleep(0)
                batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
                loop = asyncio.get_running_loop()
                outcomes = await loop.run_in_executor(self._executor, self._write, [work for work, _ in batch])
                for (_, done), outcome in zip(batch, outcomes, strict=True):
                    _resolve(done, outcome)
        finally:
            self._runner = None

    def _write(self, works: list[Work]) -> list[Any]:
        """What each piece of work came to; what it raised is among it. When the disk refuses, it is so for all."""
        try:
            if len(works) == 1:
                return [works[0]()]
            with self._service_store.writing():
                return [self._attempt(work) for work in works]
        except Exception as error:  # noqa: BLE001  whoever waits gets it, whatever it was
            return [error] * len(works)

    def _attempt(self, work: Work) -> Any:
        try:
            with self._service_store.savepoint():
                return work()
        except Exception as error:  # noqa: BLE001  one that fails must not take back what the others have written
            return error


def _resolve(done: asyncio.Future[Any], outcome: Any) -> None:
    if done.done():
        return  # nobody waits any more; what was written stays written
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)


# So long before the time is up what waits for a model is broken off, so that the caller can still be answered.
_CANCEL_MARGIN_SECONDS = 5.0
T = TypeVar("T")


class Service:
    """What every route works with. Everything that blocks is done in a thread; the event loop only waits."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.authenticator = Authenticator(TokenFile(config.token_file) if config.token_file else None)
        self.bus = Bus()
        store = connect(config.store)
        self.store: Store = store
        self.readiness = ReadinessCheck(lambda: store.failing(LOCK_SECONDS))
        self.service_store: ServiceStore = service_store_of(self.store)
        self.bus.subscribe(ServiceStoreSink(self.service_store))
        self.notices = event_listener_of(self.store, self._on_notification)
        self.feed = EventFeed(self.service_store, lambda: self.notices is not None and self.notices.is_listening)
        self.bus.subscribe(lambda _: self.feed.notify())
        self.schedule = Schedule(self.service_store)
        self.engine = (
            WorkerPool(self.store, self.service_store, workers=config.workers, bus=self.bus) if config.workers else None
        )
        self.open_sessions = OpenSessions(self.store, self.bus, config.open_sessions, self.schedule)
        self.compaction_pool = CompactionPool(config.threads)
        self._threads = ThreadPoolExecutor(config.threads, thread_name_prefix="context-compactor")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="context-compactor append")
        # Other stores write sessions side by side: there each append has a thread and a transaction of its own.
        one_file = isinstance(self.store, SqliteStore)
        self.appends = AppendBatcher(self.service_store, self._writer) if one_file else None
        self.readers = Subscribers(config.event_readers, self.store.path, are_shared=self.authenticator.requires_token)
        self.sender = WebhookSender(
            self.service_store,
            self.bus,
            self.run,
            store_path=self.store.path,
            allow_private=config.allow_private_webhooks,
        )
        self._stopping: asyncio.Future[None] | None = None
        self._clearing: asyncio.Task[None] | None = None
        self._is_uncleared = False
        statistics = SessionStatistics(self.store)
        self.metrics = ServerMetrics(
            make_collector(statistics, self.service_store, self.open_sessions, self.readers, self.sender)
        )
        for follower in (self.readers.publish, self.metrics.count_events, lambda _: self.sender.notify()):
            self.feed.follow(follower)

    async def run(self, work: Callable[[], T]) -> T:
        """Do something that blocks. What belongs to a request, such as its trace, goes with it."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, work)

    async def with_session(self, store_id: str, work: Callable[[SessionHandle], T]) -> T:
        """Do something with a session: one request after the other, in the order they came."""
        return await self._use(store_id, lambda handle: self.run(partial(work, handle)))

    async def append(
        self,
        store_id: str,
        work: Callable[[SessionHandle, list[Raw] | ReadyMessages], T],
        messages: list[Raw],
        *,
        is_large: bool,
    ) -> T:
        """The same for an append: it may share its transaction with those of other sessions.

        What `is_large` is made ready in a thread of its own before, so that the others do not wait for that.
        """

        async def append(handle: SessionHandle) -> T:
            given: list[Raw] | ReadyMessages = messages
            if is_large:
                given = await self.run(lambda: handle.cached_session().make_ready(messages))
            written: T = await (self.appends.submit if self.appends else self.run)(partial(work, handle, given))
            return written

        try:
            return await self._use(store_id, append)
        except DeletedSession:
            await self.close_session(store_id)
            return await self._use(store_id, append)  # somebody may have made a new one of this name
        except CompactorError:
            await self.close_session(store_id)  # what it has seen or noted was perhaps never written
            raise

    async def close_session(self, store_id: str) -> None:
        """Close a session, so that the next use opens it anew."""
        await self.with_session(store_id, _close_slot)

    async def run_compaction(self, store_id: str, work: Callable[[Session], T], *, can_cancel: bool = False) -> T:
        """Do something long with a session, while messages can still be appended to it; one such thing at a time.

        What `can_cancel` is ended by `cancel`, before it is its turn as well.
        """
        room = self.compaction_pool.room(namespace_of(store_id))
        with self.open_sessions.use(store_id) as handle, handle.pending(is_listed=can_cancel) as pending:
            async with handle.compaction, room:
                pending.check()
                pending.session = await self.with_session(store_id, lambda used: used.session().clone())
                return await self.compaction_pool.run(pending.session, work)

    async def cancel(self, store_id: str) -> tuple[bool, bool]:
        """End the compactions of a session; whether one was ended here, and whether another process was asked to.

        Here nothing of it goes on when this returns.
        """
        core = await self.run(lambda: continue_core(store_id, self.store, self.bus))
        handle = self.open_sessions.known(store_id)
        here = await handle.cancel_compactions() if handle is not None else False
        dropped = await self.run(lambda: cancel_compactions(core, self.service_store))
        ours = self.engine.cancel(dropped) if self.engine is not None else []
        while self.engine is not None and self.engine.cancel(ours):
            await asyncio.sleep(CANCEL_POLL_SECONDS)
        return here or bool(ours), len(dropped) > len(ours)

    async def delete(self, store_id: str) -> None:
        """Delete a session for good. What is done to it here is ended first; elsewhere it finds no session any more."""
        running = await self.run(lambda: self._running(store_id))
        handle = self.open_sessions.known(store_id)
        if handle is not None:
            await handle.cancel_compactions()

        def remove(handle: SessionHandle) -> None:
            _close_slot(handle)
            delete_from(self.store, store_id, bus=self.bus, project=project_of(self.config.store))

        try:
            await self.with_session(store_id, remove)
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
        return [job for job in self.service_store.jobs.open(store_id) if job.state == "running"]

    async def _use(self, store_id: str, work: Callable[[SessionHandle], Awaitable[T]]) -> T:
        try:
            with self.open_sessions.use(store_id) as handle:
                async with handle.turn:
                    return await work(handle)
        finally:
            for handle in self.open_sessions.evict():
                await self.run(partial(_close_slot, handle))

    def start(self) -> None:
        """Begin with jobs, events and webhooks, with what waits from before too. Call it in the event loop."""
        prepare_types()
        self.feed.start()
        self.sender.start()
        if self.notices is not None:
            self.notices.start()
        if self.engine is not None:
            self.engine.start()

    def _on_notification(self, kind: str) -> None:
        """Somebody has committed an event, in whichever process; "" when some may have been missed."""
        self.feed.notify()
        if self.engine is not None and kind in WAKING_EVENTS:
            self.engine.wake()

    def begin_shutdown(self) -> None:
        """Take no more jobs, end the streams of events, and let what waits for a model have an end.

        Call it in the event loop, `stop` when all requests are answered.
        """
        self.readers.end()
        loop, seconds = asyncio.get_running_loop(), self.config.stop_seconds
        loop.call_later(max(0.0, seconds - _CANCEL_MARGIN_SECONDS), self.compaction_pool.cancel)
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
        """Finish what is under way, give back the jobs that take longer, and close everything. Blocks."""
        if self.engine is not None:
            self.engine.stop(finish=True, timeout=self.config.stop_seconds)
        if self.notices is not None:
            self.notices.stop()
        self.compaction_pool.close()
        self._writer.shutdown()
        self._threads.shutdown()
        self.open_sessions.close()
        self.store.close()


def _close_slot(handle: SessionHandle) -> None:
    """Close a session. When that fails, it is no failure of what somebody has just asked for."""
    try:
        handle.close()
    except CompactorError as error:
        _log.warning("session %r could not be closed: %s", handle.id, error)
