"""The orchestrator's state as a value: the task, how far it is, what was decided, who runs, what blocks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from context_compactor.handoff.messages import Decision, Phase
from context_compactor.handoff.register import Register
from context_compactor.handoff.stored import read_stored, stored_text
from context_compactor.handoff.summary import count_tokens

# What a state holds at most, besides 500 tokens of summary for each phase.
MOST_FILES = 100
MOST_ERRORS = 12
MOST_BLOCKED = 50
LONGEST_LINE = 200


class Task(Struct, frozen=True):
    """What all the sub-agents work on."""

    id: str
    feature: str = ""
    spec_path: str = ""


class Progress(Struct, frozen=True, omit_defaults=True):
    """How far the task is.

    `more_files_changed` and `more_errors` count what had no room in the lists; the archived answers have it all.
    """

    current_phase: Phase | Literal[""]
    completed_phases: tuple[Phase, ...]
    files_changed: tuple[str, ...]
    research_summary: str = ""
    write_summary: str = ""
    validate_summary: str = ""
    parallel_summary: str = ""
    errors: tuple[str, ...] = ()
    more_files_changed: int = 0
    more_errors: int = 0

    def summary(self, phase: Phase) -> str:
        """What is known from a phase; empty before its first answer."""
        return str(getattr(self, f"{phase}_summary"))


class Blocked(Struct, frozen=True):
    """A sub-agent that said STOP or CLARIFY, and what it needs to know."""

    task_id: str
    phase: Phase
    decision: Decision
    asked: str


class OrchestratorState(Struct, frozen=True, omit_defaults=True):
    """All that an orchestrator keeps. `last_ref` is the number of the newest `agent_NNN`."""

    task: Task
    progress: Progress
    decisions: dict[Phase, Decision | Literal["pending"]]
    blocked: tuple[Blocked, ...] = ()
    subagents: Register = Register()
    last_ref: int = 0

    @property
    def status(self) -> Literal["blocked", "waiting", "ready"]:
        """`blocked` while a STOP or CLARIFY is open, `waiting` while a sub-agent runs, `ready` otherwise."""
        if self.blocked:
            return "blocked"
        return "waiting" if self.subagents.running else "ready"

    @property
    def tokens(self) -> int:
        """The size of the state: its JSON, counted."""
        return count_tokens(self.to_json())

    def to_json(self) -> str:
        """The state as JSON text."""
        return stored_text(self)


def read_state(text: str | bytes) -> OrchestratorState:
    """A state from its JSON text."""
    return read_stored(text, OrchestratorState, "orchestrator state")
