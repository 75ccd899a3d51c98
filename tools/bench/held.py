"""The part of `make bench` about many sessions: what they cost a server that holds them, and those who use one."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from msgspec import Struct

from tools.bench.calling import Caller, append, create, demand, share_out, turn
from tools.bench.serving import Program
from tools.bench.sessions import Line

WINDOW = 200_000
_PREFIX = "run-"
_MESSAGES = len(turn("", 0))
_PAGE = 1_000
# How often some messages are appended while so many sessions are held.
_APPENDS = 3


class Held(Struct, frozen=True):
    """What is measured while a server holds so many sessions: bytes, and seconds."""

    memory: int
    appending: float
    appending_to_the_last: float
    listing: float


def bench(line: Line, server: Program, few: int = 100, many: int = 10_000, looks: int = 200) -> None:
    """Measure and print; `Wrong` when a session or a message is missing at the end."""
    before = asyncio.run(_held(server, 0, few, looks))
    after = asyncio.run(_held(server, few, many, looks))
    asyncio.run(_check(server, many, 2 * _APPENDS * looks))
    grown = after.memory - before.memory
    print(
        f"{many:,} sessions held: {after.memory / 1e6:,.0f} MB, with {few:,} {before.memory / 1e6:,.0f} MB; "
        f"{grown / 1e3 / (many - few):.1f} KB more a session"
    )
    line(f"memory with {many:,} sessions, times with {few:,}", after.memory / before.memory, 2)
    line(f"appending to any of {many:,}, times to any of {few:,}", after.appending / before.appending, 4)
    last = after.appending_to_the_last / before.appending_to_the_last
    line(f"appending to the last {few:,} of {many:,}, times to {few:,}", last, 1.5)
    line(f"the first page of {many:,}, times of {few:,}", after.listing / before.listing, 1.5)


async def _held(server: Program, first: int, after: int, looks: int) -> Held:
    """Make the sessions from one number up to another, then look how it is to use some."""
    await share_out(server.port, after - first, lambda caller, number: _begin(caller, _name(first + number)))
    dice = Random(after)
    last = range(max(0, after - 100), after)
    async with Caller(server.port) as caller:
        await _appends(caller, dice.choices(last, k=looks))  # opens those that are used last
        return Held(
            memory=server.memory(),
            appending_to_the_last=await _appends(caller, dice.choices(last, k=looks)),
            appending=await _appends(caller, dice.choices(range(after), k=looks)),
            listing=await _median(lambda _: caller.get("/v1/sessions?limit=100"), range(looks)),
        )


async def _begin(caller: Caller, name: str) -> None:
    await create(caller, name, WINDOW)
    await append(caller, name, turn(name, 0))


async def _appends(caller: Caller, numbers: Sequence[int]) -> float:
    return await _median(lambda number: append(caller, _name(number), turn("more", 0)[:1]), numbers)


async def _median(work: Callable[[int], Awaitable[object]], numbers: Sequence[int]) -> float:
    times = []
    for number in numbers:
        start = time.perf_counter()
        await work(number)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


async def _check(server: Program, sessions: int, appended: int) -> None:
    """All sessions are listed, and have all messages that they were given."""
    names: set[str] = set()
    messages, after = 0, ""
    async with Caller(server.port) as caller:
        while True:
            page = await caller.get(f"/v1/sessions?limit={_PAGE}{after}")
            found = {each["id"]: each["messages"] for each in page["sessions"] if each["id"].startswith(_PREFIX)}
            names |= found.keys()
            messages += sum(found.values())
            if page.get("next") is None:
                break
            after = f"&after={page['next']}"
    wanted = sessions * _MESSAGES + appended
    demand(names == {_name(number) for number in range(sessions)}, f"{len(names):,} of {sessions:,} sessions are there")
    demand(messages == wanted, f"{messages:,} messages are there, {wanted:,} were appended")


def _name(number: int) -> str:
    return f"{_PREFIX}{number:05d}"
