"""Queueing jobs: after an append, again when one has finished, and cancelling those a user does not want."""

from __future__ import annotations

from msgspec import structs

from context_compactor.engine.report import Report
from context_compactor.errors import JobLost
from context_compactor.protocols import ServiceStore
from context_compactor.sessions.append import AppendOutcome, is_left_to_jobs, measure_now, with_level_answered
from context_compactor.sessions.automatic import emit_crossing, emit_queued
from context_compactor.sessions.core import Core
from context_compactor.sessions.state import SessionState, read_session_state
from context_compactor.settings import Level
from context_compactor.store.rows import Job, SessionRow, timestamp
from context_compactor.tokens.budget import Trigger, with_token_limit


class Schedule:
    """Give it to `Session.open`: what the session would do by itself becomes jobs in a store, all but emergencies."""

    def __init__(self, service_store: ServiceStore) -> None:
        self._service_store = service_store

    def __call__(self, core: Core, outcome: AppendOutcome) -> AppendOutcome:
        """Queue what is to be done; the outcome with the jobs that are new. What waits or runs already is left out."""
        jobs, queued = self._service_store.jobs, list[Job | None]()
        if is_left_to_jobs(core, outcome):
            level = outcome.trigger.level if outcome.trigger else None
            queued.append(jobs.queue_level(core.id, level or "", core.now()))
        if outcome.is_extraction_due:
            queued.append(jobs.queue(core.id, "extract", now=core.now()))
        queued.append(queue_idle(core, self._service_store))
        return structs.replace(outcome, jobs=tuple(job for job in queued if job))


def queue_idle(core: Core, service_store: ServiceStore) -> Job | None:
    """Work for when the session has been quiet for as long as its settings say.

    While such a job is known to wait nothing is asked for: when it is due it sees whether it was quiet.
    """
    now, settings = core.now(), core.settings
    has_work = settings.extract_facts or (settings.summarizer and settings.summarize_ahead)
    if now < core.idle_due_at or settings.idle_seconds <= 0 or not has_work or not settings.enabled:
        return None
    core.idle_due_at = timestamp(core.clock(), settings.idle_seconds)
    return service_store.jobs.queue(core.id, "idle", now=now, due_at=core.idle_due_at)


def finish_and_requeue(
    core: Core, service_store: ServiceStore, job: Job, before: SessionRow, report: Report | None, reason: str
) -> None:
    """Mark a compaction's job done and queue the next one if a level is reached, both in one transaction.

    `before` is the session as it was when the job began. `JobLost` when somebody else has the job by now.
    """
    queued, trigger = None, None
    with core.writing() as row:
        done = service_store.jobs.finish(job, core.now(), reason)
        if done is None:
            raise JobLost(f"job {job.id}: another worker has taken it over")
        if _may_need_another(core, done, before, row, report):
            state, trigger = measure_now(core, row)
            queued = _requeue(core, service_store, state, trigger) if trigger else None
    if trigger is not None and queued is not None:
        emit_crossing(core, trigger)
        emit_queued(core, (queued,))


def _may_need_another(core: Core, done: Job, before: SessionRow, row: SessionRow, report: Report | None) -> bool:
    """Whether a level may be reached that nobody has answered.

    Somebody asked meanwhile, or messages came while the context was made anew, and count as known since. A compaction
    that could not leave its level itself is not tried again until the context has grown.
    """
    if not (core.settings.enabled and core.settings.automatic):
        return False
    came_late = row.view != before.view and row.messages != before.messages
    return done.is_asked_again or (came_late and not _could_not_leave_level(core, report))


def _could_not_leave_level(core: Core, report: Report | None) -> bool:
    if report is None or not report.changed:
        return False
    budget = core.budget(core.counter(core.dialect())).tokens
    levels = with_token_limit(core.settings.levels, core.settings.model_auto_compact_token_limit, budget)
    return report.tokens_after >= min(rule.threshold for rule in levels) * budget


def _requeue(core: Core, service_store: ServiceStore, state: SessionState, trigger: Trigger) -> Job | None:
    """A job for the level that is reached. An emergency stays armed too, for the next message to answer at once."""
    known = [rule.level for rule in core.settings.levels if rule.level is not Level.EMERGENCY]
    if trigger.level is not Level.EMERGENCY:
        core.save(with_level_answered(state, trigger))
    else:
        core.save(structs.replace(state, share=0.0, fired=""))
    level = trigger.level if trigger.level in known else known[-1] if known else None
    return service_store.jobs.queue_level(core.id, level, core.now()) if level else None


_REASON = "cancelled"


def cancel_compactions(core: Core, service_store: ServiceStore) -> list[Job]:
    """Drop the compactions of a session that are being done. Their workers notice it at the next heartbeat.

    One that was committed by then stands. As after any cancel, the level is answered again after a wait.
    """
    with core.writing() as row:
        running = [job for job in service_store.jobs.open(core.id) if job.kind == "compact" and job.state == "running"]
        dropped = [job for job in running if service_store.jobs.drop(job, core.now(), _REASON)]
        if dropped:
            core.save(structs.replace(read_session_state(row.state), failed_at=core.seconds()))
    for job in dropped:
        core.emit("job.dropped", job=job.id, what=job.kind, attempt=job.attempts, level=job.level, reason=_REASON)
        core.emit("compaction.refused", level=job.level, reason=_REASON)
    return dropped
