"""What each tool may be asked. The schemas that a client sees are made from these."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from context_compactor.handoff.messages import LONGEST_FEATURE, LONGEST_SPEC_PATH, Phase

_MOST_PAGES = 10**9

Id = Annotated[
    str,
    Meta(
        max_length=200,
        description="The id that stands for the original, such as tool_017, file_003, agent_002 or turn_096.",
    ),
]
Page = Annotated[int, Meta(ge=1, le=_MOST_PAGES, description="Which page, from 1. An answer says how many there are.")]
Lines = Annotated[
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
Kind = Annotated[str, Meta(max_length=60)]


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every tool may be asked."""

    session: SessionName = ""


class RecallAsked(Asked, frozen=True, kw_only=True):
    """Which original, and which part of it."""

    id: Id
    page: Page = 1
    lines: Lines = ""


class SearchAsked(Asked, frozen=True, kw_only=True):
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
        Kind,
        Meta(description='Only this kind of content, such as "test run", "code file", "user" or "turn"; else all.'),
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=50, description="At most so many hits.")] = 20


TurnNumber = Annotated[int, Meta(ge=0, le=10**9)]


class TurnsAsked(Asked, frozen=True, kw_only=True):
    """Which turns."""

    first: Annotated[TurnNumber, Meta(description="From the turn of this number; 1 is the first.")] = 1
    last: Annotated[TurnNumber, Meta(description="Up to the turn of this number; 0 for all.")] = 0
    words: Annotated[
        str, Meta(max_length=400, description="Only turns in which all of these words were said or called.")
    ] = ""
    page: Page = 1


class FactsAsked(Asked, frozen=True, kw_only=True):
    """Which facts."""

    kind: Annotated[
        Kind,
        Meta(
            description="Only one kind: task, constraint, decision, failure, error (with failures), file_state, "
            "dependency, command, approval, denial, side_effect, subagent, mode, todo, blocker or next_step."
        ),
    ] = ""
    page: Page = 1


class StatusAsked(Asked, frozen=True, kw_only=True):
    """Nothing but whose."""


class PlanAsked(Asked, frozen=True, kw_only=True):
    """How far a compaction would go."""

    level: Annotated[
        Literal["", "soft", "aggressive", "emergency"], Meta(description="How far to go; else a soft one.")
    ] = ""
    target_tokens: Annotated[
        int, Meta(ge=0, le=10**9, description="Bring it down to so many tokens instead; 0 leaves that to the level.")
    ] = 0
    focus: Annotated[str, Meta(max_length=2_000, description="What matters most from here on.")] = ""
    page: Page = 1


class CheckpointAsked(Asked, frozen=True, kw_only=True):
    """What to write beside what is known."""

    note: Annotated[
        str, Meta(max_length=2_000, description="Something whoever goes on must know and cannot see in the files.")
    ] = ""


class HandoffAsked(Asked, frozen=True, kw_only=True):
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
