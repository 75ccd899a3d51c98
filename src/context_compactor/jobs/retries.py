"""What becomes of a job that could not be done: tried again after a growing wait, then dropped."""

from __future__ import annotations

from typing import Any

from context_compactor.errors import CompactorError, UnknownSession
from context_compactor.events.bus import Bus
from context_compactor.events.event import EventType, make_event
from context_compactor.jobs.work import SessionWork
from context_compactor.protocols import Desk
from context_compactor.session.core import Clock
from context_compactor.settings import Settings
from context_compactor.store.desk_rows import Job, timestamp


class Retries:
    """Ends attempts that failed. Of two who end the same attempt, one does, and tells it."""

    def __init__(self, desk: Desk, work: SessionWork, bus: Bus, clock: Clock) -> None:
        self._desk = desk
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
        """After an attempt whose worker was not heard of any more."""
        self._again(job, self._settings(job).retry_attempts, 0.0, f"the worker {job.worker} stopped answering")

    def returned(self, job: Job) -> None:
        """After an attempt that was broken off because its engine stops: it never was."""
        self._desk.jobs.put_back(job, timestamp(self._clock()), "its engine was stopped", is_counted=False)

    def _again(self, job: Job, most: int, wait: float, reason: str) -> None:
        if job.attempts >= most:
            self._drop(job, reason)
            return
        waits = self._desk.jobs.put_back(job, timestamp(self._clock(), wait), reason)
        if waits is not None:
            self._tell("job.retried", waits, attempt=waits.attempts, due_at=waits.due_at)

    def _drop(self, job: Job, reason: str) -> None:
        try:
            dropped = self._work.give_up(job, reason)
        except CompactorError:  # its session is gone, or can no longer be opened as it is
            dropped = self._desk.jobs.drop(job, timestamp(self._clock()), reason)
        if dropped is not None:
            self._tell("job.dropped", dropped, attempt=dropped.attempts)

    def _settings(self, job: Job) -> Settings:
        try:
            return self._work.settings(job)
        except CompactorError:  # how often to try is no reason not to try
            return Settings()

    def _tell(self, kind: EventType, job: Job, **more: Any) -> None:
        payload = {"job": job.id, "what": job.kind, "level": job.level, "reason": job.reason, **more}
        self._bus.emit(make_event(kind, job.session_id, payload, self._clock()))
