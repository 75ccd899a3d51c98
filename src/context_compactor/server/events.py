"""The handler of `GET /v1/events`: a stream of server-sent events that resumes after `Last-Event-ID`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

from litestar.response.base import ASGIResponse
from litestar.types import Receive, Send
from litestar.types import Scope as Connection

from context_compactor.errors import BadSetting
from context_compactor.server.event_feed import (
    KEEP_ALIVE,
    NO_LONGER_ALLOWED,
    OPENING,
    Subscriber,
    end_frame,
    gap_frame,
    position_frame,
)
from context_compactor.server.middleware import ABORT
from context_compactor.server.problems import RequestRefused
from context_compactor.server.requests import RequestContext, handles
from context_compactor.server.service import Service
from context_compactor.server.tokens import Scope
from context_compactor.sessions.schemas import EventsQuery
from context_compactor.sessions.verbs import ServerVerbs
from context_compactor.store.events import EVENT_TYPES
from context_compactor.store.rows import StoredEvent

FROM_START = "0"
"""Stands for an id that is before all others."""
_PAGE = 200
_KEEP_ALIVE_SECONDS = 15.0
# Nobody who reads at all takes so long for a few thousand bytes.
_SEND_TIMEOUT_SECONDS = 20.0
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@handles(ServerVerbs.events)
async def events(request: RequestContext[EventsQuery]) -> ASGIResponse:
    query, service = request.params, request.service
    session_id = request.scope.store_id(query.session_id) if query.session_id is not None else None
    reader = service.readers.join(request.scope, session_id, _types(query.types))
    last_id = request.headers.get("last-event-id", "") or query.last_event_id
    return EventStreamResponse(service, reader, last_id, request.authenticate)


def _types(text: str) -> frozenset[str]:
    named = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(named.difference(EVENT_TYPES))
    if unknown:
        raise BadSetting(f"types: {unknown[0][:80]!r} is not an event type. Try: {', '.join(EVENT_TYPES)}.")
    return named


class EventStreamResponse(ASGIResponse):
    """A response without end."""

    _should_set_content_length = False

    def __init__(self, service: Service, reader: Subscriber, last_id: str, authenticate: Callable[[], Scope]) -> None:
        super().__init__(media_type=ServerVerbs.events.media_type, headers=_HEADERS)
        self._service = service
        self._reader = reader
        self._last_id = last_id
        self._authenticate = authenticate
        self._position = service.feed.position

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Send until somebody ends it."""
        gone = asyncio.create_task(_until_disconnected(receive, self._reader))
        try:
            await self.start_response(send)
            async for piece in self._allowed():
                async with asyncio.timeout(_SEND_TIMEOUT_SECONDS):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": end_frame(self._reader.ended), "more_body": False})
        except TimeoutError:
            scope[ABORT]()  # type: ignore[literal-required]
        finally:
            gone.cancel()
            self._service.readers.leave(self._reader)

    async def _allowed(self) -> AsyncIterator[bytes]:
        """What there is to send for as long as it may be: a token that was taken away, or changed, ends it."""
        async for piece in self._pieces():
            if not self._is_still_allowed():
                self._reader.end(NO_LONGER_ALLOWED)
                return
            yield piece

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield OPENING
        if not self._last_id:
            yield position_frame(await self._service.run(self._newest))
        else:
            async for piece in self._missed():
                yield piece
        while not self._reader.ended:
            yield await self._reader.take(_KEEP_ALIVE_SECONDS) or KEEP_ALIVE
        while piece := await self._reader.take(0):
            yield piece

    async def _missed(self) -> AsyncIterator[bytes]:
        """What is kept behind the last event known, page by page, as fast as it is read."""
        number, is_known = await self._service.run(self._place)
        if not is_known:
            yield gap_frame(self._last_id)
        readers, scope = self._service.readers, self._reader.scope
        while page := await self._service.run(partial(self._page, number)):
            yield b"".join(readers.frame(kept.event, scope) for kept in page)
            number = page[-1].number
        self._reader.seen = number

    def _newest(self) -> str:
        """The id of the newest event of the namespace when the reader came; those of others may go while it stays."""
        found = self._service.service_store.events.newest(
            namespace=self._reader.scope.namespace, before=self._position + 1, limit=1
        )
        return found[0].event.id if found else FROM_START

    def _place(self) -> tuple[int, bool]:
        """The number of the last event known, and whether it is one of the namespace and still kept."""
        if self._last_id == FROM_START:
            return 0, True
        kept = self._service.service_store.events
        number = kept.number(self._last_id)
        there = kept.after(number - 1, namespace=self._reader.scope.namespace, limit=1)
        return number, bool(there) and there[0].event.id == self._last_id

    def _page(self, number: int) -> list[StoredEvent]:
        reader = self._reader
        return self._service.service_store.events.after(
            number, session_id=reader.session_id, namespace=reader.scope.namespace, types=reader.types, limit=_PAGE
        )

    def _is_still_allowed(self) -> bool:
        try:
            return self._authenticate() == self._reader.scope
        except RequestRefused:
            return False


async def _until_disconnected(receive: Receive, reader: Subscriber) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.end("the reader has gone")
