"""The handoff protocol as values: the request to a sub-agent, its response, and the state an orchestrator keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, Self, TypeVar, get_args

import msgspec
from msgspec import Struct, structs

from context_compactor.dialects.dialect import kind_of_value
from context_compactor.errors import BadInput
from context_compactor.handoff.context_summary import MOST_TOKENS, count_tokens
from context_compactor.json_values import json_text
from context_compactor.text import clip_line, in_room
from context_compactor.tokens.counting import replace_surrogates

Phase = Literal["research", "write", "validate", "parallel"]
Status = Literal["complete", "partial", "failed", "blocked"]
Decision = Literal["PROCEED", "STOP", "CLARIFY"]
PHASES: tuple[Phase, ...] = get_args(Phase)
STATUSES: tuple[Status, ...] = get_args(Status)
DECISIONS: tuple[Decision, ...] = get_args(Decision)

LONGEST_FEATURE, LONGEST_SPEC_PATH = 200, 500
_LONGEST_ID = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SHOWN = 60
_MOST_USED = 10**15


class HandoffRequest(Struct, frozen=True):
    """What a sub-agent is given: its task, and what those before it found out. `references` recall originals.

    `feature` and `spec_path` say what all phases work on, where that is known.
    """

    task_id: str
    phase: Phase
    task: str
    context_summary: str = ""
    constraints: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    feature: str = ""
    spec_path: str = ""

    def __post_init__(self) -> None:
        _check_opening("request", self)
        _check_text("request", "task", self.task)
        _check_summary("request", self.context_summary)
        for name in ("constraints", "files", "references"):
            texts = getattr(self, name)
            if not isinstance(texts, tuple) or not all(isinstance(each, str) for each in texts):
                raise bad_field("request", name, "must be a list of texts")
        for name, most in (("feature", LONGEST_FEATURE), ("spec_path", LONGEST_SPEC_PATH)):
            _check_line("request", name, getattr(self, name), most)

    def to_dict(self) -> dict[str, Any]:
        """The request as plain JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in structs.asdict(self).items()
        }

    def to_json(self) -> str:
        """The request as compact JSON text."""
        return json_text(self.to_dict())


class HandoffResponse(Struct, frozen=True):
    """What a sub-agent answers. `findings` hold whatever it found; only `context_summary` is handed on.

    `tokens_used` is what it spent on the task, None when nobody told.
    """

    task_id: str
    phase: Phase
    status: Status
    decision: Decision
    findings: dict[str, Any]
    context_summary: str
    tokens_used: int | None = None

    def __post_init__(self) -> None:
        _check_opening("response", self)
        _check_choice("response", "status", self.status, STATUSES)
        _check_choice("response", "decision", self.decision, DECISIONS)
        if not isinstance(self.findings, dict):
            raise bad_field("response", "findings", f"must be an object, not {kind_of_value(self.findings)}")
        _check_text("response", "context_summary", self.context_summary)
        _check_summary("response", self.context_summary)
        _check_used(self.tokens_used)

    def to_dict(self) -> dict[str, Any]:
        """The response as plain JSON values, each field under its own name."""
        return structs.asdict(self)

    def to_json(self) -> str:
        """The response as compact JSON text."""
        return json_text(self.to_dict())


def bad_field(message: str, field: str, problem: str) -> BadInput:
    """The error for one field of a handoff's request or response."""
    return BadInput(f"handoff {message}, field {field!r}: {problem}")


def _check_opening(message: str, value: HandoffRequest | HandoffResponse) -> None:
    _check_text(message, "task_id", value.task_id)
    if len(value.task_id) > _LONGEST_ID:
        raise bad_field(message, "task_id", f"has {len(value.task_id):,} characters; {_LONGEST_ID} is the limit")
    _check_choice(message, "phase", value.phase, PHASES)


def _check_text(message: str, field: str, value: object) -> None:
    if not isinstance(value, str):
        raise bad_field(message, field, f"must be a text, not {kind_of_value(value)}")
    if not value.strip():
        raise bad_field(message, field, "is empty; say it in a sentence")


def _check_line(message: str, field: str, value: object, most: int) -> None:
    if not isinstance(value, str):
        raise bad_field(message, field, f"must be a text, not {kind_of_value(value)}")
    if len(value) > most:
        raise bad_field(message, field, f"has {len(value):,} characters; {most} is the limit")
    if _CONTROL.search(value):
        raise bad_field(message, field, f"{value[:_SHOWN]!r} must be one line without control characters")


