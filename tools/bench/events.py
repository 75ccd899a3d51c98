"""The part of `make bench` about readers of events: how quickly many get all of them, beside a bare relay.

`python -m tools.bench.events relay` is that relay: it writes what it is sent to everybody who is there.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from tools.bench.calling import Caller, append, create, demand, share_out, turns
from tools.bench.listening import Listener, listening
from tools.bench.serving import Program, module
from tools.bench.sessions import Line

READERS = 500
EVENTS = 200
_PUBLISHERS = 4
_PATIENCE = 120.0
_QUIET_SECONDS = 0.2
_NAME = "told"
_PLACE = b"id: 0\n\n"


def bench(line: Line, server: Program, readers: int = READERS, events: int = EVENTS) -> None:
    """Measure and print; `Wrong` when a reader misses an event, or is told one twice or out of order."""
    ref = asyncio.run(_prepare(server))
    alone, _, _ = asyncio.run(_told(server, 1, events, ref))
    seconds, behind, frame = asyncio.run(_told(server, readers, events, ref))
    with module("tools.bench.events", "relay") as relay:
        bare = asyncio.run(_relayed(relay, readers, events, frame))
    count = readers * events
    print(
        f"{events} events to {readers} readers: {count / seconds:,.0f} delivered per second, {count / bare:,.0f} by a "
        f"bare relay; the last reader {1000 * behind:.0f} ms behind the first, {seconds / alone:.1f} times "
        "the time of a single one; missed=0"
    )
    line(f"events to {readers} readers, times a bare relay of the same bytes", seconds / bare, 4)


async def _prepare(server: Program) -> str:
    """A session with something to recall, which is what will be told; its id."""
    async with Caller(server.port) as caller:
        await create(caller, _NAME, 100_000)
        await append(caller, _NAME, turns(_NAME, 0, 12))
        await caller.post(f"/v1/sessions/{_NAME}/compact", {})
        page = await caller.get(f"/v1/sessions/{_NAME}/archive?limit=1")
    ref: str = page["originals"][0]["id"]
    return ref


async def _told(server: Program, readers: int, events: int, ref: str) -> tuple[float, float, bytes]:
    """Recall something so many times; the seconds until all were told, how far the last was behind, and a frame."""

    async def publish() -> None:
        path = f"/v1/sessions/{_NAME}/archive/{ref}"
        await share_out(server.port, events, lambda caller, _: caller.ask("GET", path), _PUBLISHERS)

    listeners = [Listener(server.port, "/v1/events?types=item.recalled") for _ in range(readers)]
    seconds = await _timed(listeners, events, publish)
    last = [each.times[-1] for each in listeners]
    return seconds, max(last) - min(last), listeners[0].frame


async def _relayed(relay: Program, readers: int, events: int, frame: bytes) -> float:
    """The same bytes through the relay, which says when it has passed each on."""
    numbers = iter(range(events))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        for _ in numbers:
            writer.write(frame)
            await reader.readexactly(1)
        writer.close()

    async def publish() -> None:
        await asyncio.gather(*(client() for _ in range(_PUBLISHERS)))

    return await _timed([Listener(relay.port, "/") for _ in range(readers)], events, publish)


async def _timed(listeners: list[Listener], events: int, publish: Callable[[], Awaitable[object]]) -> float:
    """The seconds from the first event to the last reader who knows them all."""
    async with listening(listeners):
        start = time.perf_counter()
        await publish()
        heard = await asyncio.gather(*(each.hear(events, _PATIENCE) for each in listeners))
        demand(all(heard), f"{heard.count(False)} of {len(heard)} readers have missed events")
        await asyncio.sleep(_QUIET_SECONDS)  # whatever comes twice is there by then
    found = listeners[0].ids
    demand(len(found) == events, f"a reader was told {len(found)} events, not {events}")
    demand(all(each.ids == found for each in listeners), "readers were told the same events in another order, or twice")
    return max(each.times[-1] for each in listeners) - start


async def _relay() -> None:
    """Whoever asks is a reader; whoever does not is heard by all of them."""
    readers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1 << 16)
        if first.startswith(b"GET "):
            writer.write(_PLACE)
            readers.append(writer)
            return
        while first:
            for each in readers:
                each.write(first)
            writer.write(b".")
            first = await reader.read(1 << 16)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=2_048)
    print(f"ready at {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    demand(sys.argv[1:] == ["relay"], "only the relay runs alone; the bench is `python -m tools.bench.load`")
    asyncio.run(_relay())
