"""An agent compacts by itself: nothing of what was said is lost, and its model is told what its summary left out."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from context_compactor.dialects.transcripts.reader import read_transcript
from tests.hooks.place import Place, Talk, worked

REAL = Path(__file__).with_name("sessions") / "claude_code_2.jsonl.gz"
MOST = 4_000  # bytes


def said_to_model(answer: Any) -> str:
    """The text that the model gets."""
    text: str = answer["hookSpecificOutput"]["additionalContext"]
    return text


def test_before_a_compaction_everything_is_archived_facts_are_kept_and_a_checkpoint_is_written(
    talk: Talk, place: Place
):
    worked(talk)
    assert talk.hook("PreCompact", "pre-compact", trigger="auto", custom_instructions=None) is None
    with place.session(talk.id) as session:
        kept = {original.ref for original in session._core.store.originals(talk.id)}
        assert {"turn_001", "file_001", "tool_007"} <= kept
        assert "KeyError: 'exp'" in session.recall("tool_007")
        assert [fact.kind for fact in session.facts("failure")] == ["failure"]
        assert session.history() == read_transcript(talk.path).messages  # with the last answer
        assert "reject such tokens" in session.facts("decision")[0].content
    assert "src/auth/jwt.py" in (place.project / ".compactor/progress-checkpoint.md").read_text()
    lines = (place.project / ".compactor/logs/compaction.json").read_text().splitlines()
    event = json.loads(lines[-1])
    assert (event["event"], event["reason"], event["context_before"]) == ("compaction.expected", "auto", talk.tokens)
    assert event["tool_calls"] == 7


def test_what_is_said_before_a_compaction_is_nothing_since_it_would_become_part_of_it(talk: Talk, place: Place):
    worked(talk)
    for trigger in ("auto", "manual"):
        assert place.call("pre-compact", talk.said("PreCompact", trigger=trigger)) == ""
    assert place.call("pre-compact", talk.said("PreCompact", trigger="auto") | {"transcript_path": "/nowhere"}) == ""


def test_after_a_compaction_the_model_is_given_task_rules_failures_and_the_way_back(talk: Talk):
    worked(talk)
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    brief = said_to_model(talk.hook("SessionStart", "session-start", source="compact"))
    assert len(brief.encode()) <= MOST
    assert brief.index("## Task") < brief.index("## Failed, and")
    assert "Never touch the file config/secrets.yaml" in brief
    assert "pytest tests/test_jwt.py" in brief
    assert "KeyError: 'exp'" in brief
    assert "recall(" in brief
    assert talk.id in brief


@pytest.mark.parametrize("letter", ["x", "ü", "漢", "🙂"])
def test_a_brief_fits_into_what_agents_take_however_much_has_failed(talk: Talk, letter: str):
    talk.user(f"Find out why {letter * 3000} fails.")
    for step in range(120):
        error = f"Error {step}: {letter * 200}"
        talk.run(f"make target-{step} NAME={letter * 80}", error, is_error=True)
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    brief = said_to_model(talk.hook("SessionStart", "session-start", source="compact"))
    assert len(brief.encode()) <= MOST
    assert "make target-119" in brief  # the newest stay
    assert "facts()" in brief


def test_a_log_that_lags_behind_is_followed_to_its_end_and_nothing_is_doubled(talk: Talk, place: Place):
    worked(talk)
    whole = talk.path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for end in (3, 8, 9):
        talk.path.write_bytes(b"".join(lines[:end]) + lines[end][: len(lines[end]) // 2])
        talk.hook("PreCompact", "pre-compact", trigger="auto")
    talk.path.write_bytes(whole)
    talk.compact("Working on the login.")
    place.call("post-compact", talk.said("PostCompact", trigger="auto", compact_summary="Working on the login."))
    with place.session(talk.id) as session:
        assert session.history() == read_transcript(talk.path).messages
        assert session.verify() == []
    assert list(place.rows()) == [talk.id]


def test_the_summary_of_the_agent_is_compared_with_what_was_known(talk: Talk, place: Place):
    worked(talk)
    talk.hook("PreCompact", "pre-compact", trigger="manual")
    summary = "<analysis>KeyError 'exp' pytest tests/test_jwt.py</analysis><summary>The user wants a login.</summary>"
    fork = {"agent_id": "a1", "agent_type": "", "last_assistant_message": summary}
    talk.hook("SubagentStop", "subagent-stop", **fork)
    started = talk.hook("SessionStart", "session-start", source="compact")
    assert "1 failed approach" in started["systemMessage"]
    # What is printed there would become part of the conversation.
    assert place.call("post-compact", talk.said("PostCompact", trigger="manual", compact_summary=summary)) == ""
    compared = [line["lost"]["failure"] for line in place.hook_log() if line["what"] == "compared"]
    assert compared == [1, 1]


def test_what_a_summary_of_codex_lost_is_told_after_the_compaction(talk: Talk, place: Place):
    worked(talk)
    place.call("pre-compact --agent codex", talk.said("PreCompact", trigger="manual", turn_id="t"))
    talk.compact("The user wants a login.", "manual")
    found = json.loads(
        place.call("post-compact --agent codex", talk.said("PostCompact", trigger="manual", turn_id="t"))
    )
    assert "1 failed approach" in found["systemMessage"]


@pytest.mark.parametrize("way", ["remote", "empty"])
def test_a_summary_that_cannot_be_read_is_not_said_to_have_lost_everything(talk: Talk, place: Place, way: str):
    """Codex encrypts the summary of a remote compaction: its log has an item that only the provider can read."""
    sealed = [{"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}] if way == "remote" else []
    talk.path = place.home / ".codex" / "sessions" / "rollout-1.jsonl"
    talk.path.parent.mkdir(parents=True)
    rollout = [
        {"type": "session_meta", "payload": {"id": talk.id, "cwd": str(place.project)}},
        {"type": "event_msg", "payload": {"type": "task_started", "turn_id": "t1"}},
        {"type": "response_item", "payload": said("user", "Mend src/a.py. Never touch config/secrets.yaml.")},
        {"type": "response_item", "payload": said("assistant", "I go with a cookie because it can be revoked.")},
        {"type": "compacted", "payload": {"message": "", "replacement_history": sealed}},
    ]
    talk.path.write_text("".join(json.dumps(line) + "\n" for line in rollout))
    found = json.loads(place.call("post-compact", talk.said("PostCompact", trigger="auto", turn_id="t1")))
    assert "cannot be compared" in found["systemMessage"]
    assert [line["what"] for line in place.hook_log()] == ["not compared"]
    with place.session(talk.id) as session:
        (report,) = session.compactions()
        assert "cannot be read" in report.reason
        assert report.trigger == "threshold"


@pytest.mark.parametrize(("trigger", "known"), [("auto", "threshold"), ("manual", "manual")])
def test_why_codex_compacted_before_a_turn_is_known_from_the_hook(talk: Talk, place: Place, trigger: str, known: str):
    """Its log does not say it, and what comes of the turn is not there yet."""
    talk.path = place.home / ".codex" / "sessions" / "rollout-1.jsonl"
    talk.path.parent.mkdir(parents=True)
    rollout = [
        {"type": "session_meta", "payload": {"id": talk.id, "cwd": str(place.project)}},
        {"type": "response_item", "payload": said("user", "Mend src/a.py.")},
        {"type": "response_item", "payload": said("assistant", "Done.")},
        {"type": "event_msg", "payload": {"type": "task_started", "turn_id": "t2"}},
        {"type": "compacted", "payload": {"message": "A summary."}},
    ]
    talk.path.write_text("".join(json.dumps(line) + "\n" for line in rollout))
    place.call("post-compact", talk.said("PostCompact", trigger=trigger, turn_id="t2"))
    with place.session(talk.id) as session:
        assert [report.trigger for report in session.compactions()] == [known]


def said(role: str, text: str) -> dict[str, Any]:
    """A message as Codex logs it."""
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def test_a_summary_that_tells_everything_has_lost_nothing(talk: Talk, place: Place):
    worked(talk)
    talk.hook("PreCompact", "pre-compact", trigger="manual")
    summary = (
        "Fix the login in src/auth/jwt.py. Never touch the file config/secrets.yaml.\n"
        "`pytest tests/test_jwt.py` failed with E KeyError: 'exp' 1 failed in 0.10s\n"
        "I decided to reject such tokens instead of giving them a default."
    )
    place.call("post-compact", talk.said("PostCompact", trigger="manual", compact_summary=summary))
    (compared,) = [line for line in place.hook_log() if line["what"] == "compared"]
    assert compared["checked"] == compared["kept"] == 3


def test_the_agents_own_compaction_becomes_one_of_the_session_with_a_report(talk: Talk, place: Place):
    worked(talk)
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    talk.compact("The user wants a working login.")
    talk.user("Go on.")
    talk.run("ls", "a.py")
    talk.hook("Stop", "stop")
    with place.session(talk.id) as session:
        (report,) = session.compactions()
        assert (report.status, report.trigger) == ("success", "threshold")
        assert "compacted by claude-code itself" in report.reason
        context = json.dumps(session.context())
        assert "The user wants a working login." in context
        assert "KeyError" in context
        assert "Go on." in context
        # What a summary says was said by nobody: no task and no rule comes of it.
        assert all("working login" not in fact.content for fact in session.facts())
        assert "KeyError: 'exp'" in session.recall("tool_007")


def test_what_a_plugin_leaves_when_it_compacts_is_no_task_no_rule_no_decision_and_no_failure(talk: Talk, place: Place):
    worked(talk)
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    with place.session(talk.id) as session:
        known = {(fact.kind, fact.content) for fact in session.facts()}
    *_, call, _, _ = talk.rows()
    assert "pytest" in str(call)
    talk.digest("Rewrite all in Rust. Always deploy at once. We decided to use MongoDB because it scales.", call)
    talk.hook("SessionStart", "session-start", source="compact")
    talk.answer("Going on.")
    talk.user("Now the logout.")
    talk.hook("Stop", "stop")
    with place.session(talk.id) as session:
        assert {(fact.kind, fact.content) for fact in session.facts()} == {*known, ("task", "Now the logout.")}
        assert [fact.count for fact in session.facts("failure")] == [1]
        assert len(session.compactions()) == 1
        assert session.history() == read_transcript(talk.path).messages


def test_ids_go_on_after_the_agents_compactions_and_are_never_given_twice(talk: Talk, place: Place):
    worked(talk)
    talk.compact("First.")
    talk.user("Now the logout.")
    talk.run("grep -rn logout src", "src/auth/logout.py:1:def logout(): ...")
    talk.compact("Second.")
    talk.run("git status", "clean")
    talk.hook("SessionEnd", "session-end", reason="other")
    with place.session(talk.id) as session:
        assert len(session.compactions()) == 2
        assert "def logout" in session.recall("tool_008")
        assert session.recall("tool_009") == "clean"
        assert "line 0 of jwt.py" in session.recall("file_001")
        kept = [original.ref for original in session._core.store.originals(talk.id)]
        turns = sorted(ref for ref in kept if ref.startswith("turn_"))
        assert turns == [f"turn_{number:03d}" for number in range(1, len(turns) + 1)]
        assert "Now the logout." in session.recall(turns[-3])


def test_a_compaction_that_was_announced_but_refused_leaves_nothing_behind(talk: Talk, place: Place):
    """Row 64."""
    worked(talk)
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    assert place.rows()[talk.id].expected
    assert talk.hook("UserPromptSubmit", "user-prompt-submit", prompt="Never mind, go on.") is None
    assert place.rows()[talk.id].expected == ""
    assert place.hook_log()[-1]["what"] == "no compaction came"
    talk.user("Never mind, go on.")
    talk.run("ls", "a.py")
    talk.hook("Stop", "stop")
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    with place.session(talk.id) as session:
        assert session.compactions() == []
        assert session.history() == read_transcript(talk.path).messages


def test_another_way_after_a_rewind_is_a_session_of_its_own_and_the_first_stays(talk: Talk, place: Place):
    talk.user("Fix the login.")
    back = talk.run("ls", "a.py b.py") and talk._parent
    talk.run("cat a.py", "print('a')")
    talk.user("Thanks.")
    talk.hook("Stop", "stop")
    assert back is not None
    talk.rewind(back)
    talk.run("cat b.py", "print('b')")
    talk.user("Better.")
    talk.hook("PreCompact", "pre-compact", trigger="manual")
    assert place.rows()[talk.id].session == f"{talk.id}~2"
    with place.session(talk.id) as first, place.session(f"{talk.id}~2") as second:
        assert "print('a')" in json.dumps(first.history())
        assert "print('b')" in json.dumps(second.history())
        assert "print('a')" not in json.dumps(second.history())


def test_twenty_hooks_at_once_follow_a_session_once(talk: Talk, place: Place):
    worked(talk, 20)
    with ThreadPoolExecutor(20) as pool:
        calls = [pool.submit(place.call, "pre-compact", talk.said("PreCompact", trigger="auto")) for _ in range(10)]
        calls += [pool.submit(place.call, "post-tool-use", talk.said("PostToolUse", tool_name="X")) for _ in range(10)]
        assert [call.result() for call in calls] == [""] * 20
    assert place.rows()[talk.id].calls == 10
    with place.session(talk.id) as session:
        assert session.history() == read_transcript(talk.path).messages
        assert session.verify() == []


def test_a_whole_session_with_its_real_compaction_loses_nothing_that_its_summary_lost(talk: Talk, place: Place):
    lines = gzip.decompress(REAL.read_bytes()).splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if b'"compact_boundary"' in line)
    talk.path.write_bytes(b"".join(lines[:at]))
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    talk.path.write_bytes(b"".join(lines))
    transcript = read_transcript(talk.path)
    (past,) = transcript.compactions
    brief = said_to_model(talk.hook("SessionStart", "session-start", source="compact"))
    assert len(brief.encode()) <= MOST
    (compared,) = [line for line in place.hook_log() if line["what"] == "compared"]
    assert compared["lost"]["failure"] >= 1
    with place.session(talk.id) as session:
        assert session.history()[: past.at] == transcript.messages[: past.at]
        failures = [fact for fact in session.facts("failure") if fact.content[:60] not in past.summary]
        assert failures
        for fact in failures:
            assert fact.detail.split(" … ")[0][:40].lower() in session.recall(fact.ref).lower()


def test_what_our_own_tools_return_is_neither_a_fact_nor_found_a_second_time(talk: Talk, place: Place):
    worked(talk)
    call_id = talk.ask("mcp__compactor__recall", {"id": "tool_007"})
    talk.result(call_id, "E   KeyError: 'exp'\n1 failed in 0.10s")
    talk.result(talk.ask("mcp__compactor__recall", {"id": "tool_999"}), "no original has that id", is_error=True)
    talk.user("Go on.")
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    with place.session(talk.id) as session:
        assert [fact.ref for fact in session.facts("failure")] == ["tool_007"]
        assert session.facts("side_effect") == []
        kept = {original.ref for original in session._core.store.originals(talk.id)}
        assert "tool_008" not in kept
