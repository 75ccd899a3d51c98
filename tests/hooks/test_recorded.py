"""Every call that real agents have made, through the real command: it is answered in a way the agent takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from context_compactor.agents.coding_agents import AGENTS, CLAUDE_CODE, CODEX
from tests.hooks.place import Place, Talk, recorded, worked

_WORDS = {agent.name: {"Stop": "stop"} | {hook.event: hook.word for hook in agent.hooks} for agent in AGENTS.values()}
_CASES = [
    (agent.name, case)
    for agent in (CLAUDE_CODE, CODEX)
    for case, said in recorded(agent.name).items()
    if said.get("hook_event_name") in _WORDS[agent.name]
]
# Of each event one call starts the command as the agent does.
_STARTED = {(agent, recorded(agent)[case]["hook_event_name"]): case for agent, case in _CASES}
# The fields that each agent takes: Codex refuses an answer with any other.
_TAKEN = {
    "claude-code": {"systemMessage", "hookSpecificOutput"},
    "codex": {"systemMessage", "hookSpecificOutput", "continue", "stopReason"},
}
_SPECIFIC = {
    "claude-code": {"hookEventName", "additionalContext", "updatedToolOutput"},
    "codex": {"hookEventName", "additionalContext"},
}


def filled(said: Any, place: Place) -> Any:
    """The call with the folders of this place."""
    text = json.dumps(said).replace("$PROJECT", str(place.project)).replace("$HOME", str(place.home))
    return json.loads(text)


@pytest.mark.parametrize(("agent", "case"), _CASES)
def test_every_recorded_call_is_answered_with_nothing_or_with_what_the_agent_takes(place: Place, agent: str, case: str):
    said = filled(recorded(agent)[case], place)
    event = said["hook_event_name"]
    talk = Talk(place, said["session_id"])
    talk.path = Path(said["transcript_path"])
    talk.path.parent.mkdir(parents=True, exist_ok=True)
    worked(talk)
    out = place.call(_WORDS[agent][event], said, is_started=case == _STARTED[agent, event])
    assert not [line for line in place.hook_log() if line["what"] == "failed"]
    if event in ("PreCompact", "Stop"):
        assert out == ""
    if out:
        answer = json.loads(out)
        assert answer.keys() <= _TAKEN[agent]
        assert answer.get("hookSpecificOutput", {}).keys() <= _SPECIFIC[agent]
        assert answer.get("hookSpecificOutput", {}).get("hookEventName", event) == event


def test_every_event_that_is_registered_was_recorded():
    for agent in (agent for agent in AGENTS.values() if not agent.extension):
        seen = {said.get("hook_event_name") for said in recorded(agent.name).values()}
        assert {hook.event for hook in agent.hooks} <= seen


@pytest.mark.parametrize("agent", [CLAUDE_CODE.name, CODEX.name])
def test_a_call_tells_which_agent_it_comes_from(place: Place, agent: str):
    place.call("session-start", filled(recorded(agent)["SessionStart-startup"], place))
    (row,) = place.rows().values()
    assert row.agent == agent
