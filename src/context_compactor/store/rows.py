"""The values that go into a store and come out of it: sessions, entries, originals and facts; jobs, events, answers
and webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from context_compactor.store.events import Event, plain_text

if TYPE_CHECKING:
    from context_compactor.store.database import Database


MESSAGE = "message"


class SessionRow(Struct, frozen=True):
    """A session as the store knows it.

    `head` is the position of its last entry, `view` that of the last one that is not a message, `messages` how many
    messages there are. `profile` and `state` are the session's own, as JSON.
    """

    id: str
    created_at: str
    updated_at: str
    profile: bytes
    state: bytes
    head: int = 0
    messages: int = 0
    view: int = 0


class LogEntry(Struct, frozen=True):
    """One entry of a session's log. Positions count from 1 and are never used again."""

    position: int
    kind: str
    created_at: str
    hash: str
    body: bytes


class LineageEntry(Struct, frozen=True):
    """What one message of a session says, and all up to it, as digests; `number` counts the messages from 1."""

    number: int
    digest: bytes
    link: bytes


class PassageRun(Struct, frozen=True):
    """Some passages of an original that follow one another: how many, and of how many characters.

    `terms` are the words by which they are found, with spaces between them; `body` holds the passages, in the form in
    which whoever archives them reads them again.
    """

    count: int
    size: int
    terms: str
    body: bytes


class NewOriginal(Struct, frozen=True):
    """An original on its way into the archive.

    `content` is the hash of its value as JSON, which must be in the store already; `runs` are its passages in order,
    for search: all of them, or the first ones when it is not `is_indexed` yet.
    """

    ref: str
    kind: str
    summary: str
    tokens: int
    recovery: str
    hint: str
    target: str
    content: str
    runs: Sequence[PassageRun] = ()
    is_indexed: bool = True


class OriginalRow(Struct, frozen=True):
    """An original in the archive, without its value. `same_as` names the one archived before with the same value."""

    number: int
    ref: str
    kind: str
    summary: str
    tokens: int
    recovery: str
    hint: str
    target: str
    same_as: str
    created_at: str
    content: str


class Unindexed(Struct, frozen=True):
    """An original of which the index has only the first `done` passages."""

    original: OriginalRow
    done: int


class IndexPart(Struct, frozen=True):
    """The runs of an original, by its number, that follow its first `done` passages; `is_last` when no more follow."""

    original: int
    done: int
    runs: Sequence[PassageRun]
    is_last: bool


class FoundRun(Struct, frozen=True):
    """A run of passages that a search found, under the id of its original.

    `position` is that of its first passage among all that the session has archived.
    """

    ref: str
    position: int
    body: bytes


class FactRow(Struct, frozen=True):
    """A fact as the store knows it. `pattern` is what it has in common with facts of other sessions, if anything."""

    kind: str
    turn: int
    body: bytes
    pattern: str = ""
    updated_at: str = ""


def as_bytes(value: bytes | str) -> bytes:
    """What a store holds as text, as bytes."""
    return value.encode() if isinstance(value, str) else value


def hash_of(content: bytes) -> str:
    """The name of a content: its SHA-256."""
    return sha256(content).hexdigest()


def chain_link(chain: bytes, kind: str, content_hash: str) -> bytes:
    """The chain after one more entry: changing, leaving out or swapping an entry changes every link behind it."""
    return sha256(chain + kind.encode() + bytes.fromhex(content_hash)).digest()


JobState = Literal["waiting", "running", "done", "dropped"]
JobKind = Literal["compact", "extract", "idle"]

JOB_KINDS: tuple[JobKind, ...] = ("compact", "extract", "idle")
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


class StoredEvent(Struct, frozen=True):
    """An event with its number among all that were stored; the number only rises."""

    number: int
    event: Event


class StoredAnswer(Struct, frozen=True):
    """What a request was answered; "" while only its messages are known to be written."""

    body_hash: str
    answer: str
    created_at: str


class Webhook(Struct, frozen=True):
    """An address that events are sent to. No `types` means all; one with `disabled_at` is sent nothing."""

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
    kept: StoredEvent


class DeliveryAttempt(Struct, frozen=True):
    """One attempt to deliver an event. `status` is the webhook's answer, 0 for none; no `reason` means success."""

    webhook: str
    event_id: str
    type: str
    attempt: int
    created_at: str
    status: int
    reason: str


def take_lock(database: Database, name: str) -> None:
    """Let nobody else who takes the same lock go on before this transaction has ended."""
    database.row(f"SELECT name FROM turns WHERE name = ?{database.row_lock}", [name])


def lock_webhook(database: Database, webhook_id: str) -> str | None:
    """The namespace of a webhook that nobody else changes until this transaction ends; None when there is none.

    Whoever changes the deliveries of a webhook takes it first: so there is no deadlock.
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
