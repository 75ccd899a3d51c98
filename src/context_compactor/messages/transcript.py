"""A conversation as a file told it, before any dialect has looked at it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from context_compactor.messages.usage import ReportedUsage

RawMessage = dict[str, Any]


class PastCompaction(Struct, frozen=True):
    """A compaction the agent did itself. `at` is the index of the first message after it."""

    at: int
    trigger: str = ""
    pre_tokens: int | None = None
    summary: str = ""


class Transcript(Struct, frozen=True, kw_only=True):
    """One conversation and what its file says about it.

    `messages` is the whole conversation on its active branch, across past compactions and without their summaries.
    `usages` is by the index of the last message of the reply, `times` by the index of each message whose line has one:
    when it was written, in UTC. `notes` says what was left out. `extra` holds the
    fields of a recorded conversation that have no place of their own.
    """

    messages: list[RawMessage]
    dialect: str
    source: str
    session_id: str = ""
    model: str = ""
    window: int | None = None
    system: Any = None
    tools: list[Any] | None = None
    cwd: str = ""
    usages: dict[int, ReportedUsage] = field(default_factory=dict)
    times: dict[int, str] = field(default_factory=dict)
    compactions: list[PastCompaction] = field(default_factory=list)
    side_chains: dict[str, list[RawMessage]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
