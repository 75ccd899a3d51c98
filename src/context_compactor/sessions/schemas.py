"""What goes over HTTP: the request bodies and queries, the answers, and the names of problems."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar, get_args

from msgspec import Meta, Struct, structs

from context_compactor.archive.search.passages import Hit
from context_compactor.engine.plan import Decision
from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier, read_overrides
from context_compactor.facts.fact import Fact, FactKind
from context_compactor.handoff.checkpoint import Checkpoint
from context_compactor.handoff.protocol import LONGEST_FEATURE, LONGEST_SPEC_PATH, HandoffRequest, Phase
from context_compactor.handoff.protocol import Decision as HandoffDecision
from context_compactor.json_values import json_text
from context_compactor.sessions.views import Placed, Totals
from context_compactor.settings import Level
from context_compactor.store.events import EventType
from context_compactor.tokens.budget import Sections

PROBLEM_TYPE = "urn:context-compactor:"
IDEMPOTENCY_KEY = "Idempotency-Key"

S = TypeVar("S", bound=Struct)

Message = dict[str, Any]
RecallForm = Literal["original", "conversation"]
# The document lists those that are built in; one that was registered is taken too.
_DIALECTS = ["auto", "openai-chat", "openai-responses", "anthropic", "gemini", "bedrock"]
DialectName = Annotated[str, Meta(extra_json_schema={"enum": _DIALECTS}, max_length=80)]
SessionId = Annotated[str, Meta(min_length=1, max_length=200, description="A name without `/`.")]
Tokens = Annotated[int, Meta(ge=1, le=10**12)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
Text = Annotated[str, Meta(max_length=20_000)]
Turns = Annotated[str, Meta(max_length=1_000, pattern=r"^([0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*)?$")]
"""Numbers of turns, such as `12,15` or `3-9`."""


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request carries. A field that is not known is refused, so that a misspelled one is noticed."""


# Bodies


class CreateBody(Body, frozen=True):
    """A session to open. One that exists goes on where it stood, with what is given here from now on."""

    window: Tokens
    """Tokens that the agent's model accepts."""
    id: SessionId | None = None
    dialect: DialectName = "auto"
    model: Annotated[str, Meta(max_length=200)] | None = None
    """The agent's model, which says how tokens are counted."""
    tools: list[dict[str, Any]] | dict[str, Any] | None = None
    """The tool definitions that the agent sends with every request, or a `toolConfig`: only their size is kept."""
    system: str | list[Any] | dict[str, Any] | None = None
    """The system prompt that the agent sends beside the messages: only its size is kept."""
    settings: dict[str, Any] | None = None
    """Settings of this session, by name."""


class AppendBody(Body, frozen=True):
    """Messages in the session's dialect, appended all or none; `usage` is what the provider reported."""

    messages: list[Message]
    usage: dict[str, Any] | None = None


class CompactBody(Body, frozen=True):
    """How to compact; without anything, as the settings say. `preserve` counts the turns that stay word for word."""

    level: Level | None = None
    focus: Text | None = None
    preserve: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    target_tokens: Tokens | None = None
    dry_run: bool = False


class TierBody(Body, frozen=True):
    """A tier for a turn. Without a tier the turn is left to the engine again; without both, all turns are."""

    turn: Annotated[int, Meta(ge=-1_000_000, le=1_000_000_000)] | None = None
    tier: Tier | None = None


class RestoreBody(Body, frozen=True):
    """The id of the original to put back into the context."""

    ref: Annotated[str, Meta(min_length=1, max_length=100)]


class WebhookBody(Body, frozen=True):
    """An address to send events to, and of which types; none means all."""

    url: Annotated[str, Meta(min_length=1, max_length=2_000)]
    types: list[EventType] = []


class ReplayBody(Body, frozen=True):
    """The id of the last event that need not be sent again; none means all that are kept."""

    after: Annotated[str, Meta(max_length=100)] = ""


class CheckpointBody(Body, frozen=True):
    """A checkpoint to keep; `note` is what else is to be remembered."""

    note: Text = ""


