"""From a look at the gauge to jobs, in the transaction of the messages that were looked at."""

from __future__ import annotations

from msgspec import structs

from context_compactor.protocols import Desk
from context_compactor.session.core import Core
from context_compactor.session.watch import Watched, is_left_to_jobs
from context_compactor.store.desk_rows import Job, timestamp


class Schedule:
    """Give it to `Session.open`: what the session would do by itself becomes jobs in this desk, all but emergencies."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def __call__(self, core: Core, watched: Watched) -> Watched:
        """Queue what is to be done; the look with the jobs that are new. What waits or runs already is left out."""
        asked = (self._compact(core, watched), self._extract(core, watched), queue_idle(core, self._desk))
        return structs.replace(watched, jobs=tuple(job for job in asked if job))

    def _compact(self, core: Core, watched: Watched) -> Job | None:
        if not is_left_to_jobs(core, watched):
            return None
        level = watched.trigger.level if watched.trigger else None
        return self._desk.jobs.queue_level(core.id, level or "", core.now())

    def _extract(self, core: Core, watched: Watched) -> Job | None:
        if not watched.is_extraction_due:
            return None
        return self._desk.jobs.queue(core.id, "extract", now=core.now())


def queue_idle(core: Core, desk: Desk) -> Job | None:
    """Work for when the session has been quiet for as long as its settings say.

    While such a job is known to wait nothing is asked for: when it is due it sees whether it was quiet.
    """
    now, settings = core.now(), core.settings
    has_work = settings.extract_facts or (settings.model and settings.summarize_ahead)
    if now < core.idle_due_at or settings.idle_seconds <= 0 or not has_work or not settings.enabled:
        return None
    core.idle_due_at = timestamp(core.clock(), settings.idle_seconds)
    return desk.jobs.queue(core.id, "idle", now=now, due_at=core.idle_due_at)
