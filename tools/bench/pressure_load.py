"""A load that fills sessions faster than they are compacted, and a check that no compaction came when it should not.

Several callers post to one session at once without pauses, so that jobs, emergencies and new messages meet all the
time; or one agent does, whose replies come with the usage of a request that was perhaps sent before a compaction.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, pairwise
from random import Random

from tools.bench.calling import Caller, Raw, create, demand

WINDOW = 60_000
CALLERS = 3
# What a provider counts in front of the conversation, such as tool definitions.
_HIDDEN_TOKENS = 2_000
_REPLY_SECONDS = 0.2
# A request is measured again by the engine, which may count a little less than the gauge.
_TOLERANCE = 0.01
_THRESHOLDS = {"soft": 0.80, "aggressive": 0.85, "emergency": 0.95}


class PressureLoad:
    """Sessions under pressure on one server. `done` counts what was done."""

    def __init__(self, port: int, prefix: str = "pressed", *, with_usage: bool = False) -> None:
        self.done: Counter[str] = Counter()
        self._port = port
        self._prefix = prefix
        self._with_usage = with_usage
        self._numbers = count()

    async def run(self, sessions: int, turns: int, *, until: float = float("inf")) -> None:
        """So many sessions side by side, each filled with so many turns by several callers and then checked.

        `until` is a time of the monotonic clock after which no more is said.
        """
        await asyncio.gather(*(self._fill(turns, until) for _ in range(sessions)))

    async def go_on(self, sessions: int, turns: int, seconds: float) -> None:
        """The same with new sessions for so many seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await self.run(sessions, turns, until=until)

    async def _fill(self, turns: int, until: float) -> None:
        name = f"{self._prefix}-{next(self._numbers):05d}"
        async with Caller(self._port) as caller:
            await create(caller, name, WINDOW)
        numbers, callers = iter(range(turns)), 1 if self._with_usage else CALLERS
        said = await asyncio.gather(*(self._talk(name, numbers, until) for _ in range(callers)))
        async with Caller(self._port) as caller:
            await self.check(caller, name, sum(said))

    async def _talk(self, name: str, numbers: Iterator[int], until: float) -> int:
        said = 0
        async with Caller(self._port) as caller:
            for number in numbers:
                for messages in _posts(name, number):
                    await self._post(caller, name, messages)
                    said += len(messages)
                self.done["turns"] += 1
                if time.monotonic() > until:
                    break
        return said

    async def _post(self, caller: Caller, name: str, messages: list[Raw]) -> None:
        """Append messages. With usage a reply comes later than what it answers, as from a model that takes its time."""
        path = f"/v1/sessions/{name}/messages"
        if not self._with_usage:
            await caller.post(path, {"messages": messages})
            return
        *asked, reply = messages
        await caller.post(path, {"messages": asked})
        tokens = (await caller.get(f"/v1/sessions/{name}/context"))["tokens"]
        await asyncio.sleep(_REPLY_SECONDS * Random(f"{name} {tokens}").random())
        usage = {"prompt_tokens": tokens + _HIDDEN_TOKENS, "completion_tokens": 50}
        await caller.post(path, {"messages": [reply], "usage": usage})

    async def check(self, caller: Caller, name: str, said: int) -> None:
        """`Wrong` when a message is missing, or when a compaction came that nothing asked for."""
        history = await caller.get(f"/v1/sessions/{name}/history")
        demand(history["total"] == said, f"{name}: {said} messages were sent, {history['total']} are there")
        budget = (await caller.get(f"/v1/sessions/{name}"))["usage"]["budget_tokens"]
        reports = await _reports(caller, name)
        self.done["compactions"] += len(reports)
        for report in reports:
            self._check_level(name, report, budget)
        for first, second in pairwise(history["compactions"]):
            demand(
                first["message"] < second["message"],
                f"{name}: two compactions behind message {first['message']}: {first} and {second}",
            )

    def _check_level(self, name: str, report: Raw, budget: int) -> None:
        level, before = report["level"], report["tokens_before"]
        self.done[f"{level} compactions"] += 1
        messages = f"{name}: a compaction at level {level} of {before:,} of {budget:,} tokens ({report['reason']})"
        demand(level in _THRESHOLDS, messages)
        demand(before >= (_THRESHOLDS[level] - _TOLERANCE) * budget, messages)


async def _reports(caller: Caller, name: str) -> list[Raw]:
    """The reports of all compactions of a session, in order."""
    found: list[Raw] = []
    path = more = f"/v1/sessions/{name}/compactions"
    while more:
        page = await caller.get(more)
        found += page["compactions"]
        more = f"{path}?after={page['next']}" if page["next"] else ""
    return found


def _posts(name: str, number: int) -> list[list[Raw]]:
    """The requests of one turn: what the user says with the call, then the result with the answer."""
    dice, call_id = Random(f"{name} {number}"), f"call_{number}"
    shown = "\n".join(
        f"src/{name}/part_{number}_{line}.py:{dice.randint(1, 900)}: value_{dice.randint(1, 99999)} is not used"
        for line in range(dice.randint(20, 260))
    )
    call = {"name": "lint", "arguments": f'{{"path": "src/{name}/part_{number}"}}'}
    return [
        [
            {"role": "user", "content": f"Request {number}: what does lint say of part {number} of {name}?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "type": "function", "function": call}],
            },
        ],
        [
            {"role": "tool", "tool_call_id": call_id, "content": shown},
            {"role": "assistant", "content": f"Part {number} of {name} has {len(shown.splitlines())} complaints."},
        ],
    ]
