"""What each kind of job does to its session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import Lock

from context_compactor.engine.request import CompactionRequest
from context_compactor.errors import JobLost
from context_compactor.protocols import ServiceStore, Store
from context_compactor.sessions.archive import archive_early
from context_compactor.sessions.automatic import compact_when_due, remember_failure
from context_compactor.sessions.core import Clock, Core
from context_compactor.sessions.events import Bus
from context_compactor.sessions.facts import prepare_compaction
from context_compactor.sessions.jobs.schedule import finish_and_requeue, queue_idle
from context_compactor.sessions.lifecycle import continue_core
from context_compactor.sessions.state import read_profile
from context_compactor.sessions.summaries import presummarize
from context_compactor.settings import Level, Settings, load_settings
from context_compactor.store.rows import Job, timestamp
from context_compactor.summarize.model import raise_if_stopped
from context_compactor.summarize.summarizer import ModelSummarizer
from context_compactor.tracing import run_in_span


class JobRunner:
    """Does jobs on the sessions of a store. Several threads may do so at once, each another job."""

    def __init__(
        self,
        store: Store,
        service_store: ServiceStore,
        *,
        bus: Bus,
        clock: Clock,
        count_tokens: Callable[[str], int] | None = None,
        summarizer: ModelSummarizer | None = None,
    ) -> None:
        self._store = store
        self._service_store = service_store
        self._bus = bus
        self._clock = clock
        self._count_tokens = count_tokens
        self._summarizer = summarizer
        self._open: dict[tuple[int, int], Core] = {}
        self._lock = Lock()

    def do(self, job: Job) -> None:
        """Do a job and mark it done, or raise. `JobLost` says that somebody else has it by now."""
        attributes = {"session_id": job.session_id, "kind": job.kind, "level": job.level, "attempt": job.attempts}
        run_in_span("job", job.trace, attributes, lambda: self._do(job))

    def _do(self, job: Job) -> None:
        with self._opened(job) as core:
            if job.kind == "compact":
                self._compact(core, job)
            elif job.kind == "extract":
                prepare_compaction(core, fewest=1)
                self._finish(core, job)
            else:
                self._work_in_quiet(core, job)

    def settings(self, job: Job) -> Settings:
        """The settings of the job's session."""
        return load_settings(read_profile(self._store.session(job.session_id).profile).settings).settings

    def give_up(self, job: Job, reason: str) -> Job | None:
        """Drop a job that failed too often; None when somebody else has it. A new one is made after a wait."""
        with self._opened(job) as core:
            with core.writing() as row:
                dropped = self._service_store.jobs.drop(job, core.now(), reason)
                if dropped and job.kind == "compact":
                    remember_failure(core, _ask(core, job), row)
            if dropped and job.kind == "compact":
                core.emit("compaction.failed", reason=reason, level=job.level or None)
        return dropped

    def cancel(self, job: Job) -> None:
        """End a model's call that a job waits for."""
        with self._lock:
            core = self._open.get(attempt_of(job))
        if core is not None:
            core.cancel()

    def delays_compaction(self, job: Job) -> bool:
        """Whether a job waits for a model whose summary comes too late: a compaction of its session waits for it."""
        return job.kind == "idle" and any(
            each.kind == "compact" for each in self._service_store.jobs.open(job.session_id)
        )

    @contextmanager
    def _opened(self, job: Job) -> Iterator[Core]:
        """The session of a job, which must be there; its `UnknownSession` is not worth a retry."""
        core = continue_core(job.session_id, self._store, self._bus, clock=self._clock, count_tokens=self._count_tokens)
        if self._summarizer is not None:
            core.use_summarizer(self._summarizer)
        with self._lock:
            self._open[attempt_of(job)] = core
        try:
            yield core
        finally:
            with self._lock:
                self._open.pop(attempt_of(job), None)

    def _compact(self, core: Core, job: Job) -> None:
        before = self._store.session(core.id)
        report = compact_when_due(core, _ask(core, job), Level(job.level) if job.level else None)
        reason = report.reason if report else "there was nothing left to do"
        finish_and_requeue(core, self._service_store, job, before, report, reason)

    def _work_in_quiet(self, core: Core, job: Job) -> None:
        """Prepare the next compaction, or wait again when the session was not quiet. What comes meanwhile gets a job
        of its own."""
        before = self._store.session(core.id)
        quiet_at = timestamp(datetime.fromisoformat(before.updated_at), core.settings.idle_seconds)
        if core.now() < quiet_at:
            self._service_store.jobs.put_back(job, quiet_at, "", is_counted=False)
            return
        archive_early(core)
        prepare_compaction(core)
        self._presummarize(core, job)
        with core.writing() as row:
            self._finish(core, job)
            if row.messages != before.messages:
                queue_idle(core, self._service_store)

    def _presummarize(self, core: Core, job: Job) -> None:
        """Index the archive and have older turns summarized, if there is a model; what a stop ends is redone later."""
        with core.running.begin("preparation") as control:
            core.index(control)
            presummarize(core, control)
            if not self.delays_compaction(job):
                raise_if_stopped(control)

    def _finish(self, core: Core, job: Job) -> None:
        if self._service_store.jobs.finish(job, core.now()) is None:
            raise JobLost(f"job {job.id}: another worker has taken it over")


def attempt_of(job: Job) -> tuple[int, int]:
    """The key of one attempt at a job; the next may begin before the first has noticed that it lost the job."""
    return job.id, job.attempts


def _ask(core: Core, job: Job) -> CompactionRequest:
    return core.ask(level=Level(job.level) if job.level else Level.SOFT, kind="threshold")
