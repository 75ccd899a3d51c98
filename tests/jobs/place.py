"""A place where jobs rest, sessions that queue them, and engines that can be held, hurried and made to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from context_compactor.protocols import Store
from context_compactor.sessions.core import Clock, wall_clock
from context_compactor.sessions.events import Bus
from context_compactor.sessions.jobs.leases import WorkerTiming
from context_compactor.sessions.jobs.runner import JobRunner
from context_compactor.sessions.jobs.schedule import Schedule
from context_compactor.sessions.jobs.worker import WorkerPool
from context_compactor.sessions.session import Session
from context_compactor.store.connect import connect
from context_compactor.store.events import Event
from context_compactor.store.rows import Job
from context_compactor.store.service_store import service_store_of
from tests.sessions.talk import count, opened

QUICK = WorkerTiming(lease=60.0, beat=0.5, poll=0.01, watch=0.02)
WINDOW = 6_000


class Ticking:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 10, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Scripted(JobRunner):
    """Does jobs as always, but first whatever a test wants."""

    def __init__(self, *given: Any, before: Callable[[Job], None], **options: Any) -> None:
        super().__init__(*given, **options)
        self._before = before

    def do(self, job: Job) -> None:
        self._before(job)
        super().do(job)


class Place:
    """One store as seen by one process: its own connection, bus and service store."""

    def __init__(self, url: str, clock: Clock = wall_clock) -> None:
        self.url = url
        self.store: Store = connect(url)
        self.service_store = service_store_of(self.store)
        self.clock = clock
        self.bus = Bus()
        self.heard: list[Event] = []
        self.bus.subscribe(self.heard.append)

    def close(self) -> None:
        self.store.close()

    def session(self, session_id: str = "a", **settings: Any) -> Session:
        """A session that leaves its work to jobs."""
        return opened(
            self.store,
            session_id,
            window=WINDOW,
            bus=self.bus,
            clock=self.clock,
            schedule=Schedule(self.service_store),
            **settings,
        )

    def work(self, before: Callable[[Job], None] = lambda job: None, **more: Any) -> Scripted:
        return Scripted(
            self.store, self.service_store, bus=self.bus, clock=self.clock, count_tokens=count, before=before, **more
        )

    @contextmanager
    def engine(
        self,
        before: Callable[[Job], None] = lambda job: None,
        *,
        workers: int = 2,
        pace: WorkerTiming = QUICK,
        **more: Any,
    ) -> Iterator[WorkerPool]:
        """An engine that runs; at the end it is stopped."""
        work = self.work(before, **more)
        engine = WorkerPool(
            self.store, self.service_store, workers=workers, bus=self.bus, clock=self.clock, pace=pace, work=work
        )
        engine.start()
        try:
            yield engine
        finally:
            engine.stop(finish=False)

    def told(self, *types: str) -> list[Event]:
        return [event for event in self.heard if event.type in types]

    def jobs(self, session_id: str = "a") -> list[Job]:
        """All jobs of a session, oldest first."""
        return self.service_store.jobs.newest(session_id=session_id)[::-1]


def fill(session: Session, share: float) -> None:
    """Append turns, all at once, until so much of the budget is used."""
    usage = session.usage()
    first = len(session.history())
    wanted = round(share * usage.budget_tokens) - usage.tokens
    batch: list[dict[str, Any]] = []
    while wanted > 260:
        batch += turn(first + len(batch), 200)
        wanted = round(share * usage.budget_tokens) - usage.tokens - weight(batch)
    batch += turn(first + len(batch), max(wanted, 30))
    session.append(batch)


def turn(number: int, tokens: int) -> list[dict[str, Any]]:
    """A question and an answer of about so many tokens together."""
    asked = f"Request {number}: what does compute_{number} in src/part_{number}.py do?"
    words = " ".join(f"It returns value_{number * 31 + at} of part_{at}_{number}." for at in range(tokens // 4 + 1))
    return [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": words[: max(tokens * 4 - len(asked) - 24, 8)]},
    ]


def weight(batch: list[dict[str, Any]]) -> int:
    return sum(count(raw["content"]) + 4 for raw in batch)