class HandoffBody(Body, frozen=True):
    """For which phase a request is to be written; `task` is what the next agent is to do.

    Without `feature` and `spec_path` they are those of the last handoff.
    """

    phase: Phase = "write"
    task: Text = ""
    task_id: Annotated[str, Meta(max_length=200)] = ""
    feature: Annotated[str, Meta(max_length=LONGEST_FEATURE)] = ""
    spec_path: Annotated[str, Meta(max_length=LONGEST_SPEC_PATH)] = ""


class ReceiveBody(Body, frozen=True):
    """What a sub-agent answered to a handoff: an object, or a text with JSON or a "Task Result" in it."""

    answer: dict[str, Any] | Annotated[str, Meta(min_length=1)]


# Queries


class NoQuery(Body, frozen=True):
    """Nothing may be asked for."""


class PageQuery(Body, frozen=True):
    """A page of a list: at most `limit`, those behind the cursor `after`."""

    after: str | None = None
    limit: Limit = 100


class PlanQuery(Body, frozen=True):
    """How it would be compacted; without anything, as the settings say and with the tiers that are set in the session.

    With turns for any tier, be it none, it is as if these had been decided and no others.
    """

    level: Level | None = None
    focus: Annotated[str, Meta(max_length=2_000)] | None = None
    target_tokens: Tokens | None = None
    keep: Turns | None = None
    summarize: Turns | None = None
    reference: Turns | None = None
    drop: Turns | None = None

    def tiers(self) -> dict[int, Tier] | None:
        """The tiers by turn; None when the session's own count."""
        given = {tier: getattr(self, tier.value) for tier in Tier}
        if all(turns is None for turns in given.values()):
            return None
        return read_overrides({tier: turns or None for tier, turns in given.items()})


class ContextQuery(Body, frozen=True):
    """`at` asks for the context as it was when so many messages had been appended."""

    at: Number | None = None
    sealed: bool = True
    """Without it, nothing that only the provider who signed or encrypted it can read."""


class HistoryQuery(Body, frozen=True):
    """A page of the history; without `limit`, all of it."""

    after: Number = 0
    limit: Limit | None = None


class RecallQuery(Body, frozen=True):
    """Some `lines` of an original such as `10-40`, or one `page` of about so many `tokens`; else all of it.

    The `form` is `original`, in which a turn is the JSON of its messages, or `conversation`, as a reader wants it.
    """

    lines: Annotated[str, Meta(pattern=r"^[0-9]{1,9}(-[0-9]{1,9})?$")] | None = None
    page: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    tokens: Annotated[int, Meta(ge=1, le=10**6)] = 2_000
    form: RecallForm = "original"


class SearchQuery(Body, frozen=True):
    """Words to search for, in at most so many hits or tokens; times of archiving are in ISO 8601."""

    q: Annotated[str, Meta(min_length=1, max_length=2_000)]
    limit: Limit | None = None
    tokens: Annotated[int, Meta(ge=1, le=10**5)] = 2_000
    kind: Annotated[str, Meta(max_length=100)] = ""
    since: Annotated[str, Meta(max_length=40)] = ""
    until: Annotated[str, Meta(max_length=40)] = ""


# No enumeration of its own, so that one that is not known is refused with those that are.
KindAsked = Annotated[str, Meta(max_length=100, extra_json_schema={"enum": list(get_args(FactKind))})]


class FactsQuery(Body, frozen=True):
    """Facts of one kind only; without `limit`, all that are behind the cursor `after`."""

    kind: KindAsked | None = None
    after: str | None = None
    limit: Limit | None = None


class EventsQuery(Body, frozen=True):
    """Events of one session only, of some types with commas between them, and behind the last one known."""

    session_id: SessionId | None = None
    types: Annotated[str, Meta(max_length=1_000)] = ""
    last_event_id: Annotated[str, Meta(max_length=100)] = ""


# Answers


class Answer(Struct, frozen=True, kw_only=True):
    """What a server answers."""


