"""New events for everybody who follows: one poll of the store for all, SSE frames, and a bounded buffer for each
subscriber."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import structs

from context_compactor.errors import StoreError
from context_compactor.protocols import ServiceStore
from context_compactor.server.problems import RequestRefused
from context_compactor.server.tokens import Scope
from context_compactor.store.events import Event
from context_compactor.store.rows import StoredEvent, namespace_of

RETRY_MILLISECONDS = 1_000
OPENING = f"retry: {RETRY_MILLISECONDS}\n: hello\n\n".encode()
KEEP_ALIVE = b": alive\n\n"
# Of what events hold, the only text of ours that may name a session or the store.
_REASON = "reason"


def public_event(event: Event, scope: Scope, store_path: str) -> bytes:
    """An event as JSON for those who know its session by the name it has in their namespace."""
    payload = event.payload
    reason = payload.get(_REASON)
    if isinstance(reason, str):
        payload = {**payload, _REASON: scope.public_text(_without_store_path(reason, store_path), event.session_id)}
    shown = structs.replace(event, session_id=scope.public_id(event.session_id), payload=payload)
    return msgspec.json.encode(shown)


def _without_store_path(text: str, store_path: str) -> str:
    """A name such as `job` could be any word; only what leads to a place from anywhere is left out."""
    is_place = Path(store_path).is_absolute() or "://" in store_path
    return text.replace(store_path, "the store") if is_place else text


def frame_of(event: Event, scope: Scope, store_path: str) -> bytes:
    """An event as it stands in a stream."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        event.id.encode(),
        event.type.encode(),
        public_event(event, scope, store_path),
    )


def position_frame(event_id: str) -> bytes:
    """Tells a new reader behind which event it stands, so that a break before the first one loses nothing."""
    return b"id: %s\n\n" % event_id.encode()


def gap_frame(last_id: str) -> bytes:
    """Tells a reader that it may have missed something."""
    reason = f"the event {last_id[:80]!r} is no longer kept: some that came behind it may be missing here"
    return b"event: gap\ndata: %s\n\n" % msgspec.json.encode({"reason": reason, "last_event_id": last_id[:80]})


def end_frame(reason: str) -> bytes:
    """Tells a reader why nothing more is coming."""
    return b"event: end\ndata: %s\n\n" % msgspec.json.encode({"reason": reason})


_log = logging.getLogger("context_compactor")
_BATCH = 500
_POLL_SECONDS = 0.25
# While the database notifies of events, the poll only finds notifications that were lost.
_IDLE_POLL_SECONDS = 2.0

Follower = Callable[[Sequence[StoredEvent]], None]


class EventFeed:
    """New events in the order in which they were kept. Followers are called in the event loop, and must be quick."""

    def __init__(self, service_store: ServiceStore, is_notified: Callable[[], bool] = lambda: False) -> None:
        self.position = 0
        """The number of the last event that was given out."""
        self.idle_poll_seconds = _IDLE_POLL_SECONDS
        self._service_store = service_store
        self._is_notified = is_notified
        self._followers: list[Follower] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="context-compactor feed")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notified = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def follow(self, follower: Follower) -> None:
        """Have this called with every batch of new events."""
        self._followers.append(follower)

    def start(self) -> None:
        """Begin behind what is kept now. Call it in the event loop."""
        self.position = self._service_store.events.last()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    def notify(self) -> None:
        """There is something new. Any thread may say so."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._notified.set)

    async def stop(self) -> None:
        """Give out nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._thread.shutdown()

    async def _run(self) -> None:
        is_failing = False
        while True:
            await self._rest()
            try:
                while batch := await self._read():
                    self._give(batch)
                is_failing = False
            except StoreError as error:  # what is there now will be there at the next look
                if not is_failing:
                    _log.warning("events cannot be read: %s", error)
                is_failing = True

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self.idle_poll_seconds if self._is_notified() else _POLL_SECONDS):
                await self._notified.wait()
        except TimeoutError:
            return
        finally:
            self._notified.clear()

    async def _read(self) -> list[StoredEvent]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, lambda: self._service_store.events.after(self.position, limit=_BATCH)
        )

    def _give(self, batch: Sequence[StoredEvent]) -> None:
        self.position = batch[-1].number
        for follower in self._followers:
            try:
                follower(batch)
            except Exception:  # noqa: BLE001  one that fails must not keep the events from the others
                _log.exception("events %d to %d could not be taken", batch[0].number, batch[-1].number)


