"""What each tool takes and what it returns; the schemas that a client sees are made from these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from context_compactor.handoff.protocol import LONGEST_FEATURE, LONGEST_SPEC_PATH, Phase
from context_compactor.tokens.counting import replace_surrogates

_MOST_PAGES = 10**9

ReferenceId = Annotated[
    str,
    Meta(
        max_length=200,
        description="The id that stands for the original, such as tool_017, file_003, agent_002 or turn_096.",
    ),
]
PageNumber = Annotated[
    int, Meta(ge=1, le=_MOST_PAGES, description="Which page, from 1. An answer says how many there are.")
]
LineRange = Annotated[
    str,
    Meta(
        pattern=r"^(\d{1,9}(-(\d{1,9})?)?)?$",
        description='Only these lines, counted from 1: "10-40", "10-" to the end, or "10". Without it all of them.',
    ),
]
SessionName = Annotated[
    str,
    Meta(
        max_length=300,
        description="Another session of this project, by its name. Leave it out: your own session is meant then.",
    ),
]
KindName = Annotated[str, Meta(max_length=60)]


class ToolInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every tool may be asked."""

    session: SessionName = ""


class PagedInput(ToolInput, frozen=True, kw_only=True):
    """What a tool may be asked whose answer comes in pages."""

    page: PageNumber = 1


class RecallInput(PagedInput, frozen=True, kw_only=True):
    """Which original, and which part of it."""

    id: ReferenceId
    lines: LineRange = ""


class SearchInput(ToolInput, frozen=True, kw_only=True):
    """What to look for."""

    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=20_000,
            description="What to look for: words, names, an error message, or a whole question.",
        ),
    ]
    kind: Annotated[
        KindName,
        Meta(description='Only this kind of content, such as "test run", "code file", "user" or "turn"; else all.'),
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=50, description="At most so many hits.")] = 20


TurnNumber = Annotated[int, Meta(ge=0, le=10**9)]


class TurnsInput(PagedInput, frozen=True, kw_only=True):
    """Which turns."""

    first: Annotated[TurnNumber, Meta(description="From the turn of this number; 1 is the first.")] = 1
    last: Annotated[TurnNumber, Meta(description="Up to the turn of this number; 0 for all.")] = 0
    words: Annotated[
        str, Meta(max_length=400, description="Only turns in which all of these words were said or called.")
    ] = ""


class FactsInput(PagedInput, frozen=True, kw_only=True):
    """Which facts."""

    kind: Annotated[
        KindName,
        Meta(
            description="Only one kind: task, constraint, decision, failure, error (with failures), file_state, "
            "dependency, command, approval, denial, side_effect, subagent, mode, todo, blocker or next_step."
        ),
    ] = ""


class StatusInput(ToolInput, frozen=True, kw_only=True):
    """Nothing but whose."""


class PlanInput(PagedInput, frozen=True, kw_only=True):
    """How far a compaction would go."""

    level: Annotated[
        Literal["", "soft", "aggressive", "emergency"], Meta(description="How far to go; else a soft one.")
    ] = ""
    target_tokens: Annotated[
        int, Meta(ge=0, le=10**9, description="Bring it down to so many tokens instead; 0 leaves that to the level.")
    ] = 0
    focus: Annotated[str, Meta(max_length=2_000, description="What matters most from here on.")] = ""


class CheckpointInput(ToolInput, frozen=True, kw_only=True):
    """What to write beside what is known."""

    note: Annotated[
        str, Meta(max_length=2_000, description="Something whoever goes on must know and cannot see in the files.")
    ] = ""


class HandoffInput(ToolInput, frozen=True, kw_only=True):
    """For whom."""

    phase: Annotated[Phase, Meta(description="What the next one is to do.")] = "write"
    task: Annotated[
        str, Meta(max_length=4_000, description="Its task, in full sentences; without one, the user's last task.")
    ] = ""
    feature: Annotated[
        str,
        Meta(max_length=LONGEST_FEATURE, description="What the work is about; without one, that of the last handoff."),
    ] = ""
    spec_path: Annotated[
        str,
        Meta(max_length=LONGEST_SPEC_PATH, description="Where its specification is; without one, that of the last."),
    ] = ""


class ToolAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every tool answers. `session` is whose it is, `note` what is to be known about the answer."""

    session: str
    note: str = ""

    def lines(self) -> Iterable[str]:
        """The answer for a reader."""
        raise NotImplementedError

    def render(self) -> str:
        """The answer as one text."""
        remarks = [f"[{remark}]" for remark in self.remarks() if remark]
        return replace_surrogates("\n".join((*self.lines(), *remarks)))

    def remarks(self) -> tuple[str, ...]:
        """What is said about the answer, behind it."""
        return (self.note,)


class PagedOutput(ToolAnswer, frozen=True, kw_only=True):
    """One page of an answer; `next` is the call that gives the following one."""

    page: int
    pages: int
    next: str = ""

    def remarks(self) -> tuple[str, ...]:
        """How to go on, and the note."""
        return (f"Next: {self.next}" if self.next else "", self.note)


class RecallOutput(PagedOutput, frozen=True, kw_only=True):
    """A page of an original: a result exactly as it was, a turn as a conversation."""

    id: str
    kind: str
    summary: str
    first_line: int
    last_line: int
    text: str

    def lines(self) -> Iterable[str]:
        """The text between what it is and how to go on."""
        head = f"{self.id} ({self.kind}), page {self.page:,} of {self.pages:,}"
        yield f"[{head}, lines {self.first_line:,} to {self.last_line:,}]"
        yield self.text


class HitOutput(Struct, frozen=True, omit_defaults=True):
    """Lines of an original that answer a search; `lines` is what to give `recall` to see around them.

    `exchange` is the turn in which the user opened the exchange that they stand in.
    """

    id: str
    kind: str
    text: str
    lines: str = ""
    exchange: str = ""


class SearchOutput(ToolAnswer, frozen=True, kw_only=True):
    """Hits, those of the best exchange first, each exchange from what the user asked to what came of it."""

    query: str
    archived: int
    hits: list[HitOutput]

    def lines(self) -> Iterable[str]:
        """Each hit under the id that recalls the whole, with a blank line between exchanges."""
        for at, hit in enumerate(self.hits):
            if at and hit.exchange != self.hits[at - 1].exchange:
                yield ""
            yield f"{hit.id} ({hit.kind}){f', lines {hit.lines}' if hit.lines else ''}:"
            yield hit.text


class TurnOutput(Struct, frozen=True, omit_defaults=True):
    """One turn in a line: who speaks, its first words or calls, and its tokens."""

    id: str
    who: str
    text: str
    tokens: int
    is_shown: bool = False


class TurnsOutput(PagedOutput, frozen=True, kw_only=True):
    """The index of turns, in their order."""

    total: int
    turns: list[TurnOutput]

    def lines(self) -> Iterable[str]:
        """One line for each turn."""
        yield f"[{self.total:,} turns; page {self.page:,} of {self.pages:,}]"
        for turn in self.turns:
            shown = ", in the context" if turn.is_shown else ""
            yield f"{turn.id} {turn.who}: {turn.text} ({turn.tokens:,} tokens{shown})"


class FactOutput(Struct, frozen=True, omit_defaults=True):
    """One fact in a line, with its count; `ref` recalls where it was said. Told by a model it is only a hint."""

    kind: str
    line: str
    ref: str
    turn: int
    summarized_by: str = ""
    first_seen: str | None = None
    last_seen: str | None = None


class FactsOutput(PagedOutput, frozen=True, kw_only=True):
    """Facts, the newest first, and how many there are of each kind."""

    total: int
    counts: dict[str, int]
    facts: list[FactOutput]

    def lines(self) -> Iterable[str]:
        """One line for each fact."""
        counts = ", ".join(f"{kind} {count:,}" for kind, count in self.counts.items()) or "none yet"
        yield f"[facts: {counts}; page {self.page:,} of {self.pages:,}, newest first]"
        for fact in self.facts:
            hint = f" [from a summary by {fact.summarized_by}, not checked]" if fact.summarized_by else ""
            yield f"{fact.kind}: {fact.line}{hint}"


class PastOutput(Struct, frozen=True):
    """A compaction that was made."""

    at: str
    reason: str
    tokens_before: int
    tokens_after: int


class StatusOutput(ToolAnswer, frozen=True, kw_only=True):
    """How full the window is and what there is to get back. `percent` is of the window; `source` says who counted."""

    agent: str
    tokens: int
    window: int
    percent: float
    level: str
    forecast: str
    source: str
    tool_calls: int
    messages: int
    compactions: int
    last_compaction: PastOutput | None
    archived: int
    archived_tokens: int

    def lines(self) -> Iterable[str]:
        """One line for each thing to know."""
        level = f", level {self.level}" if self.level else ", no level reached"
        yield f"window: {self.tokens:,} of {self.window:,} tokens ({self.percent:g} %){level}; {self.source}"
        yield f"forecast: {self.forecast}"
        yield f"so far: {self.messages:,} messages, {self.tool_calls:,} tool calls, {self.compactions:,} compactions"
        if self.last_compaction:
            past = self.last_compaction
            yield f"last compaction: {past.at}, {past.tokens_before:,} to {past.tokens_after:,} tokens ({past.reason})"
        yield f"archived: {self.archived:,} originals of {self.archived_tokens:,} tokens"


class DecisionOutput(Struct, frozen=True, omit_defaults=True):
    """What would become of one thing in the context. `ref` would recall it; `relevance` is from 0 to 1."""

    target: str
    turn: int
    tier: str
    reason: str
    tokens_before: int
    tokens_after: int
    relevance: float
    ref: str = ""


class TierOutput(Struct, frozen=True):
    """All things of one tier together."""

    tier: str
    targets: int
    tokens_before: int
    tokens_after: int


class PlanOutput(PagedOutput, frozen=True, kw_only=True):
    """What a compaction would do: each thing with its tier, those that save most first."""

    status: str
    reason: str
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    tiers: list[TierOutput]
    decisions: list[DecisionOutput]

    def lines(self) -> Iterable[str]:
        """The sums, then one line for each thing."""
        yield f"[{self.status}: {self.tokens_before:,} to {self.tokens_after:,} tokens, {self.reason or 'as planned'}]"
        for tier in self.tiers:
            yield f"{tier.tier}: {tier.targets:,} things, {tier.tokens_before:,} to {tier.tokens_after:,} tokens"
        for each in self.decisions:
            change = f"{each.tokens_before:,} to {each.tokens_after:,}"
            yield f"turn {each.turn} {each.tier} {change}: {each.target} ({each.reason})"


class CheckpointOutput(ToolAnswer, frozen=True, kw_only=True):
    """Where the work stands, as it was written. `file` is where."""

    file: str
    text: str

    def lines(self) -> Iterable[str]:
        """The page that was written."""
        yield self.text
        if self.file:
            yield f"[Written to {self.file}]"


class HandoffOutput(ToolAnswer, frozen=True, kw_only=True):
    """What somebody who goes on is to be given: a summary, what is to be observed, and ids to recall."""

    phase: str
    task: str
    feature: str
    spec_path: str
    context_summary: str
    constraints: list[str]
    failed: list[str]
    failing: list[str]
    files: list[str]
    references: list[str]

    def lines(self) -> Iterable[str]:
        """The brief as it can be handed on."""
        yield f"Task ({self.phase}): {self.task}"
        if self.feature:
            yield f"Feature: {self.feature}"
        if self.spec_path:
            yield f"Specification: {self.spec_path}"
        yield self.context_summary
        lists = {
            "Rules of the user": self.constraints,
            "Failed before, do not repeat": self.failed,
            "Still failing, run again after a change": self.failing,
            "Changed files": self.files,
        }
        for title, entries in lists.items():
            if entries:
                yield f"{title}:"
                yield from (f"- {entry}" for entry in entries)
        if self.references:
            yield f"Originals: {', '.join(self.references)}"
