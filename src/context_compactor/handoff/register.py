"""The register of sub-agents: which run, what is expected of them, and where the answers of the others are.

It is a value beside the conversation, so no compaction of the parent touches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from msgspec import Struct, structs

from context_compactor.apply.digests.text import clip, in_room
from context_compactor.errors import BadInput
from context_compactor.facts.fact import Fact
from context_compactor.handoff.messages import Phase, Status
from context_compactor.handoff.stored import read_stored, stored_text

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
