"""The readers of events: what each wants, and a bounded buffer for each, so that a slow one costs nobody anything."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from context_compactor.events.event import Event
from context_compactor.server.frames import frame_of
from context_compactor.server.problems import Refused
from context_compactor.server.scope import Scope
from context_compactor.store.desk_rows import KeptEvent, namespace_of

MOST_FRAMES = 1_000
MOST_BYTES = 1 << 20
# About as much as a connection takes before somebody has to wait for its other end.
_SENT_AT_ONCE = 32 * 1024

TOO_SLOW = "this reader is too slow; connect again with the header Last-Event-ID to go on where it stood"
STOPPING = "the server stops; connect again with the header Last-Event-ID to go on where it stood"
NO_LONGER_ALLOWED = "the token is no longer known, or counts for something else now"


class Reader:
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
        """One more to send. When too many wait, all are let go, and so is the reader."""
        if self.ended:
            return
        self._frames.append((number, frame))
        self._size += len(frame)
        if len(self._frames) > MOST_FRAMES or self._size > MOST_BYTES:
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
        room = _SENT_AT_ONCE
        while self._frames and room > 0:
            number, frame = self._frames.popleft()
            self._size -= len(frame)
            if number > self.seen:
                taken.append(frame)
                room -= len(frame)
        return b"".join(taken)


class Readers:
    """All readers of a server, by namespace. It follows the feed."""

    def __init__(self, most: int, store_path: str, *, are_shared: bool) -> None:
        self.dropped = 0
        """How many were let go because they were too slow."""
        self._most = most
        self._most_of_one = max(1, most // 2) if are_shared else most  # no namespace keeps the readers of others out
        self._store_path = store_path
        self._known: dict[str, set[Reader]] = {}
        self._is_over = False

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def join(self, scope: Scope, session_id: str | None, types: frozenset[str]) -> Reader:
        """A new reader, who gets everything from now on."""
        if self._is_over:
            raise Refused(503, STOPPING)
        mine = len(self._known.get(scope.namespace, ()))
        if len(self) >= self._most or mine >= self._most_of_one:
            raise Refused(503, f"{len(self):,} readers follow events already. Try: again later, or another server.")
        reader = Reader(scope, session_id, types)
        self._known.setdefault(scope.namespace, set()).add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        """It is gone."""
        self.dropped += reader.ended == TOO_SLOW
        here = self._known[reader.scope.namespace]
        here.discard(reader)
        if not here:
            del self._known[reader.scope.namespace]

    def give(self, batch: Sequence[KeptEvent]) -> None:
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