MAX_FRAMES = 1_000
MAX_BYTES = 1 << 20
# About as much as a connection takes before somebody has to wait for its other end.
_CHUNK_BYTES = 32 * 1024

TOO_SLOW = "this reader is too slow; connect again with the header Last-Event-ID to go on where it stood"
STOPPING = "the server stops; connect again with the header Last-Event-ID to go on where it stood"
NO_LONGER_ALLOWED = "the token is no longer known, or counts for something else now"


class Subscriber:
    """Somebody who reads events. `ended` says why nothing more is coming, once that is so."""

    def __init__(self, scope: Scope, session_id: str | None, types: frozenset[str]) -> None:
        self.scope = scope
        self.session_id = session_id
        self.types = types
        self.seen = 0
        """The number of the last event that it knows: what waits and is not behind it is passed over."""
        self.ended = ""
        self._frames: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._changed = asyncio.Event()

    def wants(self, event: Event) -> bool:
        """Whether an event of its namespace is for this reader."""
        return self.session_id in (None, event.session_id) and (not self.types or event.type in self.types)

    def put(self, number: int, frame: bytes) -> None:
        """One more to send. When too many wait, all are dropped, and the reader is ended."""
        if self.ended:
            return
        self._frames.append((number, frame))
        self._size += len(frame)
        if len(self._frames) > MAX_FRAMES or self._size > MAX_BYTES:
            self._frames.clear()
            self._size = 0
            self.end(TOO_SLOW)
        self._changed.set()

    def end(self, reason: str) -> None:
        """Send what waits, then no more."""
        self.ended = self.ended or reason
        self._changed.set()

    async def take(self, seconds: float) -> bytes:
        """What is to be sent next; nothing when there was nothing for so long, or when it is the end."""
        if not self._frames and not self.ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
        self._changed.clear()
        taken: list[bytes] = []
        room = _CHUNK_BYTES
        while self._frames and room > 0:
            number, frame = self._frames.popleft()
            self._size -= len(frame)
            if number > self.seen:
                taken.append(frame)
                room -= len(frame)
        return b"".join(taken)


class Subscribers:
    """All readers of a server, by namespace. It follows the feed."""

    def __init__(self, most: int, store_path: str, *, are_shared: bool) -> None:
        self.dropped = 0
        """How many were ended because they were too slow."""
        self._most = most
        self._most_of_one = max(1, most // 2) if are_shared else most  # no namespace keeps the readers of others out
        self._store_path = store_path
        self._known: dict[str, set[Subscriber]] = {}
        self._is_over = False

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def join(self, scope: Scope, session_id: str | None, types: frozenset[str]) -> Subscriber:
        """A new reader, who gets everything from now on."""
        if self._is_over:
            raise RequestRefused(503, STOPPING)
        mine = len(self._known.get(scope.namespace, ()))
        if len(self) >= self._most or mine >= self._most_of_one:
            raise RequestRefused(
                503, f"{len(self):,} readers follow events already. Try: again later, or another server."
            )
        reader = Subscriber(scope, session_id, types)
        self._known.setdefault(scope.namespace, set()).add(reader)
        return reader

    def leave(self, reader: Subscriber) -> None:
        """It is gone."""
        self.dropped += reader.ended == TOO_SLOW
        here = self._known[reader.scope.namespace]
        here.discard(reader)
        if not here:
            del self._known[reader.scope.namespace]

    def publish(self, batch: Sequence[StoredEvent]) -> None:
        """New events. Each is written once for all readers of its namespace."""
        for kept in batch:
            readers = self._known.get(namespace_of(kept.event.session_id), ())
            wanting = [reader for reader in readers if reader.wants(kept.event)]
            if wanting:
                frame = self.frame(kept.event, wanting[0].scope)
                for reader in wanting:
                    reader.put(kept.number, frame)

    def frame(self, event: Event, scope: Scope) -> bytes:
        """An event as it is sent to readers of a namespace."""
        return frame_of(event, scope, self._store_path)

    def end(self) -> None:
        """Let all go, and take nobody new: the server stops."""
        self._is_over = True
        for readers in self._known.values():
            for reader in readers:
                reader.end(STOPPING)
