"""One call of a hook: what the agent said, where, and for which of its sessions."""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct

from context_compactor.agents.keeping_up import Log
from context_compactor.agents.known import CLAUDE_CODE, CODEX, Agent, find_agent
from context_compactor.agents.places import session_key, side_log
from context_compactor.agents.tally import Row
from context_compactor.messages.printing import printable
from context_compactor.settings import Settings

_LONGEST_WAIT = 60

Answer = dict[str, Any]


class Call(Struct, frozen=True):
    """`said` is the agent's own JSON. `row` is what was known of the session when the call came."""

    event: str
    agent: Agent
    root: str
    said: dict[str, Any]
    settings: Settings
    row: Row | None = None

    @property
    def session_id(self) -> str:
        """The agent's name of its session."""
        return self.text("session_id")

    @property
    def agent_id(self) -> str:
        """Which sub-agent calls; empty for the agent itself."""
        return self.text("agent_id")

    @property
    def log(self) -> Log:
        """Where the agent writes down what is said in this session."""
        path = self.text("transcript_path")
        if self.agent is CLAUDE_CODE and self.agent_id:  # it names the log of the whole session all the same
            path = side_log(path, self.agent_id)
        if self.row is not None and not path:
            path = self.row.transcript
        return Log(self.root, session_key(self.session_id, self.agent_id), path, self.agent.name, self.wait)

    @property
    def wait(self) -> float:
        """Seconds to wait for another hook of the same session: less than until the agent gives up on this one."""
        timeouts = [hook.timeout for hook in self.agent.hooks if hook.word == self.event]
        return min([*timeouts, _LONGEST_WAIT]) / 3

    @property
    def has_log(self) -> bool:
        """Whether there is anything to follow yet: an agent calls before it has written its first line."""
        return bool(self.log.path) and os.path.isfile(self.log.path) and os.path.getsize(self.log.path) > 0

    def text(self, name: str) -> str:
        """A field when it is a text."""
        value = self.said.get(name)
        return value if isinstance(value, str) else ""

    def name_of_event(self) -> str:
        """The event as the agent spells it."""
        return self.text("hook_event_name") or "".join(word.capitalize() for word in self.event.split("-"))

    def for_model(self, text: str) -> dict[str, Any]:
        """An answer whose text the model gets."""
        said = printable(text, keep="\n\t")
        return {"hookSpecificOutput": {"hookEventName": self.name_of_event(), "additionalContext": said}}


def guess_agent(said: dict[str, Any], told: str) -> Agent:
    """Which agent calls: what the command says, else what its log is called."""
    if told:
        return find_agent(told)
    path = said.get("transcript_path")
    name = os.path.basename(path) if isinstance(path, str) else ""
    return CODEX if name.startswith("rollout-") or "turn_id" in said else CLAUDE_CODE
