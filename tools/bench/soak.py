"""`make soak`: a steady load on a server for minutes, and whether its memory stays where it is; then sessions that are
filled faster than they are compacted, and whether any compaction came when it should not.

    python -m tools.bench.soak --minutes 10 [--store URL]

First so many sessions begin and end that the server keeps as many open as it ever will. From then on its memory is
looked at every few seconds. It is flat when a straight line through all looks rises by less than 5 % from the first to
the last; else it is GROWING, and that ends with 1, as does anything lost and any compaction below its level.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Iterator, Sequence

from msgspec import Struct

from tools.bench.calling import Wrong
from tools.bench.pressure_load import PressureLoad
from tools.bench.serving import Program, new_store, serving
from tools.bench.soak_load import Audience, Load

LIVES = 300
"""More than a server keeps open."""
AGENTS = 6
EVERY = 0.3
MOST_GROWTH = 0.05
_LOOKS = 300
_FEWEST_LOOKS = 4
_TURNS = 200
_LEAST_LOOK_SECONDS = 0.1


class Memory(Struct, frozen=True):
    """What a server had in memory: seconds and bytes."""

    looks: Sequence[tuple[float, int]]

    def at(self, share: float) -> float:
        """The memory at a point of the time, in megabytes: the median of a tenth of the looks."""
        size = max(1, len(self.looks) // 10)
        first = round(share * (len(self.looks) - size))
        return statistics.median(memory for _, memory in self.looks[first : first + size]) / 1e6

    @property
    def slope(self) -> float:
        """Megabytes per hour, by a straight line through all looks."""
        seconds, memory = zip(*self.looks, strict=True)
        return statistics.linear_regression(seconds, memory).slope * 3600 / 1e6

    @property
    def growth(self) -> float:
        """How much that line rises from the first look to the last, as a share of the memory at the beginning."""
        return self.slope / 3600 * (self.looks[-1][0] - self.looks[0][0]) / self.at(0)

    @property
    def is_flat(self) -> bool:
        """Whether it stays where it is."""
        return self.growth < MOST_GROWTH

    def lines(self) -> Iterator[str]:
        """The figures for people."""
        minutes = (self.looks[-1][0] - self.looks[0][0]) / 60
        yield f"memory over {minutes:.1f} minutes, {len(self.looks)} looks:"
        yield f"  at the start {self.at(0):.1f} MB, in the middle {self.at(0.5):.1f} MB, at the end {self.at(1):.1f} MB"
        yield f"  end / start {self.at(1) / self.at(0):.3f}; a line through all looks: {self.slope:+.1f} MB an hour"
        yield (
            f"  {'flat' if self.is_flat else 'GROWING'}: the line rises by {self.growth:+.1%} of the start; "
            f"flat is below {MOST_GROWTH:.0%}"
        )


async def soak(server: Program, minutes: float, lives: int = LIVES, agents: int = AGENTS) -> Memory:
    """Load a server for so long; what it had in memory. `Wrong` when something was lost."""
    load, audience = Load(server.port), Audience(server.port)
    await audience.begin()
    start = time.monotonic()
    await load.hurry(lives)
    print(f"warm after {time.monotonic() - start:.0f} s, {lives} sessions: {server.memory() / 1e6:.1f} MB", flush=True)
    looking = asyncio.create_task(_look(server, minutes * 60))
    await load.go_on(agents, minutes * 60, EVERY)
    looks = await looking
    await _press(server, minutes * 60 / 2)
    found = await audience.end()
    print(f"{', '.join(f'{number:,} {what}' for what, number in sorted(load.done.items()))}, {found:,} events; lost=0")
    return Memory(looks)


async def _press(server: Program, seconds: float) -> None:
    """Half of the time without and half with what a provider reports."""
    for with_usage in (False, True):
        load = PressureLoad(server.port, "reported" if with_usage else "pressed", with_usage=with_usage)
        await load.go_on(AGENTS, _TURNS, seconds / 2)
        print(f"under pressure: {', '.join(f'{number:,} {what}' for what, number in sorted(load.done.items()))}")


async def _look(server: Program, seconds: float) -> list[tuple[float, int]]:
    start, looks = time.monotonic(), list[tuple[float, int]]()
    while (now := time.monotonic() - start) < seconds or len(looks) < _FEWEST_LOOKS:
        looks.append((now, server.memory()))
        await asyncio.sleep(max(_LEAST_LOOK_SECONDS, seconds / _LOOKS))
    return looks


def main(arguments: Sequence[str]) -> int:
    """Soak and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.soak", description="A steady load, and the memory under it."
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--store", help="the address of an empty store; else a SQLite file that is gone afterwards")
    given = parser.parse_args(arguments)
    try:
        with new_store() as store, serving(given.store or store) as server:
            memory = asyncio.run(soak(server, given.minutes))
            complaints = server.complaints()
    except Wrong as wrong:
        print(f"WRONG: {wrong}")
        return 1
    print("\n".join(memory.lines()))
    print("\n".join([f"lines in the server's log: {len(complaints)}", *complaints[:5]]))
    return 0 if memory.is_flat else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
