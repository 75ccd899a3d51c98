"""A scripted provider over real HTTP, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any, Literal

from aiohttp import web
from msgspec import Struct

from tests.waiting import PATIENCE


class Reply(Struct, frozen=True, kw_only=True):
    """One reply: its pieces are sent one by one, and then it ends in one of several ways."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = {}
    end: Literal["close", "drop", "stall", "endless"] = "close"


def failure(status: int, body: Any, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    said = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(pieces=[said], status=status, headers={"content-type": "application/json", **named})


class Provider:
    """Gives its replies in order, the last one again and again. `gone` is set once a caller has left in mid-reply."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.gone = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.url = self._do(self._start())

    def close(self) -> None:
        self._do(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _start(self) -> str:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{path:.*}", self._reply)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        reply = self.replies[min(len(self.bodies), len(self.replies) - 1)]
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self.keys.append(request.headers.get("x-api-key") or request.headers.get("authorization", ""))
        response = web.StreamResponse(
            status=reply.status, headers={"content-type": "text/event-stream", **reply.headers}
        )
        try:
            await response.prepare(request)
            await self._send(reply, request, response)
        except (asyncio.CancelledError, ConnectionResetError):
            self.gone.set()
            raise
        return response

    async def _send(self, reply: Reply, request: web.Request, response: web.StreamResponse) -> None:
        for piece in reply.pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        if reply.end == "drop" and request.transport:
            request.transport.abort()
        if reply.end == "stall":
            await asyncio.Event().wait()
        while reply.end == "endless":
            await response.write(reply.pieces[-1])
            await asyncio.sleep(0.001)
