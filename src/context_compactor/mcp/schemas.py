"""What each tool takes and what it returns; the schemas that a client sees are made from these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from context_compactor.handoff.protocol import LONGEST_FEATURE, LONGEST_SPEC_PATH, Phase
from context_compactor.sessions.tool_schemas import (
    FactsArguments,
    PagedArguments,
    PagedOutput,
    RecallArguments,
    SearchArguments,
    ToolAnswer,
    ToolArguments,
)

SessionName = Annotated[
    str,
    Meta(
        max_length=300,
        description="Another session of this project, by its name. Leave it out: your own session is meant then.",
    ),
]


class ToolInput(ToolArguments, frozen=True, kw_only=True):
    """What every tool may be asked."""

    session: SessionName = ""


class RecallInput(RecallArguments, frozen=True, kw_only=True):
    """Which original, which part of it, and of which session."""

    session: SessionName = ""


class SearchInput(SearchArguments, frozen=True, kw_only=True):
    """What to look for, and in which session."""

    session: SessionName = ""


TurnNumber = Annotated[int, Meta(ge=0, le=10**9)]


class TurnsInput(PagedArguments, frozen=True, kw_only=True):
    """Which turns."""

    session: SessionName = ""
    first: Annotated[TurnNumber, Meta(description="From the turn of this number; 1 is the first.")] = 1
    last: Annotated[TurnNumber, Meta(description="Up to the turn of this number; 0 for all.")] = 0
    words: Annotated[
        str, Meta(max_length=400, description="Only turns in which all of these words were said or called.")
    ] = ""


class FactsInput(FactsArguments, frozen=True, kw_only=True):
    """Which facts, and of which session."""

    session: SessionName = ""


class StatusInput(ToolInput, frozen=True, kw_only=True):
    """Nothing but whose."""


class PlanInput(PagedArguments, frozen=True, kw_only=True):
    """How far a compaction would go."""

    session: SessionName = ""
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
