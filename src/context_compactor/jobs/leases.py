"""Leases: a sign of life for the jobs that are held here, and an eye on those whose holder gives none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from context_compactor.errors import StoreError
from context_compactor.jobs.retries import Retries
from context_compactor.jobs.values import Pace
from context_compactor.jobs.work import SessionWork, attempt_of
from context_compactor.protocols import Desk
from context_compactor.session.core import Clock
from context_compactor.store.desk_rows import Job, timestamp

_log = logging.getLogger("context_compactor")


class Leases:
    """The jobs that one engine holds."""

    def __init__(self, desk: Desk, work: SessionWork, retries: Retries, clock: Clock, pace: Pace) -> None:
        self._desk = desk
        self._work = work
        self._retries = retries
        self._clock = clock
        self._pace = pace
        self._held: dict[tuple[int, int], Job] = {}
        self._lock = Lock()

    def claim(self, worker: str) -> Job | None:
        """The next job, held from now on; None when there is none."""
        now = self._clock()
        return self._desk.jobs.claim(worker, timestamp(now), timestamp(now, self._pace.lease))

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
        """Give a sign of life. A job that was given to somebody else, or is in the way, waits for no model."""
        known = sorted(self.held(), key=attempt_of)
        still = self._desk.jobs.extend(known, timestamp(self._clock(), self._pace.lease)) if known else set()
        newest = {job.id: job for job in known}
        for job in known:
            if job.id not in still or newest[job.id] is not job or self._work.is_in_the_way(job):
                self._work.cancel(job)

    def free_lapsed(self) -> bool:
        """Let jobs whose holder gave no sign of life wait again, or drop them; whether there were any."""
        lapsed = self._desk.jobs.lapsed(timestamp(self._clock()))
        for job in lapsed:
            try:
                self._retries.lapsed(job)
            except StoreError:
                raise
            except Exception:  # noqa: BLE001  one that cannot be freed must not keep the others
                _log.exception("job %s of %r, whose worker is gone, cannot be freed", job.id, job.session_id)
        return bool(lapsed)
