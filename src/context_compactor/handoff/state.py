"""The orchestrator's state as a value: the task, how far it is, what was decided, who runs, what blocks.

`Register` says which sub-agents run and where the answers of the others are. It is a value beside the conversation, so
no compaction of the parent touches it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, Self, TypeVar

import msgspec
from msgspec import Struct, structs

from context_compactor.apply.digests.text import clip, in_room
from context_compactor.errors import BadInput
from context_compactor.facts.fact import Fact
from context_compactor.handoff.messages import Decision, Phase, Status
from context_compactor.handoff.summary import count_tokens
from context_compactor.measure.tokens import clean

_Value = TypeVar("_Value", bound=Struct)


def stored_text(value: Struct) -> str:
    """A value as compact JSON. Half characters, which no store takes, are replaced."""
    return clean(json.dumps(msgspec.to_builtins(value), separators=(",", ":"), ensure_ascii=False))


def read_stored(text: str | bytes, kind: type[_Value], name: str) -> _Value:
    """The value behind its JSON text; `BadInput` says what is wrong, and where."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise BadInput(f"this is no {name}: {problem}") from None


MOST_RUNNING = 50
# A repeated answer of an older one can no longer be told from that of a stranger.
MOST_FINISHED = 50

_LONGEST = 160
_MOST_OUTPUTS = 5


class Agent(Struct, frozen=True, omit_defaults=True):
    """A sub-agent. `ref` recalls its answer, and `digest` tells whether another answer is the same one."""

    id: str
    task: str
    phase: Phase | Literal[""] = ""
    outputs: tuple[str, ...] = ()
    status: Status | Literal["running"] = "running"
    ref: str = ""
    digest: str = ""

    @property
    def line(self) -> str:
        """The sub-agent in one line."""
        phase = f" ({self.phase})" if self.phase else ""
        expected = f"; expected: {', '.join(self.outputs)}" if self.outputs else ""
        answer = f' [answer: recall("{self.ref}")]' if self.ref else ""
        return f"{self.status}: {self.id}{phase}: {self.task}{expected}{answer}"


class Register(Struct, frozen=True):
    """Sub-agents in the order in which they were started: all that run, and the newest that are finished."""

    agents: tuple[Agent, ...] = ()

    @property
    def running(self) -> tuple[Agent, ...]:
        """Those that have not answered yet."""
        return tuple(agent for agent in self.agents if agent.status == "running")

    def find(self, agent_id: str) -> Agent:
        """The sub-agent with this id; `BadInput` names those that run when there is none."""
        for agent in self.agents:
            if agent.id == agent_id:
                return agent
        running = in_room((agent.id for agent in self.running), 300) or "none"
        raise BadInput(f"no sub-agent was started with the task_id {agent_id[:60]!r}; running: {running}")

    def started(self, agent_id: str, task: str, outputs: Sequence[str] = (), phase: Phase | Literal[""] = "") -> Self:
        """The register with one more that runs. Starting a finished one again makes it run again."""
        if not agent_id.strip():
            raise BadInput("a sub-agent needs an id; use the task_id of its request")
        agent = Agent(
            agent_id, clip(task, _LONGEST), phase, tuple(clip(each, _LONGEST) for each in outputs[:_MOST_OUTPUTS])
        )
        if agent in self.running:
            return self
        if any(other.id == agent_id for other in self.running):
            raise BadInput(f"the sub-agent {agent_id!r} is running with another task; wait for it or use another id")
        if len(self.running) >= MOST_RUNNING:
            raise BadInput(f"{MOST_RUNNING} sub-agents are running, which are the most; wait until one has finished")
        return self._with((*(other for other in self.agents if other.id != agent_id), agent))

    def finished(self, agent_id: str, status: Status = "complete", ref: str = "", digest: str = "") -> Self:
        """The register in which this one has answered; nothing changes when it had before."""
        agent = self.find(agent_id)
        if agent.status != "running":
            return self
        done = structs.replace(agent, status=status, ref=ref, digest=digest, outputs=())
        return self._with(tuple(done if other is agent else other for other in self.agents))

    def _with(self, agents: tuple[Agent, ...]) -> Self:
        finished = [agent.id for agent in agents if agent.status != "running"]
        old = set(finished[: max(len(finished) - MOST_FINISHED, 0)])
        return structs.replace(self, agents=tuple(agent for agent in agents if agent.id not in old))

    def lines(self) -> list[str]:
        """One line for each, those that run first."""
        done = (agent for agent in self.agents if agent.status != "running")
        return [agent.line for agent in (*self.running, *done)]

    def to_json(self) -> str:
        """The register as JSON text."""
        return stored_text(self)


def read_register(text: str | bytes) -> Register:
    """A register from its JSON text."""
    return read_stored(text, Register, "register of sub-agents")


def register_of(facts: Sequence[Fact]) -> Register:
    """The register as a history tells it, each sub-agent under the id of its answer."""
    register = Register()
    for fact in (fact for fact in facts if fact.kind == "subagent"):
        register = register.started(fact.ref, fact.content)
        if fact.status != "running":
            register = register.finished(fact.ref, "failed" if fact.status == "failed" else "complete", fact.ref)
    return register


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
