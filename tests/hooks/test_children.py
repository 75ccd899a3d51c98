"""Sub-agents are kept apart: what they say, how full they are, and what becomes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from context_compactor.agents.places import side_log
from tests.hooks.place import Place, Talk, worked

AGENT = "a0431ff2dd9044d02"


def child_of(talk: Talk, agent_id: str = AGENT) -> Talk:
    """The log of a sub-agent, where Claude Code writes it."""
    child = Talk(talk.place, talk.id)
    child.path = Path(side_log(str(talk.path), agent_id))
    child.path.parent.mkdir(parents=True, exist_ok=True)
    return child


def at_work(child: Talk) -> None:
    """A sub-agent does something."""
    child.user("Find where tokens are checked.")
    child.run("grep -rn verify src", "src/auth/jwt.py:3:def verify(token): ...")
    child.run("python -c 'import jwt'", "ModuleNotFoundError: No module named 'jwt'", is_error=True)
    child.answer("They are checked in src/auth/jwt.py.")


def test_calls_of_a_sub_agent_are_counted_apart(talk: Talk, place: Place):
    """Row 58."""
    worked(talk)
    said: dict[str, Any] = {"tool_name": "Bash", "tool_response": "ok"}
    for _ in range(3):
        talk.hook("PostToolUse", "post-tool-use", **said, agent_id=AGENT, agent_type="general-purpose")
    talk.hook("PostToolUse", "post-tool-use", **said)
    calls = {key: row.calls for key, row in place.rows().items()}
    assert calls == {talk.id: 1, f"{talk.id}/{AGENT}": 3}


def test_a_sub_agent_begins_with_what_its_caller_knows_in_500_tokens(talk: Talk):
    worked(talk, 60)
    answer = talk.hook("SubagentStart", "subagent-start", agent_id=AGENT, agent_type="Explore")
    text = answer["hookSpecificOutput"]["additionalContext"]
    assert "config/secrets.yaml" in text
    assert len(text) < 2_600


def test_briefing_sub_agents_can_be_turned_off(talk: Talk, place: Place):
    worked(talk, 20)
    said = talk.said("SubagentStart", agent_id=AGENT, agent_type="Explore")
    assert place.call("subagent-start", said, COMPACTOR_BRIEF_SUBAGENTS="false") == ""


def test_who_runs_is_registered_and_told_after_a_compaction_so_that_nobody_starts_it_again(talk: Talk, place: Place):
    """Row 57, in an agent."""
    worked(talk)
    talk.hook("SubagentStart", "subagent-start", agent_id=AGENT, agent_type="Explore")
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    brief = talk.hook("SessionStart", "session-start", source="compact")["hookSpecificOutput"]["additionalContext"]
    assert f"running: {AGENT}" in brief
    talk.hook("SubagentStop", "subagent-stop", agent_id=AGENT, agent_type="Explore", last_assistant_message="Done.")
    with place.session(talk.id) as session:
        (agent,) = session.orchestrator().subagents.agents
        assert agent.status == "complete"
        assert session.recall(agent.ref) == "Done."


def test_what_a_sub_agent_said_is_a_session_of_its_own(talk: Talk, place: Place):
    worked(talk)
    child = child_of(talk)
    at_work(child)
    path = {"agent_transcript_path": str(child.path)}
    talk.hook("SubagentStop", "subagent-stop", agent_id=AGENT, agent_type="Explore", last_assistant_message="X", **path)
    with place.session(f"{talk.id}/{AGENT}") as session:
        assert "def verify" in session.recall("tool_001")
        assert [fact.kind for fact in session.facts("failure")] == ["failure"]
    with place.session(talk.id) as session:
        assert "ModuleNotFoundError" not in json.dumps(session.history())


def test_a_compaction_inside_a_sub_agent_is_not_taken_for_one_of_its_caller(talk: Talk, place: Place):
    """Row 58: Claude Code says nothing of the sub-agent then, and names the log of the whole session."""
    worked(talk)
    talk.ask("Agent", {"description": "look", "prompt": "Find where tokens are checked."})
    child = child_of(talk)
    at_work(child)
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    brief = talk.hook("SessionStart", "session-start", source="compact")["hookSpecificOutput"]["additionalContext"]
    assert "ModuleNotFoundError" in brief
    assert "KeyError" not in brief
    assert place.rows()[talk.id].owed == ""
    with place.session(talk.id) as session:
        assert session.compactions() == []


def test_a_compaction_inside_a_sub_agent_whose_log_is_not_there_yet_is_answered_with_nothing(talk: Talk):
    worked(talk)
    talk.ask("Agent", {"description": "look", "prompt": "Find where tokens are checked."})
    assert talk.hook("SessionStart", "session-start", source="compact") is None


def test_the_nameless_agent_that_writes_a_summary_is_no_sub_agent(talk: Talk, place: Place):
    worked(talk)
    talk.hook("SubagentStop", "subagent-stop", agent_id="a1", agent_type="", last_assistant_message="A summary.")
    assert place.rows()[talk.id].summary == "A summary."
    talk.hook("Stop", "stop")
    with place.session(talk.id) as session:
        assert session.orchestrator().subagents.agents == ()


def test_a_codex_sub_agent_that_is_compacted_is_known_by_its_id(talk: Talk, place: Place):
    worked(talk)
    child = child_of(talk)
    at_work(child)
    said = child.said("PreCompact", trigger="auto", agent_id=AGENT, agent_type="default", turn_id="t1")
    assert place.call("pre-compact --agent codex", said) == ""
    assert list(place.rows()) == [f"{talk.id}/{AGENT}"]
