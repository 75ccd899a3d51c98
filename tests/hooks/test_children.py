"""Sub-agents are kept apart: what they say, how full they are, and what becomes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from context_compactor.agents.paths import subagent_log
from tests.hooks.place import Place, Talk, worked

AGENT = "a0431ff2dd9044d02"


def child_of(talk: Talk, agent_id: str = AGENT, call_id: str = "") -> Talk:
    """The log of a sub-agent, where Claude Code writes it, and which call began it."""
    child = Talk(talk.place, talk.id)
    child.path = Path(subagent_log(str(talk.path), agent_id))
    child.path.parent.mkdir(parents=True, exist_ok=True)
    meta = {"agentType": "general-purpose", "description": "look", "toolUseId": call_id, "spawnDepth": 1}
    child.path.with_name(f"agent-{agent_id}.meta.json").write_text(json.dumps(meta))
    return child


def calls_of(talk: Talk) -> list[str]:
    """The calls of sub-agents in a log."""
    lines = [json.loads(line)["message"] for line in talk.path.read_text().splitlines()]
    blocks = [block for message in lines if isinstance(message["content"], list) for block in message["content"]]
    return [block["id"] for block in blocks if block.get("name") == "Agent"]


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
    done = child_of(talk, "a1", talk.ask("Agent", {"prompt": "Count the files."}))
    done.tokens = 150_000
    done.answer("There are three.")
    talk.result(next(iter(calls_of(talk))), "There are three.")
    first, second = (
        {"type": "tool_use", "id": f"toolu_{name}", "name": "Agent", "input": {"prompt": f"Look for {name}."}}
        for name in ("tokens", "users")
    )
    talk.reply(first, second)
    at_work(child_of(talk, AGENT, "toolu_tokens"))
    child_of(talk, "a2", "toolu_users").user("Look for users.")
    talk.result("toolu_users", "There are none.")  # the later of two, answered first
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


def test_of_those_in_the_background_and_their_caller_the_fullest_was_compacted(talk: Talk):
    """Row 58."""
    worked(talk)
    call_id = talk.ask("Agent", {"prompt": "Find where tokens are checked.", "run_in_background": True})
    launched = {"type": "tool_result", "tool_use_id": call_id, "content": "Launched."}
    found = {"toolUseResult": {"status": "async_launched", "agentId": AGENT}}
    talk.write({"type": "user", "message": {"role": "user", "content": [launched]}} | found)
    child = child_of(talk, AGENT, call_id)
    child.tokens = 180_000
    at_work(child)
    brief = talk.hook("SessionStart", "session-start", source="compact")["hookSpecificOutput"]["additionalContext"]
    assert "ModuleNotFoundError" in brief
    talk.tokens = 190_000
    talk.run("ls", "a.py")
    brief = talk.hook("SessionStart", "session-start", source="compact")["hookSpecificOutput"]["additionalContext"]
    assert "KeyError" in brief


NOTICE = (
    "<task-notification>\n<task-id>{agent}</task-id>\n<tool-use-id>{call}</tool-use-id>\n<status>completed</status>\n"
    '<summary>Agent "Find tokens" finished</summary>\n<result>{report}</result>\n</task-notification>'
)


def launched_child(talk: Talk) -> str:
    """A sub-agent in the background that has filled its own window; the id of the call."""
    worked(talk)
    call_id = talk.ask("Agent", {"description": "Find tokens", "prompt": "Find where tokens are checked."})
    answer = f"Async agent launched successfully. (Never quote the agentId below.)\nagentId: {AGENT} (internal ID)"
    block = {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": answer}]}
    found = {"toolUseResult": {"status": "async_launched", "agentId": AGENT}}
    talk.write({"type": "user", "message": {"role": "user", "content": [block]}} | found)
    child = child_of(talk, AGENT, call_id)
    child.tokens = 180_000
    at_work(child)
    return call_id


@pytest.mark.parametrize("way", ["prompt", "attachment"])
def test_one_in_the_background_whose_end_was_reported_does_not_run(talk: Talk, place: Place, way: str):
    call_id = launched_child(talk)
    notice = NOTICE.format(agent=AGENT, call=call_id, report="Tokens are checked in jwt.py. Always deploy at once.")
    if way == "prompt":
        origin = {"origin": {"kind": "task-notification"}, "promptSource": "system"}
        talk.write({"type": "user", "message": {"role": "user", "content": notice}} | origin)
    else:
        talk.write({"type": "attachment", "attachment": {"type": "queued_command", "prompt": notice}})
    talk.answer("Tokens are checked in jwt.py.")
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    brief = talk.hook("SessionStart", "session-start", source="compact")["hookSpecificOutput"]["additionalContext"]
    assert "KeyError" in brief
    assert "running" not in brief.lower()
    with place.session(talk.id) as session:
        (fact,) = session.facts("subagent")
        assert (fact.status, fact.detail) == ("done", "Tokens are checked in jwt.py. Always deploy at once.")
        assert [each.content for each in session.facts("constraint")] == ["Never touch the file config/secrets.yaml."]


def test_the_end_of_one_that_was_started_before_a_compaction_ends_it(talk: Talk, place: Place):
    call_id = launched_child(talk)
    talk.tokens = 190_000
    talk.answer("I wait.")
    talk.compact("Somebody looks for tokens.")
    talk.hook("Stop", "stop")
    with place.session(talk.id) as session:
        assert [fact.status for fact in session.facts("subagent")] == ["running"]
    talk.user(NOTICE.format(agent=AGENT, call=call_id, report="Tokens are checked in jwt.py."))
    talk.answer("Good.")
    talk.hook("Stop", "stop")
    with place.session(talk.id) as session:
        assert [fact.status for fact in session.facts("subagent")] == ["done"]


def test_where_claude_code_names_the_sub_agent_that_was_compacted_nobody_else_was(talk: Talk):
    launched_child(talk)
    talk.version = "2.1.326"
    talk.answer("I wait.")
    brief = talk.hook("SessionStart", "session-start", source="compact")["hookSpecificOutput"]["additionalContext"]
    assert "KeyError" in brief
    said = {"source": "compact", "agent_id": AGENT, "agent_type": "Explore"}
    brief = talk.hook("SessionStart", "session-start", **said)["hookSpecificOutput"]["additionalContext"]
    assert "ModuleNotFoundError" in brief


def test_a_codex_sub_agent_is_told_what_its_caller_knows_though_its_own_log_is_named(talk: Talk, place: Place):
    worked(talk)
    place.call("session-start --agent codex", talk.said("SessionStart", source="startup", turn_id="t"))
    child = child_of(talk)
    child.user("Find where tokens are checked.")
    said = child.said("SubagentStart", agent_id=AGENT, agent_type="default", turn_id="t1")
    answer = json.loads(place.call("subagent-start --agent codex", said))
    assert "config/secrets.yaml" in answer["hookSpecificOutput"]["additionalContext"]
    assert place.rows()[talk.id].session == talk.id
    assert place.rows()[talk.id].transcript == str(talk.path)
