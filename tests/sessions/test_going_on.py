"""Checkpoint, resume, fresh window and handoff of a session."""

from __future__ import annotations

import json

import pytest

from context_compactor import BadInput, Session, Settings
from context_compactor.handoff.checkpoint_text import parse_checkpoint
from context_compactor.handoff.context_summary import count_tokens
from tests.engine import promises
from tests.engine.talks import bash, talk_in
from tests.failures.scenarios import fill, seen, working

QUIET = Settings(idle_seconds=0)


@pytest.fixture
def project(tmp_path):
    return tmp_path


def opened(project, name="run", window=12_000, settings=QUIET):
    store = f"sqlite:///{project}/.compactor/compactor.db"
    return Session.open(name, window=window, store=store, settings=settings)


def checkpoint_file(project):
    return project / ".compactor/progress-checkpoint.md"


def test_a_checkpoint_is_written_before_every_compaction_and_on_demand(project):
    with opened(project) as session:
        session.append(working("anthropic", 4).messages)
        assert not checkpoint_file(project).exists()
        report = session.compact(level="emergency")
        assert report.checkpoint == str(checkpoint_file(project))
        first = parse_checkpoint(checkpoint_file(project).read_text())
        assert first.session_id == "run"
        made = session.checkpoint(note="Mind the gap.")
        assert parse_checkpoint(checkpoint_file(project).read_text()) == made
        assert made.note == "Mind the gap."
        assert "Recovery" in checkpoint_file(project).read_text()[:2_000]


def test_a_checkpoint_tells_what_happened(project):
    with opened(project) as session:
        session.append(talk_in("anthropic").user("Add refresh tokens.").step(text="The tokens rotate now.").messages)
        session.checkpoint()
    text = parse_checkpoint(checkpoint_file(project).read_text()).told
    assert text == ('Task: "Add refresh tokens."', "The tokens rotate now.")


def test_resume_says_ready_and_what_to_begin_with(project):
    with opened(project) as session:
        talk = talk_in("anthropic").user("Add refresh tokens. Never touch legacy/.")
        talk.step(bash("make it", "error: no rule\nexit code 2", failed=True))
        session.append(fill(talk, 30).step(text="All of it is done.").messages)
        session.checkpoint()
    with opened(project) as session:
        readiness = session.resume()
    assert readiness.status == "ready", readiness.reasons
    assert "Never touch legacy/." in readiness.brief
    assert "no rule" in readiness.brief
    assert count_tokens(readiness.brief) <= 2_000


def test_a_session_that_another_process_has_open_blocks_the_resume(project):
    with opened(project) as first:
        first.append({"role": "user", "content": "Hello."})
        with opened(project) as second:
            readiness = second.resume()
    assert readiness.status == "blocked"


