"""One call of a hook: what the agent sent, for which of its sessions, and when the next call has work to do."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from context_compactor.agents.coding_agents import CLAUDE_CODE, CODEX, CodingAgent, find_agent
from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.paths import prepare_home, session_key, settings_fingerprint, subagent_log
from context_compactor.agents.steering import effective_compaction
from context_compactor.agents.sync import AgentLog, update_hook_state
from context_compactor.files import write_atomically
from context_compactor.settings import Settings
from context_compactor.text import printable
from context_compactor.tokens.models import window_for

_LONGEST_WAIT = 60
# How long our plugins and extensions wait for a record.
_PLUGIN_SECONDS = 20

HookAnswer = dict[str, Any]


class HookCall(Struct, frozen=True):
    """`payload` is the agent's JSON. `row` is what was known of the session when the call came."""

    event: str
    agent: CodingAgent
    root: str
    payload: dict[str, Any]
    settings: Settings
    row: AgentSessionRow | None = None

    @property
    def session_id(self) -> str:
        """The agent's name of its session."""
        return self.text("session_id")

    @property
    def agent_id(self) -> str:
        """Which sub-agent calls; empty for the agent itself."""
        return self.text("agent_id")

    @property
    def log(self) -> AgentLog:
        """Where the agent writes down what is said in this session."""
        path = self.text("transcript_path")
        if self.agent is CLAUDE_CODE and self.agent_id:  # it names the log of the whole session all the same
            path = subagent_log(path, self.agent_id)
        if self.row is not None and not path:
            path = self.row.transcript
        return AgentLog(self.root, session_key(self.session_id, self.agent_id), path, self.agent.name, self.wait)

    @property
    def wait(self) -> float:
        """Seconds to wait for another hook of the same session: less than until the agent gives up on this one."""
        timeouts = [hook.timeout for hook in self.agent.hooks if hook.word == self.event]
        return min([*timeouts, _LONGEST_WAIT] if timeouts else [_PLUGIN_SECONDS]) / 3

    @property
    def has_log(self) -> bool:
        """Whether there is anything to follow yet: an agent calls before it has written its first line."""
        return bool(self.log.path) and os.path.isfile(self.log.path) and os.path.getsize(self.log.path) > 0

    def text(self, name: str) -> str:
        """A field when it is a text."""
        value = self.payload.get(name)
        return value if isinstance(value, str) else ""

    def event_name(self) -> str:
        """The event as the agent spells it."""
        return self.text("hook_event_name") or "".join(word.capitalize() for word in self.event.split("-"))

    def for_model(self, text: str) -> dict[str, Any]:
        """An answer whose text the model gets."""
        shown = printable(text, keep="\n\t")
        return {"hookSpecificOutput": {"hookEventName": self.event_name(), "additionalContext": shown}}


def detect_agent(payload: dict[str, Any], option: str) -> CodingAgent:
    """Which agent calls: the one named with `--agent`, else the one whose log has such a name."""
    if option:
        return find_agent(option)
    path = payload.get("transcript_path")
    name = os.path.basename(path) if isinstance(path, str) else ""
    return CODEX if name.startswith("rollout-") or "turn_id" in payload else CLAUDE_CODE


def with_log(payload: dict[str, Any], agent: CodingAgent, root: str) -> dict[str, Any]:
    """The call of an agent that keeps no log: the messages it has sent are written down, and stand for one."""
    messages, session_id = payload.get("messages"), str(payload.get("session_id"))
    if agent.keeps_log or not isinstance(messages, list) or not messages:
        return payload
    name = f"{agent.name}-{sha256(session_id.encode('utf-8', 'replace')).hexdigest()[:32]}.json"
    path = Path(prepare_home(root), "logs", name)
    session = {"info": {"id": session_id, "directory": payload.get("cwd")}, "messages": messages}
    write_atomically(path, msgspec.json.encode(session), private=True)
    return {**payload, "transcript_path": str(path)}


FROM_INSIDE = ("loaded", "compact")
"""Events that come from a plugin of ours which runs inside the agent."""
# No text has so few characters for each token, or hardly any: what is below need not be counted.
_LEAST_CHARS = 2
_NEVER = 0


def set_thresholds(call: HookCall, **more: object) -> AgentSessionRow:
    """Note when this session has to be looked at again, under the settings as they are; `more` is noted as well."""
    settings = call.settings
    values = {
        "agent": call.agent.name,
        "transcript": call.log.path,
        "settings": settings_fingerprint(call.root, os.environ),
        "wake_calls": next_suggestion(call, call.row),
        "wake_tokens": int(settings.suggest_share * agent_window(call)),
        "wake_bytes": _LEAST_CHARS * settings.max_output_tokens if settings.replace_outputs else _NEVER,
        "compaction": _who_compacts(call),
    }
    return update_hook_state(call.log, **values | more)


def _who_compacts(call: HookCall) -> str:
    """Who compacts in this session: as long as our plugin has not spoken up in it, the agent itself."""
    replaces = call.event in FROM_INSIDE or (call.row is not None and call.row.has_plugin)
    return effective_compaction(call.agent, call.settings, replaces=replaces).way


def next_suggestion(call: HookCall, row: AgentSessionRow | None) -> int:
    """The next number of calls at which a compaction is suggested."""
    every = call.settings.suggest_tool_results
    calls = row.calls if row else 0
    return (calls // every + 1) * every if every else _NEVER


def agent_window(call: HookCall) -> int:
    """Tokens of the agent's window, as far as they are known: what is set, else what its model takes."""
    model = call.text("model") or (call.row.model if call.row else "") or call.settings.model
    assumed = None if model else call.agent.assumed_window
    return window_for(model, call.settings.window, assumed, call.agent.name, 0, call.settings.models).tokens
