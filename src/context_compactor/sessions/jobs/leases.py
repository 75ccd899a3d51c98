"""Leases on jobs: heartbeats, lapsed leases, retries, and store outages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from threading import Lock
from typing import Any

from msgspec import Struct

from context_compactor.errors import BadSetting, CompactorError, StoreError, UnknownSession
from context_compactor.protocols import ServiceStore
from context_compactor.sessions.core import Clock
from context_compactor.sessions.events import Bus
from context_compactor.sessions.jobs.runner import JobRunner, attempt_of
from context_compactor.settings import Settings
from context_compactor.store.events import EventType, make_event
from context_compactor.store.rows import Job, timestamp


class WorkerTiming(Struct, frozen=True):
    """The intervals of a worker pool, in seconds.

    `lease` is how long a job is held without a heartbeat, `beat` how often there is one, `poll` how often an idle
    thread looks for jobs of other processes, and `watch` how often for those of dead ones.
    """

    lease: float = 15.0
    beat: float = 5.0
    poll: float = 0.5
    watch: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.beat < self.lease or self.poll <= 0 or self.watch <= 0:
            raise BadSetting(
                f"pace: a lease of {self.lease:g} s with a beat of {self.beat:g} s, polls every {self.poll:g} s and "
                f"{self.watch:g} s. All must be above 0, and the beat shorter than the lease."
            )


class WorkerStage(IntEnum):
    """How far a pool has stopped: from doing all it can to doing nothing."""

    WORKING = 0
    STOPPING = 1
    RETURNING = 2
    OVER = 3


class WorkerPoolStatus(Struct, frozen=True):
    """What a pool is doing: the jobs it runs itself, and how many there are in the store by kind and state."""

    name: str
    workers: int
    is_stopping: bool
    running: tuple[Job, ...]
    counts: dict[tuple[str, str], int]

    @property
    def waiting(self) -> int:
        """Jobs in the store that nobody has begun."""
        return sum(count for (_, state), count in self.counts.items() if state == "waiting")


_log = logging.getLogger("context_compactor")
_LONGEST_WAIT = 5.0


class Outage:
    """Whether the store answers, for all threads of a pool."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._since: float | None = None

    @property
    def wait(self) -> float:
        """How many seconds to wait before the store is asked again: as long as it has been away, within limits."""
        since = self._since
        return 0.0 if since is None else min(time.monotonic() - since, _LONGEST_WAIT)

    def begin(self, error: StoreError) -> None:
        """The store did not answer. Only the first time is logged."""
        with self._lock:
            is_known, self._since = self._since is not None, self._since or time.monotonic()
        if not is_known:
            _log.warning("no job can be done, and it is tried again until it works: %s", error)

    def end(self) -> None:
        """The store has answered."""
        with self._lock:
            was_away, self._since = self._since is not None, None
        if was_away:
            _log.warning("the store answers again, and jobs go on")


class Retries:
    """Ends attempts that failed. Of two who end the same attempt, one does, and emits it."""

    def __init__(self, service_store: ServiceStore, work: JobRunner, bus: Bus, clock: Clock) -> None:
        self._service_store = service_store
        self._work = work
        self._bus = bus
        self._clock = clock

    def failed(self, job: Job, error: Exception) -> None:
        """After an attempt that raised."""
        if isinstance(error, UnknownSession):
            self._drop(job, "its session is no longer there")
            return
        reason = str(error) if isinstance(error, CompactorError) else f"{type(error).__name__}: {error}"
        settings = self._settings(job)
        self._again(job, settings.retry_attempts, settings.retry_delay_seconds * 2 ** (job.attempts - 1), reason)

    def lapsed(self, job: Job) -> None:
        """After an attempt whose worker sent no heartbeat any more."""
        self._again(job, self._settings(job).retry_attempts, 0.0, f"the worker {job.worker} stopped answering")

    def returned(self, job: Job) -> None:
        """After an attempt that was broken off because its pool stops: it does not count."""
        self._service_store.jobs.put_back(job, timestamp(self._clock()), "its worker was stopped", is_counted=False)

    def _again(self, job: Job, most: int, wait: float, reason: str) -> None:
        if job.attempts >= most:
            self._drop(job, reason)
            return
        waits = self._service_store.jobs.put_back(job, timestamp(self._clock(), wait), reason)
        if waits is not None:
            self._emit("job.retried", waits, attempt=waits.attempts, due_at=waits.due_at)

    def _drop(self, job: Job, reason: str) -> None:
        try:
            dropped = self._work.give_up(job, reason)
        except CompactorError:  # its session is gone, or can no longer be opened as it is
            dropped = self._service_store.jobs.drop(job, timestamp(self._clock()), reason)
        if dropped is not None:
            self._emit("job.dropped", dropped, attempt=dropped.attempts)

    def _settings(self, job: Job) -> Settings:
        try:
            return self._work.settings(job)
        except CompactorError:  # how often to try is no reason not to try
            return Settings()

    def _emit(self, kind: EventType, job: Job, **more: Any) -> None:
        payload = {"job": job.id, "what": job.kind, "level": job.level, "reason": job.reason, **more}
        self._bus.emit(make_event(kind, job.session_id, payload, self._clock()))


