"""A finished job looks again: what came while it ran, and was not asked for because it ran, is asked for now."""

from __future__ import annotations

from msgspec import structs

from context_compactor.errors import JobLost
from context_compactor.levels import Level
from context_compactor.measure.triggers import Trigger, with_token_limit
from context_compactor.protocols import Desk
from context_compactor.report import Report
from context_compactor.session.automatic import tell_crossing, tell_queued
from context_compactor.session.core import Core
from context_compactor.session.values import State
from context_compactor.session.watch import answered, measured
from context_compactor.store.desk_rows import Job
from context_compactor.store.rows import SessionRow


def look_again(core: Core, desk: Desk, job: Job, before: SessionRow, report: Report | None, reason: str) -> None:
    """Mark a compaction's job done and queue the next one if a level is reached, both in one transaction.

    `before` is the session as it was when the job began. `JobLost` when somebody else has the job by now.
    """
    queued, trigger = None, None
    with core.writing() as row:
        done = desk.jobs.finish(job, core.now(), reason)
        if done is None:
            raise JobLost(f"job {job.id}: somebody else has it by now")
        if _may_be_unseen(core, done, before, row, report):
            state, trigger = measured(core, row)
            queued = _queue(core, desk, state, trigger) if trigger else None
    if trigger is not None and queued is not None:
        tell_crossing(core, trigger)
        tell_queued(core, (queued,))


def _may_be_unseen(core: Core, done: Job, before: SessionRow, row: SessionRow, report: Report | None) -> bool:
    """Whether a level may be reached that nobody has answered.

    Somebody asked meanwhile, or messages came while the context was made anew, and count as known since. A compaction
    that could not leave its level itself is not tried again until the context has grown.
    """
    if not (core.settings.enabled and core.settings.automatic):
        return False
    came_late = row.view != before.view and row.messages != before.messages
    return done.is_asked_again or (came_late and not _is_stuck(core, report))


def _is_stuck(core: Core, report: Report | None) -> bool:
    if report is None or not report.changed:
        return False
    budget = core.budget(core.counter(core.dialect())).tokens
    levels = with_token_limit(core.settings.levels, core.settings.model_auto_compact_token_limit, budget)
    return report.tokens_after >= min(rule.threshold for rule in levels) * budget


def _queue(core: Core, desk: Desk, state: State, trigger: Trigger) -> Job | None:
    """A job for the level that is reached. An emergency stays armed too, for the next message to answer at once."""
    known = [rule.level for rule in core.settings.levels if rule.level is not Level.EMERGENCY]
    if trigger.level is not Level.EMERGENCY:
        core.save(answered(state, trigger))
    else:
        core.save(structs.replace(state, share=0.0, fired=""))
    level = trigger.level if trigger.level in known else known[-1] if known else None
    return desk.jobs.queue_level(core.id, level, core.now()) if level else None
