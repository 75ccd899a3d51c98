"""The sender: tells webhooks of events, each in order, several side by side, at least once.

What is yet to be told are rows of the desk. Whoever sends one holds it for half a minute; when that server dies,
another one sends it. A receiver that has seen an event knows it by its id.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from context_compactor import __version__
from context_compactor.errors import BadSetting
from context_compactor.events.bus import Bus
from context_compactor.events.event import make_event
from context_compactor.protocols import Desk
from context_compactor.server.frames import outside
from context_compactor.server.posting import NoAnswer, post
from context_compactor.server.scope import Scope
from context_compactor.server.signing import signed_headers
from context_compactor.server.targets import Lookup, find_address, look_up, read_target
from context_compactor.session.core import wall_clock
from context_compactor.session.holding import new_name
from context_compactor.store.desk_rows import Attempt, Delivery, Webhook, namespace_of, timestamp

_log = logging.getLogger("context_compactor")
_AT_ONCE = 16
_POLL_SECONDS = 1.0
_ANSWER_SECONDS = 10.0
_LEASE_SECONDS = 30.0
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 3600.0
MOST_FAILURES = 12
"""So many in a row, within about two and a half hours, and a webhook is told nothing more."""
_GONE = 410
_STOP_SECONDS = 3.0

Run = Callable[[Callable[[], Any]], Awaitable[Any]]


class Sender:
    """Sends what webhooks are yet to be told. `counts` has how often that went how."""

    def __init__(
        self, desk: Desk, bus: Bus, run: Run, *, store_path: str, allow_private: bool, lookup: Lookup = look_up
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.first_wait = _FIRST_WAIT
        self.poll_seconds = _POLL_SECONDS
        self.answer_seconds = _ANSWER_SECONDS
        self._desk = desk
        self._bus = bus
        self._run = run
        self._store_path = store_path
        self._allow_private = allow_private
        self.lookup = lookup
        self._name = new_name()
        self._nudged = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with what waits from before too. Call it in the event loop."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def nudge(self) -> None:
        """There may be something to send."""
        self._nudged.set()

    async def stop(self) -> None:
        """Begin nothing more; what does not end soon is sent again by whoever comes next."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=_STOP_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _serve(self) -> None:
        is_ill = False
        while True:
            self._nudged.clear()
            try:
                await self._begin()
                is_ill = False
            except Exception as error:  # noqa: BLE001  what is owed now is owed at the next look
                if not is_ill:
                    _log.warning("deliveries cannot be looked for, which is tried until it works: %r", error)
                is_ill = True
            with suppress(TimeoutError):
                async with asyncio.timeout(self.poll_seconds):
                    await self._nudged.wait()

    async def _begin(self) -> None:
        while len(self._under_way) < _AT_ONCE:
            now = wall_clock()
            until = timestamp(now, _LEASE_SECONDS)
            delivery = await self._run(lambda: self._desk.webhooks.claim(self._name, timestamp(now), until))  # noqa: B023
            if delivery is None:
                return
            task = asyncio.create_task(self._deliver(delivery))
            self._under_way.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._nudged.set()
        if not task.cancelled() and task.exception() is not None:  # its lease will lapse
            _log.warning("a delivery could not be ended: %s", task.exception())

    async def _deliver(self, delivery: Delivery) -> None:
        webhook = await self._run(lambda: self._webhook(delivery))
        if webhook is None:
            return  # it was removed meanwhile, and what it was yet to be told with it
        try:
            status = await self._post(webhook, delivery)
            reason = "" if 200 <= status < 300 else _objection(status)
        except (NoAnswer, BadSetting, OSError) as error:
            status, reason = 0, str(error) or "its name was not resolved in time"
        await self._run(lambda: self._note(webhook, delivery, status, reason))

    def _webhook(self, delivery: Delivery) -> Webhook | None:
        return self._desk.webhooks.find(delivery.webhook, namespace_of(delivery.kept.event.session_id))

    async def _post(self, webhook: Webhook, delivery: Delivery) -> int:
        event = delivery.kept.event
        target = read_target(webhook.url, allow_private=self._allow_private)
        async with asyncio.timeout(self.answer_seconds):
            address = await find_address(target, self.lookup, allow_private=self._allow_private)
        body = outside(event, Scope(webhook.namespace), self._store_path)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"context-compactor/{__version__}",
            **signed_headers(webhook.secret, event.id, int(wall_clock().timestamp()), body),
        }
        return await post(target, address, headers, body, self.answer_seconds)

    def _note(self, webhook: Webhook, delivery: Delivery, status: int, reason: str) -> None:
        """Keep what came of an attempt. After too many that failed the webhook is disabled, and that is told."""
        event, now = delivery.kept.event, wall_clock()
        is_over = False
        with self._desk.writing():
            self._desk.attempts.add(
                Attempt(webhook.id, event.id, event.type, delivery.attempts, timestamp(now), status, reason)
            )
            if not reason:
                self._desk.webhooks.delivered(delivery)
            else:
                due_at = timestamp(now, self._wait(delivery.attempts))
                failures = self._desk.webhooks.failed(delivery, due_at, reason)
                is_over = failures >= MOST_FAILURES or status == _GONE
            if is_over:
                self._desk.webhooks.disable(webhook.id, timestamp(now), reason)
        self.counts["failed" if reason else "delivered"] += 1
        if is_over:
            self._tell_disabled(webhook, delivery, reason)

    def _wait(self, attempts: int) -> float:
        """A wait that doubles each time, a little different for each, so that not all come back at once."""
        return min(self.first_wait * 2.0 ** (min(attempts, 30) - 1), _LONGEST_WAIT) * random.uniform(0.9, 1.1)

    def _tell_disabled(self, webhook: Webhook, delivery: Delivery, reason: str) -> None:
        self.counts["disabled"] += 1
        payload = {"what": "webhook", "webhook": webhook.id, "attempt": delivery.attempts, "reason": reason}
        self._bus.emit(make_event("job.dropped", Scope(webhook.namespace).prefix, payload, wall_clock()))


def _objection(status: int) -> str:
    return f"it answered {status}" + (", and redirects are not followed" if 300 <= status < 400 else "")