class SessionAnswer(Answer, frozen=True):
    """A session: what it is, and how full its context is. `share` is of the budget, from 0."""

    id: str
    created_at: str
    updated_at: str
    messages: int
    tokens: int
    share: float
    level: Level | None
    window: int | None
    dialect: str
    model: str | None
    settings: dict[str, Any]


class SessionPage(Answer, frozen=True):
    """Sessions by their ids; `next` is the cursor of the next page."""

    sessions: list[SessionAnswer]
    next: str | None = None


class UsageAnswer(Answer, frozen=True):
    """How much of its budget a context uses, by section. `turns_left` is a forecast."""

    tokens: int
    budget_tokens: int
    bytes: int
    budget_bytes: int
    share: float
    level: Level | None
    margin: float
    tool_results: int
    files_loaded: int
    turns_left: int | None
    source: str
    sections: Sections


class SessionDetail(SessionAnswer, frozen=True):
    """A session with its usage and its compactions in numbers."""

    usage: UsageAnswer
    totals: Totals


class AppendAnswer(Answer, frozen=True):
    """What was appended, and how full the context is now. `report` is that of a compaction made at once."""

    session_id: str
    appended: int
    messages: int
    tokens: int
    share: float
    level: Level | None
    report: Report | None = None


class ContextAnswer(Answer, frozen=True):
    """What to send next, in the session's dialect. `history_messages` is how many were ever appended."""

    session_id: str
    messages: list[Message]
    tokens: int
    history_messages: int


class HistoryAnswer(Answer, frozen=True):
    """What was appended, in order, equal to what went in, and the compactions that were made meanwhile."""

    session_id: str
    messages: list[Message]
    total: int
    next: str | None = None
    compactions: list[Placed] = []


class CompactAnswer(Answer, frozen=True):
    """What a compaction did. When nothing was done, `reason` says why."""

    compacted: bool
    reason: str
    messages_removed: int
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    dry_run: bool
    report: Report


class TurnTier(Answer, frozen=True):
    """The tier that is set for a turn."""

    turn: int
    tier: Tier


class _WithTiers(Answer, frozen=True, kw_only=True):
    tiers: list[TurnTier] = []
    steers: Annotated[
        list[TurnTier], Meta(description="Former name of `tiers`: the same.", extra_json_schema={"deprecated": True})
    ] = []

    def __post_init__(self) -> None:
        both = self.tiers or self.steers
        structs.force_setattr(self, "tiers", both)
        structs.force_setattr(self, "steers", both)


class TiersAnswer(_WithTiers, frozen=True):
    """The tiers that are set for turns in the context."""

    session_id: str


class PlanAnswer(_WithTiers, frozen=True):
    """What a compaction would do: every decision, the report that it would have, and the tiers that are set."""

    decisions: list[Decision]
    report: Report


class CompactionPage(Answer, frozen=True):
    """The reports of a session's compactions, in order, and all of them in numbers."""

    compactions: list[Report]
    totals: Totals
    next: str | None = None


class CancelAnswer(Answer, frozen=True):
    """Whether a compaction was ended here, and whether one that a job in another process is at was asked to end."""

    session_id: str
    cancelled: bool
    elsewhere: bool = False


class UndoAnswer(Answer, frozen=True):
    """Whether a compaction was taken back, or put back, and its report."""

    changed: bool
    reason: str = ""
    report: Report | None = None


class OriginalAnswer(Answer, frozen=True):
    """An original in the archive, without its text."""

    id: str
    kind: str
    summary: str
    tokens: int
    recovery: str
    same_as: str
    created_at: str


class ArchivePage(Answer, frozen=True):
    """Originals in the order in which they were archived."""

    originals: list[OriginalAnswer]
    next: str | None = None


class RecallAnswer(Answer, frozen=True):
    """An original, byte for byte, or the lines or the page of it that were asked for."""

    id: str
    text: str
    page: int | None = None
    pages: int | None = None
    first_line: int | None = None
    last_line: int | None = None


class RestoreAnswer(Answer, frozen=True):
    """What was put back into the context, and whether room had to be made for it."""

    ref: str
    tokens: int
    in_place: bool
    compacted: bool
    tokens_after: int


