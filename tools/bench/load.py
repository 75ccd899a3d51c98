"""The part of `make bench` about load: many sessions, compactions and readers, several workers, neighbours.

`python -m tools.bench.load` runs it alone; names such as `held`, `crossing`, `events`, `postgres` and `neighbour`
choose parts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence

from tests.postgres import Server
from tools.bench import events as bench_events
from tools.bench import held as bench_held
from tools.bench import neighbour as bench_neighbour
from tools.bench.calling import Caller, Wrong, create, share_out, turn
from tools.bench.crossing import Crossed, cross
from tools.bench.serving import Program, files_allowed, module, new_store, serving, working
from tools.bench.sessions import Line

SESSIONS = 200
WORKERS = (1, 2, 4)
REQUESTS = 1_600


def bench(line: Line, parts: Sequence[str] = ()) -> int:
    """Measure and print all of it, or some parts; 1 when something was lost, missed or left undone."""
    try:
        for name, part in PARTS.items():
            if not parts or name in parts:
                part(line)
    except Wrong as wrong:
        print(f"WRONG: {wrong}")
        return 1
    return 0


def held(line: Line) -> None:
    """Many sessions on one server."""
    with new_store() as store, serving(store) as server:
        bench_held.bench(line, server)


def events(line: Line) -> None:
    """Many readers of one server, as many as may connect here."""
    readers = files_allowed(bench_events.READERS)
    with new_store() as store, serving(store) as server:
        bench_events.bench(line, server, readers)


def crossing(line: Line) -> None:
    """Sessions that reach a level at once, on SQLite: in the server itself, then with workers beside it."""
    with new_store() as store:
        with serving(store) as server:
            inside = cross(server, "inside", SESSIONS)
        with serving(store, workers=0) as server, working(store, 2, 1):
            beside = cross(server, "beside", SESSIONS)
    _tell("SQLite, in the server", inside)
    line("the last of them, times the sum of single ones on all cores", inside.ratio, 3)
    _tell("SQLite, 2 workers beside the server", beside)
    line("the same with two workers beside the server, times within it", beside.last / inside.last, 1)


def postgres(line: Line) -> None:
    """The same on a PostgreSQL of our own."""
    own = Server()
    try:
        on_postgres(line, own.url(connections=8))
    finally:
        own.remove()


def on_postgres(
    line: Line, store: str, sessions: int = SESSIONS, workers: Sequence[int] = WORKERS, requests: int = REQUESTS
) -> None:
    """Sessions that reach a level at once, with more and more workers; and messages appended beside an echo."""
    with serving(store, workers=0) as server, module("tools.bench.server", "echo") as echo:
        crossed = [_with_workers(server, store, count, sessions) for count in workers]
        speeds = [asyncio.run(_speed(each, requests)) for each in (echo, server)]
    for count, each in zip(workers, crossed, strict=True):
        _tell(f"PostgreSQL, workers={count}", each)
    for count, each in zip(workers[1:], crossed[1:], strict=True):
        line(f"PostgreSQL: the last with {count} workers, times with {workers[0]}", each.last / crossed[0].last, 1)
    print(f"PostgreSQL: requests per second: {speeds[0]:,.0f} echoed, {speeds[1]:,.0f} appended")
    line("PostgreSQL: a bare echo, times the speed of appending over HTTP", speeds[0] / speeds[1], 8)


def _with_workers(server: Program, store: str, count: int, sessions: int) -> Crossed:
    with working(store, count, 1):
        return cross(server, f"by-{count}", sessions)


def _tell(where: str, crossed: Crossed) -> None:
    alone = f"{crossed.sessions} alone ({1000 * crossed.single:.0f} ms each) on {crossed.cores} cores"
    print(
        f"{where}: {crossed.sessions} sessions reached a level at once, compacted={crossed.sessions}; the last after "
        f"{crossed.last:.1f} s, {crossed.ratio:.2f} times {alone}"
    )


async def _speed(program: Program, requests: int) -> float:
    """Messages per second, each a request of its own; the echo takes the same without a session."""
    names = [f"speed-{at}" for at in range(32)]
    if program.log.read_text().startswith("listening"):
        await share_out(program.port, len(names), lambda caller, at: create(caller, names[at], 50_000_000))

    async def say(caller: Caller, number: int) -> None:
        body = {"messages": turn("speed", number)[-1:]}
        await caller.post(f"/v1/sessions/{names[number % len(names)]}/messages", body)

    return requests / await share_out(program.port, requests, say)


PARTS: dict[str, Callable[[Line], None]] = {
    "held": held,
    "crossing": crossing,
    "events": events,
    "postgres": postgres,
    "neighbour": bench_neighbour.bench,
}


if __name__ == "__main__":
    from tools.bench.main import print_line

    sys.exit(bench(print_line, sys.argv[1:]))