class Leases:
    """The jobs that one pool holds."""

    def __init__(
        self, service_store: ServiceStore, work: JobRunner, retries: Retries, clock: Clock, pace: WorkerTiming
    ) -> None:
        self._service_store = service_store
        self._work = work
        self._retries = retries
        self._clock = clock
        self._pace = pace
        self._held: dict[tuple[int, int], Job] = {}
        self._lock = Lock()

    def claim(self, worker: str) -> Job | None:
        """The next job, held from now on; None when there is none."""
        now = self._clock()
        return self._service_store.jobs.claim(worker, timestamp(now), timestamp(now, self._pace.lease))

    @contextmanager
    def holding(self, job: Job) -> Iterator[None]:
        """Until the end of the block the lease of a job is renewed.

        After a sleep of the machine the same job may be held here twice: by who lost it and by who was given it.
        """
        with self._lock:
            self._held[attempt_of(job)] = job
        try:
            yield
        finally:
            with self._lock:
                self._held.pop(attempt_of(job))

    def held(self) -> list[Job]:
        """The jobs that are done here now."""
        with self._lock:
            return list(self._held.values())

    def renew(self) -> None:
        """Renew all leases. A job that was given to somebody else, or delays a compaction, waits for no model."""
        known = sorted(self.held(), key=attempt_of)
        still = self._service_store.jobs.extend(known, timestamp(self._clock(), self._pace.lease)) if known else set()
        newest = {job.id: job for job in known}
        for job in known:
            if job.id not in still or newest[job.id] is not job or self._work.delays_compaction(job):
                self._work.cancel(job)

    def free_lapsed(self) -> bool:
        """Let jobs whose lease lapsed wait again, or drop them; whether there were any."""
        lapsed = self._service_store.jobs.lapsed(timestamp(self._clock()))
        for job in lapsed:
            try:
                self._retries.lapsed(job)
            except StoreError:
                raise
            except Exception:  # noqa: BLE001  one that cannot be freed must not keep the others
                _log.exception("job %s of %r, whose worker is gone, cannot be freed", job.id, job.session_id)
        return bool(lapsed)


class Heartbeat:
    """Renews and frees leases. `freed` is called when a job waits again whose holder is gone."""

    def __init__(self, leases: Leases, outage: Outage, pace: WorkerTiming, freed: Callable[[], None]) -> None:
        self._leases = leases
        self._outage = outage
        self._pace = pace
        self._freed = freed
        self._beat_at = time.monotonic()

    def beat(self) -> float:
        """Renew leases when it is time, and free what lapsed; the seconds until the next call."""
        try:
            if time.monotonic() >= self._beat_at:
                self._leases.renew()
                self._beat_at = time.monotonic() + self._pace.beat
            if self._leases.free_lapsed():
                self._freed()
            self._outage.end()
        except StoreError as error:
            self._outage.begin(error)
        return max(min(self._pace.watch, self._pace.beat), self._outage.wait)