def _check_choice(message: str, field: str, value: object, known: tuple[str, ...]) -> None:
    if not isinstance(value, str):
        raise bad_field(message, field, f"must be one of {', '.join(known)}, not {kind_of_value(value)}")
    if value not in known:
        raise bad_field(message, field, f"{value[:_SHOWN]!r} is not known; use one of {', '.join(known)}")


def _check_summary(message: str, value: object) -> None:
    if not isinstance(value, str):
        raise bad_field(message, "context_summary", f"must be a text, not {kind_of_value(value)}")
    tokens = count_tokens(value)
    if tokens > MOST_TOKENS:
        problem = f"has {tokens:,} tokens; {MOST_TOKENS} is the limit. clean_summary(text) shortens it"
        raise bad_field(message, "context_summary", problem)


def _check_used(value: object) -> None:
    if value is None:
        return
    if type(value) is not int or not 0 <= value < _MOST_USED:
        shown = str(value) if type(value) is int and abs(value) < _MOST_USED else kind_of_value(value)
        raise bad_field("response", "tokens_used", f"must be a whole number of tokens, 0 or more, not {shown}")


_Stored = TypeVar("_Stored", bound=Struct)


def stored_text(value: Struct) -> str:
    """A value as compact JSON. Half characters, which no store takes, are replaced."""
    return replace_surrogates(json.dumps(msgspec.to_builtins(value), separators=(",", ":"), ensure_ascii=False))


def read_stored(text: str | bytes, kind: type[_Stored], name: str) -> _Stored:
    """The value behind its JSON text; `BadInput` says what is wrong, and where."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise BadInput(f"this is not a valid {name}: {problem}") from None


MOST_RUNNING = 50
# A repeated answer of an older one can no longer be told from that of a stranger.
MOST_FINISHED = 50

_LONGEST = 160
_MOST_OUTPUTS = 5


class SubAgent(Struct, frozen=True, omit_defaults=True):
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


class SubAgentRegister(Struct, frozen=True):
    """Sub-agents in the order in which they were started: all that run, and the newest that are finished."""

    agents: tuple[SubAgent, ...] = ()

    @property
    def running(self) -> tuple[SubAgent, ...]:
        """Those that have not answered yet."""
        return tuple(agent for agent in self.agents if agent.status == "running")

    def find(self, agent_id: str) -> SubAgent:
        """The sub-agent with this id; `BadInput` names those that run when there is none."""
        if found := next((agent for agent in self.agents if agent.id == agent_id), None):
            return found
        running = in_room((agent.id for agent in self.running), 300) or "none"
        raise BadInput(f"no sub-agent was started with the task_id {agent_id[:60]!r}; running: {running}")

    def started(self, agent_id: str, task: str, outputs: Sequence[str] = (), phase: Phase | Literal[""] = "") -> Self:
        """The register with one more that runs. Starting a finished one again makes it run again."""
        if not agent_id.strip():
            raise BadInput("a sub-agent needs an id; use the task_id of its request")
        expected = tuple(clip_line(each, _LONGEST) for each in outputs[:_MOST_OUTPUTS])
        agent = SubAgent(agent_id, clip_line(task, _LONGEST), phase, expected)
        if agent in self.running:
            return self
        if any(other.id == agent_id for other in self.running):
            raise BadInput(f"the sub-agent {agent_id!r} is running with another task; wait for it or use another id")
        if len(self.running) >= MOST_RUNNING:
            raise BadInput(f"{MOST_RUNNING} sub-agents are running, which is the limit; wait until one has finished")
        return self._with((*(other for other in self.agents if other.id != agent_id), agent))

    def finished(self, agent_id: str, status: Status = "complete", ref: str = "", digest: str = "") -> Self:
        """The register in which this one has answered; nothing changes when it had before."""
        agent = self.find(agent_id)
        if agent.status != "running":
            return self
        done = structs.replace(agent, status=status, ref=ref, digest=digest, outputs=())
        return self._with(tuple(done if other is agent else other for other in self.agents))

    def _with(self, agents: tuple[SubAgent, ...]) -> Self:
        finished = [agent.id for agent in agents if agent.status != "running"]
        old = set(finished[: max(len(finished) - MOST_FINISHED, 0)])
        return structs.replace(self, agents=tuple(agent for agent in agents if agent.id not in old))

    def lines(self) -> list[str]:
        """One line for each, those that run first."""
        done = (agent for agent in self.agents if agent.status != "running")
        return [agent.line for agent in (*self.running, *done)]


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
    subagents: SubAgentRegister = SubAgentRegister()
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
