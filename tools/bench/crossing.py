"""The part of `make bench` about many sessions that reach a level at the same time: how long until the last is served.

The measure is what the same compactions take one after the other, shared out among the cores there are.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tools.bench.calling import Caller, append, create, demand, share_out, turn, turns
from tools.bench.listening import Listener, listening
from tools.bench.serving import Program

TURNS = 12
_PROBE = 9_999
_PROBE_WINDOW = 40_000
_SOFT = 0.80
_PATIENCE = 300.0
_MESSAGES = len(turn("", 0))


class Crossed(Struct, frozen=True):
    """How long it took: one compaction alone, and all until the last; in seconds."""

    sessions: int
    single: float
    last: float

    @property
    def cores(self) -> int:
        """How many there are here."""
        return os.cpu_count() or 1

    @property
    def ratio(self) -> float:
        """The time to the last, beside the sum of single ones on the cores there are."""
        return self.last / (self.single * self.sessions / self.cores)


def cross(server: Program, prefix: str, sessions: int) -> Crossed:
    """Fill sessions to just below a level, then push all over it at once. `Wrong` unless each is compacted."""
    return asyncio.run(_cross(server, prefix, sessions, max(1, sessions // 20)))


async def _cross(server: Program, prefix: str, sessions: int, singles: int) -> Crossed:
    window = await _window(server, f"{prefix}-{_PROBE}")
    names = [f"{prefix}-{number:04d}" for number in range(singles + sessions)]
    await share_out(server.port, len(names), lambda caller, number: _fill(caller, names[number], window))
    listener = Listener(server.port, "/v1/events?types=session.compacted")
    async with listening([listener]):
        times = [await _push(server, listener, [name]) for name in names[:singles]]
        last = await _push(server, listener, names[singles:])
    await share_out(server.port, len(names), lambda caller, number: _check(caller, names[number]))
    return Crossed(sessions, statistics.median(times), last)


async def _window(server: Program, name: str) -> int:
    """A window in which the soft level lies in the middle of one turn."""
    async with Caller(server.port) as caller:
        await create(caller, name, _PROBE_WINDOW)
        below = await append(caller, name, turns(name, 0, TURNS))
        above = await append(caller, name, turn(name, TURNS))
    middle: float = (below["share"] + above["share"]) / 2
    return round(_PROBE_WINDOW * middle / _SOFT)


async def _fill(caller: Caller, name: str, window: int) -> None:
    await create(caller, name, window)
    answer = await append(caller, name, turns(name, 0, TURNS))
    demand(answer["level"] is None, f"{name} is at a level already: {answer}")


async def _push(server: Program, listener: Listener, names: Sequence[str]) -> float:
    """One more turn for each, all at the same time; the seconds until the last was compacted."""
    known = len(listener.ids)
    start = time.perf_counter()
    await share_out(server.port, len(names), lambda caller, at: _over(caller, names[at]), len(names))
    is_told = await listener.hear(known + len(names), _PATIENCE)
    demand(is_told, f"{len(listener.ids) - known} of {len(names)} sessions were compacted within {_PATIENCE:g} s")
    return listener.times[known + len(names) - 1] - start


async def _over(caller: Caller, name: str) -> None:
    await append(caller, name, turn(name, TURNS))


async def _check(caller: Caller, name: str) -> None:
    """It was compacted once, is below its levels, and has every message."""
    known: Any = await caller.get(f"/v1/sessions/{name}")
    wanted = (TURNS + 1) * _MESSAGES
    demand(known["messages"] == wanted, f"{name} has {known['messages']} messages of {wanted}")
    demand(known["totals"]["compactions"] == 1, f"{name} was compacted {known['totals']['compactions']} times")
    demand(known["share"] < _SOFT, f"{name} is at {known['share']:.0%} of its budget after a compaction")