def test_a_corrupted_checkpoint_is_reported_and_rebuilt_from_the_store(project):
    with opened(project) as session:
        session.append(fill(talk_in("anthropic").user("Add refresh tokens."), 10).messages)
        session.checkpoint()
        text = checkpoint_file(project).read_text()
        checkpoint_file(project).write_text(text[: len(text) // 2])
        readiness = session.resume()
        assert readiness.status == "needs_attention"
        assert any("rebuilt" in reason.what for reason in readiness.reasons)
        assert "Add refresh tokens." in parse_checkpoint(checkpoint_file(project).read_text()).task


def test_each_session_of_a_project_resumes_from_its_own_checkpoint(project):
    for name in ("one", "two"):
        with opened(project, name) as session:
            session.append({"role": "user", "content": f"Do the work of {name}."})
            session.checkpoint()
    with opened(project, "one") as session:
        readiness = session.resume()
    assert readiness.status != "blocked", readiness.reasons
    assert "Do the work of one." in readiness.brief


def test_a_fresh_window_is_opened_by_itself_when_an_emergency_compaction_does_not_help(project):
    rules = "Mind the rule. " * 2_600
    with opened(project) as session:
        messages = [{"role": "system", "content": rules}, *fill(talk_in("openai-chat").user("Look."), 20).messages]
        reports = [report for report in map(session.append, messages) if report]
        assert any("fresh window was opened" in report.reason for report in reports)
        assert session.usage().share < 0.8
        assert session.recall("turn_000").count("Mind the rule.") == 2_600
        assert "Look." in seen(session.context(), "openai-chat")


def test_a_fresh_window_can_be_asked_for(project):
    with opened(project, window=60_000) as session:
        session.append(fill(working("anthropic", 12), 40, 12).messages)
        before = session.usage().tokens
        report = session.fresh()
        assert report.changed
        assert session.usage().tokens < before / 3
        session.undo()
        assert session.usage().tokens == before


def test_a_handoff_compacts_first_and_fits_into_500_tokens(project):
    with opened(project, window=30_000, settings=Settings(idle_seconds=0, automatic=False)) as session:
        session.append(fill(working("anthropic", 12), 60, 12).messages)
        before = session.usage().tokens
        request = session.handoff("write", task="Write the handler.")
        assert session.usage().tokens < before
        assert session.compactions()[-1].trigger == "pre_handoff"
        assert count_tokens(request.context_summary) <= 500
        assert request.phase == "write"
        with pytest.raises(BadInput, match="research, write, validate, parallel"):
            session.handoff("dance")


def test_an_answer_leaves_a_few_hundred_tokens_and_its_whole_text_behind_a_reference(project):
    findings = {f"finding_{number}": "The cache is warmed by the worker. " * 30 for number in range(8)}
    answer = {
        "task_id": "research-1",
        "phase": "research",
        "status": "complete",
        "decision": "PROCEED",
        "findings": findings,
        "context_summary": "The cache is warmed in src/worker/cache.py. Follow warm_up().",
        "tokens_used": 15_000,
    }
    with opened(project) as session:
        session.append({"role": "user", "content": "Speed up the start."})
        session.handoff("research", task_id="research-1")
        extracted = session.receive(json.dumps(answer))
        assert extracted.saving > 0.8
        assert json.loads(session.recall(extracted.original.id))["findings"] == findings
        assert extracted.original.id in extracted.reference
        state = session.orchestrator()
        assert state.decisions["research"] == "PROCEED"
        assert not state.subagents.running
        assert session.receive(answer).original is None
        assert session.orchestrator() == state
    with opened(project) as session:
        points = session.points()
        assert points.figures("response_tokens").max > 1_500
        assert points.figures("summary_tokens").max <= 500
        assert points.figures("state_tokens").count == 1
        assert points.figures("tool_calls").count == 1


TASK_RESULT = """## Task Result
**Task ID:** research-1
**Status:** complete
**Summary:** The cache is warmed in src/worker/cache.py. Extend warm_up().
**Files Modified:**
- notes/cache.md (created)
"""


@pytest.mark.parametrize("answer", [TASK_RESULT, TASK_RESULT.replace("**Task ID:** research-1\n", "")])
def test_a_task_result_that_names_no_phase_reaches_the_next_phase(project, answer):
    with opened(project) as session:
        session.append({"role": "user", "content": "Speed up the start."})
        session.handoff("research", task_id="research-1")
        session.receive(answer)
        request = session.handoff("write")
    assert "The cache is warmed in src/worker/cache.py. Extend warm_up()." in request.context_summary
    assert "notes/cache.md" in request.files


@pytest.mark.parametrize(
    ("said", "feature", "spec_path"),
    [
        ("Implement specs/user-auth/requirements.md.", "user-auth", "specs/user-auth/requirements.md"),
        (
            "Do what docs/login-design.md says. Keep it small.",
            "Do what docs/login-design.md says",
            "docs/login-design.md",
        ),
        ("Speed up the start. See README.md.", "Speed up the start", ""),
    ],
)
def test_what_the_work_is_about_is_taken_from_the_user_s_words(project, said, feature, spec_path):
    with opened(project) as session:
        session.append({"role": "user", "content": said})
        request = session.handoff("research")
        assert (request.feature, request.spec_path) == (feature, spec_path)
        named = session.handoff("write", task_id="w", feature="key-rotation")
        assert (named.feature, named.spec_path) == ("key-rotation", "")


RESEARCHED = {
    "task_id": "research-1",
    "phase": "research",
    "status": "complete",
    "decision": "PROCEED",
    "findings": {
        "files_changed": ["notes/cache.md"],
        "errors": ["The profiler is missing on staging."],
        "log": "line after line " * 400,
    },
    "context_summary": "The cache is warmed in src/worker/cache.py. Extend warm_up(), follow retry_later().",
}


def test_what_a_phase_reported_is_part_of_what_the_next_one_is_given(project):
    with opened(project, window=30_000) as session:
        session.append(fill(working("anthropic", 12), 40, 12).messages)
        first = session.handoff("research", task_id="research-1", feature="warm start", spec_path="specs/start.md")
        assert (first.feature, first.spec_path) == ("warm start", "specs/start.md")
        session.receive(RESEARCHED)
    with opened(project) as session:
        request = session.handoff("write", task="Write it.")
        text = request.context_summary
        assert RESEARCHED["context_summary"] in text
        assert "The profiler is missing on staging." in text
        assert text.startswith("# Handoff: write")
        assert "line after line" not in text
        assert count_tokens(text) <= 500
        assert "notes/cache.md" in request.files
        assert request.references[0].startswith("agent_")
        assert "line after line" in session.recall(request.references[0])
        assert (request.feature, request.spec_path) == ("warm start", "specs/start.md")
        assert session.orchestrator().task.feature == "warm start"


def test_long_reports_of_every_phase_leave_room_for_the_conversation_and_stay_within_500_tokens(project):
    with opened(project, window=30_000) as session:
        session.append(fill(working("anthropic", 12), 40, 12).messages)
        for phase in ("research", "write", "parallel"):
            session.handoff(phase, task_id=phase)
            found = f"The {phase} phase extends warm_up() in src/{phase}.py. " * 60
            session.receive({**RESEARCHED, "task_id": phase, "phase": phase, "context_summary": found})
        text = session.handoff("validate").context_summary
        assert count_tokens(text) <= 500
        assert count_tokens(text[: text.index("\n# research\n")]) > 150
        for phase in ("research", "write", "parallel"):
            assert f"src/{phase}.py" in text


def test_tool_calls_of_a_session_are_counted_across_compactions(project):
    with opened(project) as session:
        session.append(fill(talk_in("anthropic").user("Look."), 40).messages)
        session.compact(level="emergency")
        session.append({"role": "user", "content": "And?"})
        assert session.points().figures("tool_calls").total == 40
        assert promises.tokens_of(session.context(), "anthropic") < 12_000
