"""One connection of a client, with limits: a request that is too slow, or too long around its body, ends it."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ABORT = "context_compactor.abort"
"""Where the scope of a request has the function that ends its connection at once."""

_LONGEST = 64 * 1024
_AT_ONCE = 8 * 1024
_HEAD_SECONDS = 20.0


class BoundedConnection(HttpToolsProtocol):
    """Like its base, which would read a head of any length, and wait for the end of a request for ever.

    Whoever answers a request limits its body. What is no body is limited here: the head, and the headers that may
    follow the last chunk.
    """

    head_seconds = _HEAD_SECONDS
    body_seconds = 60.0
    _loose_bytes = 0
    """Bytes since the last that were body, or since a head began or ended."""
    _is_in_head = True
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come: its first request must follow."""
        super().connection_made(transport)
        self._expect(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, piece: bytes) -> None:
        """Some bytes of it, read a few at a time, so that what is too long is not kept first."""
        for first in range(0, len(piece), _AT_ONCE):
            if self.transport.is_closing():
                return
            part = piece[first : first + _AT_ONCE]
            self._loose_bytes += len(part)
            super().data_received(part)
            if self._loose_bytes > _LONGEST:
                self._refuse()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]
        self._loose_bytes, self._is_in_head = 0, True
        self._expect(self.head_seconds)

    def on_headers_complete(self) -> None:
        """Its head is there; the body must follow."""
        self._loose_bytes, self._is_in_head = 0, False
        self._expect(self.body_seconds)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Some of its body is there."""
        self._loose_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._expect(None)
        super().on_message_complete()

    def _expect(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._give_up)

    def _refuse(self) -> None:
        if self._is_in_head and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")
        self._give_up()

    def _unsupported_upgrade_warning(self) -> None:
        """A client that would like to speak otherwise is answered as if it had not said so."""

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def connection_for(body_seconds: float) -> type[BoundedConnection]:
    """The connections of a server that waits so long for a request's body."""
    return type("Connection", (BoundedConnection,), {"body_seconds": body_seconds})