class SearchAnswer(Answer, frozen=True):
    """Hits, best first, and the same as one text in the order of the history."""

    hits: list[Hit]
    text: str


class FactsAnswer(Answer, frozen=True):
    """What must outlive the text, by turn; `next` is the cursor of the next page."""

    facts: list[Fact]
    next: str | None = None


class CheckpointAnswer(Answer, frozen=True):
    """Where the work stands, as a value and as the Markdown that a fresh window reads."""

    checkpoint: Checkpoint
    markdown: str


class HandoffAnswer(Answer, frozen=True):
    """What the next agent is given."""

    request: HandoffRequest


class ReceiveAnswer(Answer, frozen=True):
    """What was taken from a sub-agent's answer; `id` recalls all of it, and is null when it was taken before."""

    id: str | None
    decision: HandoffDecision
    context_summary: str
    files_of_interest: list[str]
    files_changed: list[str]
    errors: list[str]
    asked: str
    reference: str
    tokens_raw: int
    tokens_kept: int


class WebhookAnswer(Answer, frozen=True):
    """A webhook. `failures` counts those in a row; after too many it is disabled, and `reason` is the last one."""

    id: str
    url: str
    types: list[str]
    created_at: str
    is_enabled: bool
    failures: int
    disabled_at: str | None
    reason: str


class WebhookMade(WebhookAnswer, frozen=True):
    """A new webhook, with the secret of its signatures, which is never shown again."""

    secret: str


class WebhooksAnswer(Answer, frozen=True):
    """The webhooks of a namespace."""

    webhooks: list[WebhookAnswer]


class RemovedAnswer(Answer, frozen=True):
    """What is no longer there."""

    id: str


class DeliveryAnswer(Answer, frozen=True):
    """An event that is yet to be sent to a webhook."""

    event_id: str
    type: str
    attempts: int
    due_at: str
    reason: str


class AttemptAnswer(Answer, frozen=True):
    """One attempt at a delivery. `status` is what it answered, 0 when it did not; no `reason` is success."""

    event_id: str
    type: str
    attempt: int
    created_at: str
    status: int
    reason: str


class DeliveriesAnswer(Answer, frozen=True):
    """What is yet to be sent to a webhook, and how the last attempts went."""

    waiting: list[DeliveryAnswer]
    attempts: list[AttemptAnswer]


class ReplayAnswer(Answer, frozen=True):
    """How many events will be sent again."""

    queued: int = 0
    owed: Annotated[
        int, Meta(description="Former name of `queued`: the same.", extra_json_schema={"deprecated": True})
    ] = 0

    def __post_init__(self) -> None:
        both = self.queued or self.owed
        structs.force_setattr(self, "queued", both)
        structs.force_setattr(self, "owed", both)


class HealthAnswer(Answer, frozen=True):
    """That the server answers, and its version."""

    status: str
    version: str


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error (RFC 9457). `type` ends in a name that programs can tell apart; `detail` says what to try."""

    type: str
    title: str
    status: int
    detail: str = ""
    index: int | None = None
    """Of a bad message: which one, counted from 0."""
    field: str | None = None
    """Of a bad message: where in it."""
    ref: str | None = None
    """Of a failure of the server: under which name its log has it."""

    @property
    def name(self) -> str:
        """The last part of the type."""
        return self.type.removeprefix(PROBLEM_TYPE)


def struct_from(kind: type[S], source: object, **more: Any) -> S:
    """A struct with the fields of another value that have the same names, and some of its own."""
    return kind(**{name: getattr(source, name) for name in kind.__struct_fields__ if name not in more}, **more)


def encode(answer: Struct) -> bytes:
    """An answer as JSON. Reports have all fields of their contract; half a character is written as its escape."""
    return json_text({name: _plain(value) for name, value in structs.asdict(answer).items()}).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Report):
        return value.to_dict()
    if isinstance(value, list) and value and isinstance(value[0], Report):
        return [report.to_dict() for report in value]
    return value
