"""Dropping what a user does not want: compactions that jobs are at, in whichever process."""

from __future__ import annotations

from msgspec import structs

from context_compactor.protocols import Desk
from context_compactor.session.core import Core
from context_compactor.session.values import read_state
from context_compactor.store.desk_rows import Job

_REASON = "cancelled"


def drop_compactions(core: Core, desk: Desk) -> list[Job]:
    """Drop the compactions of a session that are being done. Their workers hear of it at the next sign of life.

    One that was committed by then stands. As after any cancel, the level is answered again after a wait.
    """
    with core.writing() as row:
        running = [job for job in desk.jobs.open(core.id) if job.kind == "compact" and job.state == "running"]
        dropped = [job for job in running if desk.jobs.drop(job, core.now(), _REASON)]
        if dropped:
            core.save(structs.replace(read_state(row.state), failed_at=core.seconds()))
    for job in dropped:
        told = {"level": job.level, "reason": _REASON}
        core.emit("job.dropped", job=job.id, what=job.kind, attempt=job.attempts, **told)
        core.emit("compaction.refused", **told)
    return dropped
