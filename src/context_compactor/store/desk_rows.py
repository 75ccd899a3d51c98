"""The values that go into a desk and come out of it: jobs, events, kept answers, webhooks and their deliveries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from context_compactor.events.event import Event
from context_compactor.events.payload import plain_text

if TYPE_CHECKING:
    from context_compactor.store.database import Database

JobState = Literal["waiting", "running", "done", "dropped"]
JobKind = Literal["compact", "extract", "idle"]

KINDS: tuple[JobKind, ...] = ("compact", "extract", "idle")
"""Those that matter most to an agent first."""

_LONGEST_REASON = 2_000


class Job(Struct, frozen=True):
    """A piece of work on one session. `id` only rises; of two jobs of a session the one with the lower id goes first.

    `attempts` counts how often it was begun, `worker` is who has it until `lease_until`. `reason` says what went wrong
    last, or why it ended. `is_asked_again` says that somebody asked for the same while it was running. `trace` is
    the one that the message which queued it belonged to.
    """

    id: int
    session_id: str
    kind: JobKind
    level: str
    state: JobState
    attempts: int
    due_at: str
    lease_until: str
    worker: str
    reason: str
    is_asked_again: bool
    created_at: str
    finished_at: str
    trace: str

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be done about it."""
        return self.state in ("done", "dropped")


class KeptEvent(Struct, frozen=True):
    """An event with its place among all that were kept; the number only rises."""

    number: int
    event: Event


class KeptAnswer(Struct, frozen=True):
    """What a request was answered; "" while only its messages are known to be written."""

    body_hash: str
    answer: str
    created_at: str


class Webhook(Struct, frozen=True):
    """An address that is told of events. No `types` means all; one with `disabled_at` is told nothing."""

    id: str
    namespace: str
    url: str
    secret: str
    types: tuple[str, ...]
    created_at: str
    failures: int = 0
    disabled_at: str = ""
    reason: str = ""


class Delivery(Struct, frozen=True):
    """An event on its way to a webhook. `attempts` counts how often it was begun."""

    id: int
    webhook: str
    attempts: int
    due_at: str
    worker: str
    reason: str
    kept: KeptEvent


class Attempt(Struct, frozen=True):
    """One time that a webhook was told. `status` is what it answered, 0 when it did not; no `reason` is success."""

    webhook: str
    event_id: str
    type: str
    attempt: int
    created_at: str
    status: int
    reason: str


def take_turn(database: Database, name: str) -> None:
    """Let nobody else who takes the same turn go on before this transaction has ended."""
    database.row(f"SELECT name FROM turns WHERE name = ?{database.row_lock}", [name])


def take_webhook(database: Database, webhook_id: str) -> str | None:
    """The namespace of a webhook that nobody else changes until this transaction ends; None when there is none.

    Whoever changes what a webhook is owed, or how it was told, takes it first: so nobody waits in a circle.
    """
    row = database.row(f"SELECT namespace FROM webhooks WHERE id = ?{database.row_lock}", [webhook_id])
    return row[0] if row else None


def plain_reason(reason: str) -> str:
    """A reason as any database can keep it, and no longer than anybody reads."""
    return plain_text(reason).replace("\0", "")[:_LONGEST_REASON]


def timestamp(moment: datetime, plus_seconds: float = 0.0) -> str:
    """A time as it is stored."""
    return (moment.astimezone(UTC) + timedelta(seconds=plus_seconds)).isoformat(timespec="milliseconds")


def namespace_of(session_id: str) -> str:
    """The namespace of a session: what stands before the first slash of its id."""
    return session_id.partition("/")[0] if "/" in session_id else ""


def prefix_of(namespace: str) -> str:
    """What the ids of a namespace begin with."""
    return f"{namespace}/" if namespace else ""
