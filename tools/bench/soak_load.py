"""The load of a soak: agents that talk, are compacted, look back and end, and readers of events that come and go.

No text comes twice, so that whatever is remembered by its text would show. Whatever is lost on the way is `Wrong`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import count
from random import Random

from tools.bench.calling import Caller, append, create, demand, share_out, turn
from tools.bench.listening import Listener

WINDOW = 8_000
SHORTEST, LONGEST = 10, 40
STEADY_READERS, RESTLESS_READERS = 2, 8
_STAY_SECONDS = (1.0, 5.0)
_LISTEN_SECONDS = 60.0
_QUIET_SECONDS = 0.5


class Load:
    """Sessions on one server. `done` counts what was done."""

    def __init__(self, port: int) -> None:
        self.done: Counter[str] = Counter()
        self._port = port
        self._names = count()

    async def hurry(self, lives: int) -> None:
        """So many sessions from their beginning to their end, as quickly as it goes."""
        await share_out(self._port, lives, lambda caller, _: self._live(caller, 0.0), 8)

    async def go_on(self, agents: int, seconds: float, every: float) -> None:
        """So many agents at a time for so long, each with a turn `every` so many seconds."""
        give_up = time.monotonic() + seconds

        async def agent(at: int) -> None:
            await asyncio.sleep(every * at / agents)
            async with Caller(self._port) as caller:
                while time.monotonic() < give_up:
                    await self._live(caller, every, give_up)

        await asyncio.gather(*(agent(at) for at in range(agents)))

    async def _live(self, caller: Caller, every: float, give_up: float = float("inf")) -> None:
        number = next(self._names)
        name, dice, said = f"agent-{number:06d}", Random(number), 0
        await create(caller, name, WINDOW, idle_seconds=1, wait_for_boundary=True)
        next_at = time.monotonic()
        for _ in range(dice.randint(SHORTEST, LONGEST)):
            await self._turn(caller, name, said, dice)
            said += 1
            next_at = max(next_at + every, time.monotonic() if every else 0)
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))
            if time.monotonic() > give_up:
                break
        await self._check(caller, name, said)

    async def _turn(self, caller: Caller, name: str, number: int, dice: Random) -> None:
        await append(caller, name, turn(name, number))
        known = await caller.get(f"/v1/sessions/{name}/context")
        demand(known["history_messages"] == 4 * (number + 1), f"{name} has {known['history_messages']} messages")
        self.done["turns"] += 1
        if dice.random() < 0.2:
            await self._look_back(caller, name)
        if dice.random() < 0.05:
            await caller.get("/v1/sessions")
            await caller.ask("GET", "/metrics")

    async def _look_back(self, caller: Caller, name: str) -> None:
        page = await caller.get(f"/v1/sessions/{name}/archive?limit=3")
        for original in page["originals"]:
            await caller.get(f"/v1/sessions/{name}/archive/{original['id']}")
            self.done["recalls"] += 1
        await caller.get(f"/v1/sessions/{name}/search?q=clock+of+fixture")
        self.done["searches"] += 1

    async def _check(self, caller: Caller, name: str, said: int) -> None:
        """Everything that was said is there, word for word."""
        history = await caller.get(f"/v1/sessions/{name}/history")
        wanted = [message for number in range(said) for message in turn(name, number)]
        demand(history["messages"] == wanted, f"{name}: the history is not what was said")
        known = await caller.get(f"/v1/sessions/{name}")
        self.done["compactions"] += known["totals"]["compactions"]
        self.done["sessions"] += 1


class Audience:
    """Readers of all events: some stay, the others leave and come again behind the last event they know."""

    def __init__(self, port: int) -> None:
        self._steady = [Listener(port, "/v1/events") for _ in range(STEADY_READERS)]
        self._restless = [Listener(port, "/v1/events") for _ in range(RESTLESS_READERS)]
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """All are there when this returns."""
        everybody = (*self._steady, *self._restless)
        self._tasks = [asyncio.create_task(each.follow()) for each in self._steady]
        self._tasks += [asyncio.create_task(_come_and_go(each, at)) for at, each in enumerate(self._restless)]
        await asyncio.gather(*(each.is_there() for each in everybody))

    async def end(self) -> int:
        """How many events each was told, which must be the same ones."""
        found = self._steady[0].ids
        known = 0
        while known < len(found):  # what is still under way
            known = len(found)
            heard = await asyncio.gather(*(each.hear(known, _LISTEN_SECONDS) for each in self._restless))
            demand(all(heard), "readers that came again have missed events")
            await asyncio.sleep(_QUIET_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        ours = [each.ids[:known] for each in (*self._steady, *self._restless)]
        demand(all(ids == found[:known] for ids in ours), "readers were told other events, or in another order")
        return known


async def _come_and_go(listener: Listener, seed: int) -> None:
    dice = Random(seed)
    while True:
        following = asyncio.create_task(listener.follow())
        try:
            await asyncio.wait([following], timeout=dice.uniform(*_STAY_SECONDS))
        finally:
            following.cancel()
        await asyncio.wait([following])
        await asyncio.sleep(dice.uniform(0, 0.5))
