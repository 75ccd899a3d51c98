"""The worker pool: threads that claim jobs from a store and run them, and the cleanup beside them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from threading import Condition, Event, Thread

from context_compactor.errors import BadSetting, CompactorError, JobLost, StoreError
from context_compactor.json_values import prepare_types
from context_compactor.protocols import ServiceStore, Store
from context_compactor.sessions.core import Clock, wall_clock
from context_compactor.sessions.events import Bus
from context_compactor.sessions.holders import process_name
from context_compactor.sessions.jobs.leases import (
    Heartbeat,
    Leases,
    Outage,
    Retries,
    WorkerPoolStatus,
    WorkerStage,
    WorkerTiming,
)
from context_compactor.sessions.jobs.runner import JobRunner, attempt_of
from context_compactor.sessions.lifecycle import clear_deleted, expire_old
from context_compactor.settings import load_settings
from context_compactor.store.rows import Job, timestamp
from context_compactor.store.service_store import clock_of, service_store_of


class RepeatingThread:
    """Calls `work` again and again, from `start` to `stop`; what it returns is how many seconds to wait."""

    def __init__(self, name: str, work: Callable[[], float]) -> None:
        self._work = work
        self._over = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin, with a call at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; what is being done is finished."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            self._over.wait(self._work())


_log = logging.getLogger("context_compactor")
_CLEANUP_SECONDS = 600.0


class Cleanup:
    """Deletes old jobs, events and answers, and sessions that nobody has used for `retention_days`.

    What a deletion has left behind whose process was killed goes too.
    """

    def __init__(self, store: Store, service_store: ServiceStore, clock: Clock) -> None:
        self._store = store
        self._service_store = service_store
        self._clock = clock

    def run(self) -> float:
        """Delete what is too old; the seconds until the next call."""
        try:
            self._service_store.delete_expired(self._clock())
            expire_old(self._store, load_settings().settings, self._clock)
            clear_deleted(self._store)
        except CompactorError as error:
            _log.warning("what is old cannot be deleted: %s", error)
        return _CLEANUP_SECONDS


WAKING_EVENTS = ("", "job.queued", "job.retried")
"""Events of other processes behind which there may be a job; "" stands for events that were missed."""

_MOST_WORKERS = 256
_PAUSE = 0.005
# How long jobs that were broken off may take to end.
_BREAK_OFF_SECONDS = 2.0


class WorkerPool:
    """Does the jobs of a store: of one session one after the other, of several side by side."""

    def __init__(
        self,
        store: Store,
        service_store: ServiceStore | None = None,
        *,
        workers: int = 2,
        bus: Bus | None = None,
        clock: Clock | None = None,
        pace: WorkerTiming = WorkerTiming(),  # noqa: B008  it is frozen
        work: JobRunner | None = None,
    ) -> None:
        if not 1 <= workers <= _MOST_WORKERS:
            raise BadSetting(f"workers: {workers!r} is not a number of workers; use 1 to {_MOST_WORKERS}")
        self.service_store = service_store_of(store) if service_store is None else service_store
        self.bus = bus or Bus()
        self.name = process_name()
        self._work = work or JobRunner(store, self.service_store, bus=self.bus, clock=clock or wall_clock)
        self._clock = clock = clock or clock_of(store) or wall_clock
        self._retries = Retries(self.service_store, self._work, self.bus, clock)
        self._pace = pace
        self._changed = Condition()
        self._wakes = self._at_work = 0
        self._stage = WorkerStage.WORKING
        self._outage = Outage()
        self._leases = Leases(self.service_store, self._work, self._retries, clock, pace)
        self._threads = [Thread(target=self._serve, args=(at,), name=f"job {at}", daemon=True) for at in range(workers)]
        self._cleanup = RepeatingThread("cleanup", Cleanup(store, self.service_store, clock).run)
        self._heartbeat = RepeatingThread("job leases", Heartbeat(self._leases, self._outage, pace, self.wake).beat)
        self._unsubscribe: Callable[[], None] = lambda: None

    # From outside

    def start(self) -> None:
        """Begin. Jobs that wait in the store from before are picked up too."""
        prepare_types()
        self._unsubscribe = self.bus.subscribe(lambda _: self.wake(), types=("job.queued",))
        self._at_work = len(self._threads)
        for thread in self._threads:
            thread.start()
        self._heartbeat.start()
        self._cleanup.start()

    def wake(self) -> None:
        """Look for jobs now, not at the next poll."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def stop(self, *, finish: bool = True, timeout: float = 30.0) -> None:
        """Begin nothing more. Jobs under way are finished, within `timeout` seconds; the rest is returned.

        Without `finish`, and after the time, a model's call is ended, and the job waits for another worker as if it
        had never been begun. A second time does nothing.
        """
        self._enter(WorkerStage.STOPPING)
        self._wait_for_threads(timeout if finish else 0.0, WorkerStage.RETURNING)
        self.hurry()
        self._wait_for_threads(_BREAK_OFF_SECONDS, WorkerStage.OVER)
        for job in self._leases.held():
            self._note(job, None)
        self._enter(WorkerStage.OVER)
        self._heartbeat.stop()
        self._cleanup.stop()
        self._unsubscribe()

    def hurry(self) -> None:
        """While `stop` waits: do not wait for the jobs under way any longer, but return them."""
        self._enter(WorkerStage.RETURNING)
        for job in self._leases.held():
            self._work.cancel(job)

    def cancel(self, jobs: Collection[Job]) -> list[Job]:
        """End those of some jobs that are done here, whoever has dropped them; which they are.

        One may only be about to begin: ask again until there is none left.
        """
        wanted = set(map(attempt_of, jobs))
        ours = [job for job in self._leases.held() if attempt_of(job) in wanted]
        for job in ours:
            self._work.cancel(job)
        return ours

    def wait_idle(self, timeout: float) -> bool:
        """Wait until no job of the store runs and none is due; False when that takes longer than `timeout` seconds."""
        give_up = time.monotonic() + timeout
        while not (self._is_idle() and self._is_idle()):  # what came due during the first check is seen by the second
            if time.monotonic() > give_up:
                return False
            time.sleep(_PAUSE)
        return True

    def _is_idle(self) -> bool:
        """A job that is over in the store is held here until its events are emitted."""
        return self.service_store.jobs.is_idle(timestamp(self._clock())) and not self._leases.held()

    def status(self) -> WorkerPoolStatus:
        """What it is doing."""
        running = tuple(self._leases.held())
        return WorkerPoolStatus(
            self.name, len(self._threads), self._stage > WorkerStage.WORKING, running, self.service_store.jobs.counts()
        )

    def _enter(self, stage: WorkerStage) -> None:
        with self._changed:
            self._stage = max(stage, self._stage)
            self._changed.notify_all()

    def _wait_for_threads(self, seconds: float, stage: WorkerStage) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._at_work or self._stage >= stage, seconds)

    # Threads

    def _serve(self, at: int) -> None:
        try:
            while (job := self._next(f"{self.name}:{at}")) is not None:
                with self._leases.holding(job):
                    self._do(job)
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def _next(self, worker: str) -> Job | None:
        while self._stage is WorkerStage.WORKING:
            wakes = self._wakes
            job = self._claim(worker)
            if job is not None:
                return job
            self._wait(wakes)
        return None

    def _wait(self, wakes: int) -> None:
        seconds = max(self._pace.poll, self._outage.wait)
        with self._changed:
            self._changed.wait_for(lambda: self._stage > WorkerStage.WORKING or self._wakes != wakes, seconds)

    def _claim(self, worker: str) -> Job | None:
        try:
            job = self._leases.claim(worker)
        except StoreError as error:  # what is there now will be there the next time
            self._outage.begin(error)
            return None
        self._outage.end()
        return job

    def _do(self, job: Job) -> None:
        try:
            self._work.do(job)
        except JobLost as error:
            _log.info("%s", error)
        except Exception as error:  # noqa: BLE001  whatever a job raises is an attempt that failed, and is emitted
            self._note(job, error)

    def _note(self, job: Job, error: Exception | None) -> None:
        """After an attempt that failed, or that is broken off because the pool stops.

        A store that is away is waited for: until then the job is held.
        """
        while not self._noted(job, error):
            self._wait(self._wakes)

    def _noted(self, job: Job, error: Exception | None) -> bool:
        """Whether that is done, or cannot be, so that the job's lease will lapse."""
        try:
            if error is None or self._stage >= WorkerStage.RETURNING:
                self._retries.returned(job)
            else:
                self._retries.failed(job, error)
        except Exception as second:  # noqa: BLE001  the thread must live on
            if isinstance(second, StoreError) and self._stage is WorkerStage.WORKING:
                self._outage.begin(second)
                return False
            _log.warning("job %s ended (%s), and this could not be noted: %r", job.id, error or "stopped", second)
        return True
