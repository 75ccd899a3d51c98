"""The table of jobs; what must never happen twice or at once is forbidden by two indexes, whoever writes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import structs

from context_compactor.settings import Level
from context_compactor.store.database import Database, where_given
from context_compactor.store.rows import JOB_KINDS, Job, JobKind, JobState, namespace_of, plain_reason, take_lock
from context_compactor.tracing import current_traceparent

_COLUMNS = (
    "id, session_id, kind, level, state, attempts, due_at, lease_until, worker, reason, is_asked_again, created_at, "
    "finished_at, trace"
)
_OPEN = "state IN ('waiting', 'running')"
_HELD = "id = ? AND state = 'running' AND worker = ? AND attempts = ?"
# One of a kind that is due, in a session where nothing runs and nothing of the same kind was asked for before.
_READY_OF_A_KIND = f"""
SELECT j.id FROM jobs j WHERE j.state = 'waiting' AND j.kind = ? AND j.due_at <= ? AND NOT EXISTS (
  SELECT 1 FROM jobs b WHERE b.session_id = j.session_id AND b.{_OPEN}
  AND (b.state = 'running' OR (b.kind = j.kind AND b.id < j.id)))
ORDER BY j.due_at, j.id LIMIT 1"""
_READY = f"SELECT coalesce({', '.join(f'({_READY_OF_A_KIND})' for _ in JOB_KINDS)})"
_KEPT = 10_000


class JobTable:
    """The jobs of all sessions. Methods that end a job return None when somebody else has it by now."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # Asking for work

    def queue(self, session_id: str, kind: JobKind, *, level: str = "", now: str, due_at: str = "") -> Job | None:
        """A new job, or None when the same waits already or runs, which then knows that it was asked for again."""
        with self._database.writing():
            values = [session_id, namespace_of(session_id), kind, level, due_at or now, now, current_traceparent()]
            made = self._database.rows(
                "INSERT INTO jobs (session_id, namespace, kind, level, state, attempts, due_at, lease_until, worker, "
                "reason, is_asked_again, created_at, finished_at, trace) "
                "VALUES (?, ?, ?, ?, 'waiting', 0, ?, '', '', '', 0, ?, '', ?) "
                f"ON CONFLICT (session_id, kind, level) WHERE {_OPEN} DO NOTHING RETURNING {_COLUMNS}",
                values,
            )
            if not made:
                self._ask_again(session_id, kind, level)
            return _job(made[0]) if made else None

    def _ask_again(self, session_id: str, kind: str, level: str) -> None:
        same = "session_id = ? AND kind = ? AND level = ? AND state = 'running'"
        self._change(f"is_asked_again = 1 WHERE {same}", [session_id, kind, level])

    def queue_level(self, session_id: str, level: str, now: str) -> Job | None:
        """A new compaction at a level; "" is one that no level asks for.

        None when a compaction at this level or a higher one waits or runs. One that waits at a lower level is
        superseded.
        """
        with self._database.writing():
            known = [job for job in self.open(session_id) if job.kind == "compact"]
            higher = [job for job in known if _rank(job.level) > _rank(level)]
            if higher:
                self._ask_again(session_id, "compact", higher[-1].level)
                return None
            for job in known:
                if job.state == "waiting" and _rank(job.level) < _rank(level):
                    end = "state = 'done', reason = ?, finished_at = ? WHERE id = ? AND state = 'waiting'"
                    self._change(end, [f"superseded by {level}", now, job.id])
            return self.queue(session_id, "compact", level=level, now=now)

    # Doing it

    def claim(self, worker: str, now: str, until: str) -> Job | None:
        """The next job that may be done now, held by this worker until then; None when there is none."""
        if self._ready(now) is None:  # most calls find nothing, and need not write
            return None
        with self._database.writing():
            take_lock(self._database, "claim")
            return self._one(
                "state = 'running', attempts = attempts + 1, worker = ?, lease_until = ?, is_asked_again = 0 "
                "WHERE id = ? AND state = 'waiting'",
                [worker, until, self._ready(now)],
            )

    def _ready(self, now: str) -> int | None:
        found: int | None = self._database.row(_READY, [value for kind in JOB_KINDS for value in (kind, now)])[0]
        return found

    def extend(self, jobs: Iterable[Job], until: str) -> set[int]:
        """Hold jobs for longer; the ids of those that are still held by who claimed them."""
        with self._database.writing():
            held = [self._one(f"lease_until = ? WHERE {_HELD}", [until, *_holder(job)]) for job in jobs]
        return {job.id for job in held if job}

    def finish(self, job: Job, now: str, reason: str = "") -> Job | None:
        """The job when it is done."""
        return self._end(job, "done", now, reason)

    def drop(self, job: Job, now: str, reason: str) -> Job | None:
        """The job when nobody will try it again."""
        return self._end(job, "dropped", now, reason)

    def _end(self, job: Job, state: JobState, now: str, reason: str) -> Job | None:
        change = f"state = ?, reason = ?, finished_at = ?, lease_until = '' WHERE {_HELD}"
        return self._one(change, [state, plain_reason(reason), now, *_holder(job)])

    def put_back(self, job: Job, due_at: str, reason: str, *, is_counted: bool = True) -> Job | None:
        """The job when it waits again; unless the attempt `is_counted` it never was."""
        attempts = job.attempts if is_counted else job.attempts - 1
        return self._one(
            f"state = 'waiting', attempts = ?, due_at = ?, reason = ?, lease_until = '', worker = '' WHERE {_HELD}",
            [attempts, due_at, plain_reason(reason), *_holder(job)],
        )

    def lapsed(self, now: str) -> list[Job]:
        """Jobs whose lease has lapsed."""
        return self._all("state = 'running' AND lease_until < ? ORDER BY lease_until", [now])

    # Reading

    def open(self, session_id: str) -> list[Job]:
        """The jobs of a session that wait or run, in order."""
        return self._all(f"session_id = ? AND {_OPEN} ORDER BY id", [session_id])

    def newest(
        self,
        *,
        session_id: str | None = None,
        namespace: str | None = None,
        states: Collection[JobState] = (),
        before: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Jobs, newest first; `before` is the id of the last one seen."""
        clauses = {"session_id = ?": session_id, "namespace = ?": namespace, "id < ?": before}
        where, values = where_given(clauses, {"state": states})
        return self._all(f"{where} ORDER BY id DESC LIMIT ?", [*values, limit])

    def counts(self) -> dict[tuple[str, str], int]:
        """How many jobs there are of each kind and state."""
        rows = self._database.rows("SELECT kind, state, count(*) FROM jobs GROUP BY kind, state")
        return {(kind, state): int(count) for kind, state, count in rows}

    def is_idle(self, now: str) -> bool:
        """Whether nothing runs and nothing that waits is due."""
        statement = "SELECT 1 FROM jobs WHERE state = 'running' OR (state = 'waiting' AND due_at <= ?) LIMIT 1"
        return self._database.row(statement, [now]) is None

    def forget(self, before: str, keep: int = _KEPT) -> None:
        """Delete jobs that ended before a time, and all but the newest ones that ended."""
        over = "state IN ('done', 'dropped')"
        with self._database.writing():
            row = self._database.row(f"SELECT id FROM jobs WHERE {over} ORDER BY id DESC LIMIT 1 OFFSET ?", [keep])
            gone = f"DELETE FROM jobs WHERE {over} AND (finished_at < ? OR id <= ?)"
            self._database.write(gone, [before, row[0] if row else 0])

    def remove(self, session_id: str) -> None:
        """Delete the jobs of a session, which is no longer there. Who is at one has lost it."""
        self._database.write("DELETE FROM jobs WHERE session_id = ?", [session_id])

    def _all(self, where: str, values: Sequence[Any]) -> list[Job]:
        return [_job(row) for row in self._database.rows(f"SELECT {_COLUMNS} FROM jobs WHERE {where}", values)]

    def _one(self, change: str, values: Sequence[Any]) -> Job | None:
        return next(iter(self._change(change, values)), None)

    def _change(self, change: str, values: Sequence[Any]) -> list[Job]:
        return [_job(row) for row in self._database.rows(f"UPDATE jobs SET {change} RETURNING {_COLUMNS}", values)]


def _holder(job: Job) -> tuple[int, str, int]:
    return job.id, job.worker, job.attempts


def _rank(level: str) -> int:
    return ["", *Level].index(level)


def _job(row: Sequence[Any]) -> Job:
    job = Job(*row)
    return structs.replace(job, is_asked_again=bool(job.is_asked_again))  # a database may have 0 and 1
