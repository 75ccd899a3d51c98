"""Copying what a service keeps beside sessions: the work that waits for them, answers to repeat, and webhooks."""

from __future__ import annotations

from msgspec import Struct

from context_compactor.store.desk import SqlDesk
from context_compactor.store.sql_store import SqlStore


class Left(Struct, frozen=True):
    """What a copy leaves behind: events, deliveries of them that webhooks are yet to get, and jobs that are over."""

    events: int
    deliveries: int
    jobs: int


def copy_work(source: SqlStore, target: SqlStore, session_id: str) -> None:
    """A session's jobs, all to be begun anew, and what its requests were answered, in the transaction under way."""
    old, new = SqlDesk(source._database), SqlDesk(target._database)
    for job in old.jobs.open(session_id):
        new.jobs.queue(session_id, job.kind, level=job.level, now=job.created_at, due_at=job.due_at)
    for key, kept in old.answers.of(session_id):
        new.answers.take(session_id, key, kept.body_hash, kept.created_at)
        new.answers.keep(session_id, key, kept.answer)


def copy_webhooks(source: SqlStore, target: SqlStore) -> int:
    """Copy the webhooks that the target does not have, with their secrets; how many that were."""
    old, new = SqlDesk(source._database).webhooks, SqlDesk(target._database).webhooks
    with target._database.writing():
        known = {webhook.id for webhook in new.all()}
        missing = [webhook for webhook in old.all() if webhook.id not in known]
        for webhook in missing:
            new.add(webhook)
    return len(missing)


def left_behind(source: SqlStore) -> Left:
    """What of a store is not copied."""
    counts = (
        "SELECT count(*) FROM events",
        "SELECT count(*) FROM deliveries",
        "SELECT count(*) FROM jobs WHERE state IN ('done', 'dropped')",
    )
    return Left(*(int(source._database.row(statement)[0]) for statement in counts))
