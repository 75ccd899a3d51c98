from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import BadInput
from context_compactor.archive.originals import Archive
from context_compactor.handoff.context_summary import MOST_TOKENS, count_tokens
from context_compactor.handoff.orchestrator import after, begin, next_request, start, unblock, with_task
from context_compactor.handoff.parser import read_request, read_response
from context_compactor.handoff.protocol import (
    LONGEST_LINE,
    MOST_ERRORS,
    MOST_FILES,
    MOST_FINISHED,
    MOST_RUNNING,
    PHASES,
    HandoffRequest,
    SubAgentRegister,
    read_state,
)

FINDINGS = {
    "existing_implementations": [f"validateToken in src/lib/auth_{at}.ts returns a claim" for at in range(120)],
    "patterns_found": ["httpOnly cookies", "early return"] * 30,
    "files_changed": ["src/lib/auth.ts (created)", {"path": "src/lib/login.ts"}],
    "errors": [
        "KeyError: 'exp' in refresh",
        {"message": "port 80 in use", "resolved": True},
        {"message": "no fixture for login"},
    ],
}
SUMMARY = "JWT auth exists in src/lib/auth.ts. Follow the validateToken pattern."


def request(task_id="research-1", phase="research", task="Find out how login works."):
    return HandoffRequest(task_id, phase, task)


def answer(task_id="research-1", phase="research", decision="PROCEED", **changes):
    fields = {
        "task_id": task_id,
        "phase": phase,
        "status": "complete",
        "decision": decision,
        "findings": FINDINGS,
        "context_summary": SUMMARY,
        "tokens_used": 15_000,
    }
    return read_response(fields | changes)


def begun(*requests):
    state = begin("task-123", "user-auth", "specs/user-auth/requirements.md")
    for each in requests or (request(),):
        state = start(state, each)
    return state


def test_the_state_has_the_shape_that_orchestrators_share():
    state, _ = after(begun(), answer())
    state = start(state, request("write-1", "write", "Add the endpoint."))
    shape = json.loads(state.to_json())
    assert shape["task"] == {
        "id": "task-123",
        "feature": "user-auth",
        "spec_path": "specs/user-auth/requirements.md",
    }
    assert shape["progress"] == {
        "current_phase": "write",
        "completed_phases": ["research"],
        "research_summary": SUMMARY,
        "files_changed": ["src/lib/auth.ts", "src/lib/login.ts"],
        "errors": ["KeyError: 'exp' in refresh", "no fixture for login"],
    }
    assert shape["decisions"] == {"research": "PROCEED", "write": "pending"}


def test_an_answer_leaves_a_fifth_of_itself_or_less_and_the_rest_is_recalled_by_its_reference():
    received = answer()
    state, extracted = after(begun(), received)
    assert extracted.original is not None
    archive = Archive([extracted.original])
    assert archive.find("agent_001").value == received.raw
    assert json.loads(archive.find("agent_001").text) == received.raw
    assert state.subagents.find("research-1").ref == "agent_001"
    assert "patterns_found" not in state.to_json()
    assert extracted.reference.startswith("[archived agent_001: research research-1: complete, PROCEED, ")
    assert extracted.tokens_raw == extracted.original.tokens
    assert extracted.saving > 0.8
    assert extracted.files_of_interest == ("src/lib/auth.ts",)


def test_a_session_s_own_reference_is_used_and_the_next_one_counts_on():
    state, first = after(begun(request("a"), request("b")), answer("a"), ref="agent_025")
    state, second = after(state, answer("b"))
    assert [each.original.id for each in (first, second) if each.original] == ["agent_025", "agent_026"]
    with pytest.raises(BadInput, match="'tool_003' is not the reference of a sub-agent's answer"):
        after(begun(), answer(), ref="tool_003")


def test_the_same_answer_again_changes_nothing():
    state, _ = after(begun(), answer())
    again, extracted = after(state, answer())
    assert again == state
    assert extracted.original is None
    assert extracted.reference == ""


def test_another_answer_to_a_task_that_has_answered_is_refused_until_it_is_started_again():
    state, _ = after(begun(), answer())
    other = answer(context_summary="It is all different.")
    with pytest.raises(BadInput, match=r"'research-1' has already answered differently \(agent_001\)"):
        after(state, other)
    state, extracted = after(start(state, request()), other)
    assert extracted.original is not None
    assert extracted.original.id == "agent_002"
    assert "It is all different." in state.progress.research_summary


def test_an_answer_nobody_waits_for_is_refused_with_those_that_run():
    with pytest.raises(BadInput, match="no sub-agent was started with the task_id 'write-9'; running: research-1"):
        after(begun(), answer("write-9"))
    with pytest.raises(BadInput, match="'research-1' was started in phase research, but its answer says write"):
        after(begun(), answer(phase="write"))


def test_a_phase_with_several_sub_agents_is_complete_when_the_last_has_answered():
    state = begun(*(request(f"p-{at}", "parallel") for at in range(3)))
    for at in (2, 0):
        state, _ = after(state, answer(f"p-{at}", "parallel", context_summary=f"Part {at} uses part_{at}.py."))
    assert state.decisions == {"parallel": "pending"}
    assert state.progress.completed_phases == ()
    assert state.status == "waiting"
    state, _ = after(state, answer("p-1", "parallel", context_summary="Part 1 uses part_1.py."))
    assert state.decisions == {"parallel": "PROCEED"}
    assert state.status == "ready"
    assert state.progress.parallel_summary.split("\n") == [
        "## agent_001", "Part 2 uses part_2.py.", "## agent_002", "Part 0 uses part_0.py.", "## agent_003",
        "Part 1 uses part_1.py.",
    ]  # fmt: skip


def test_sub_agents_of_one_phase_share_its_summary():
    long = "\n".join(f"The rule in src/part_{at}.py must stay." for at in range(100))
    state = begun(*(request(f"p-{at}", "parallel") for at in range(4)))
    for at in range(4):
        state, _ = after(state, answer(f"p-{at}", "parallel", context_summary=f"Part {at} is the risk.\n{long}"))
    summary = state.progress.parallel_summary
    assert count_tokens(summary) <= MOST_TOKENS
    assert [summary.count(f"agent_00{at}") for at in (1, 2, 3, 4)] == [1, 1, 1, 1]


@pytest.mark.parametrize("decision", ["STOP", "CLARIFY"])
def test_a_sub_agent_that_cannot_go_on_blocks_its_phase_until_that_is_settled(decision):
    findings = {"questions": ["Should tokens expire after 15 or 60 minutes?"]}
    state, extracted = after(begun(), answer(decision=decision, status="blocked", findings=findings))
    assert state.status == "blocked"
    assert state.decisions == {"research": decision}
    assert state.blocked[0].asked == extracted.asked == "Should tokens expire after 15 or 60 minutes?"
    with pytest.raises(
        BadInput, match=rf"said {decision} in phase research .*15 or 60.*unblock\(state, 'research-1'\)"
    ):
        start(state, request("write-1", "write"))
    settled = unblock(state, "research-1")
    assert (settled.status, settled.decisions["research"]) == ("ready", "PROCEED")
    assert start(settled, request("write-1", "write")).progress.current_phase == "write"
    with pytest.raises(BadInput, match="'research-1' is not blocking"):
        unblock(settled, "research-1")


def test_asking_a_blocked_sub_agent_again_takes_its_block_away():
    state, _ = after(begun(), answer(decision="CLARIFY"))
    state = start(state, request(task="Find out how login works; tokens live 15 minutes."))
    assert (state.status, state.decisions["research"]) == ("waiting", "pending")


def test_of_two_blocks_the_severer_is_the_decision():
    state = begun(request("a"), request("b"))
    for task_id, decision in (("a", "STOP"), ("b", "CLARIFY")):
        state, _ = after(state, answer(task_id, decision=decision))
    assert state.decisions["research"] == "STOP"
    assert unblock(state, "a").decisions["research"] == "CLARIFY"


def test_without_a_question_the_summary_says_what_is_asked():
    state, _ = after(begun(), answer(decision="STOP", findings={}))
    assert state.blocked[0].asked == SUMMARY


def test_the_next_sub_agent_gets_every_phase_in_one_summary_and_the_references():
    state, _ = after(begun(), answer())
    state, _ = after(start(state, request("w", "write")), answer("w", "write", context_summary="Added login.ts."))
    given_on = next_request(state, "v", "validate", "Run all tests.", constraints=["no network"])
    errors = "\n".join(f"- {error}" for error in state.progress.errors)
    assert given_on.context_summary == f"# research\n{SUMMARY}\n# write\nAdded login.ts.\n# errors\n{errors}"
    assert given_on.references == ("agent_001", "agent_002")
    assert given_on.files == ("src/lib/auth.ts", "src/lib/login.ts")
    assert given_on.constraints == ("no network",)


def test_what_the_work_is_about_is_kept_until_another_feature_is_named():
    state = with_task(begin("t"), "", "specs/user-auth/requirements.md")
    assert (state.task.feature, state.task.spec_path) == ("user-auth", "specs/user-auth/requirements.md")
    assert with_task(state, "", "") == state
    assert with_task(state, "user-auth", "docs/auth.md").task.spec_path == "docs/auth.md"
    other = with_task(state, "billing", "").task
    assert (other.feature, other.spec_path) == ("billing", "")
    asked = next_request(state, "n", "write", "Go on.")
    assert (asked.feature, asked.spec_path) == ("user-auth", "specs/user-auth/requirements.md")
    assert read_request(asked.to_json()).message == asked


@pytest.mark.parametrize("field", ["feature", "spec_path"])
@pytest.mark.parametrize("value", ["x" * 501, "two\nlines", "\x00", 7])
def test_what_cannot_say_what_the_work_is_about_is_refused_with_its_field(field, value):
    with pytest.raises(BadInput, match=f"field '{field}'"):
        HandoffRequest("t", "write", "Go on.", **{field: value})


def test_a_state_survives_its_json_and_a_broken_one_says_where():
    state, _ = after(begun(request("a"), request("b")), answer("a", decision="CLARIFY"))
    assert read_state(state.to_json()) == state
    with pytest.raises(BadInput, match=r"this is not a valid orchestrator state: .*\$\.progress\.current_phase"):
        read_state(state.to_json().replace('"current_phase":"research"', '"current_phase":"lunch"'))
    for broken in ("", "[]", state.to_json()[:-20], b"\xff"):
        with pytest.raises(BadInput, match="this is not a valid orchestrator state"):
            read_state(broken)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from(PHASES),
        st.sampled_from(["PROCEED", "PROCEED", "STOP", "CLARIFY"]),
        st.sampled_from([SUMMARY, "word " * 700, "I never saw src/a.py. " * 90, "\ud800 must stay"]),
        st.sampled_from([{}, FINDINGS, {"files_changed": [f"src/{at}.py" for at in range(150)], "errors": ["x"] * 40}]),
    ),
    max_size=12,
)


@given(STEPS)
def test_a_state_never_leaves_its_bounds_and_survives_its_json(steps):
    state = begin("t" * 900)
    for number, phase, decision, summary, findings in steps:
        state = start(state, request(f"{phase}-{number}", phase, "task " * 200), ["out " * 300] * 9)
        received = answer(f"{phase}-{number}", phase, decision, context_summary=summary, findings=findings)
        state, extracted = after(state, received)
        assert extracted.original is not None
        state = unblock(state, f"{phase}-{number}") if decision != "PROCEED" else state
        progress = state.progress
        assert all(count_tokens(progress.summary(each)) <= MOST_TOKENS for each in PHASES)
        assert len(progress.files_changed) <= MOST_FILES
        assert len(progress.errors) <= MOST_ERRORS
        assert len(state.task.id) <= LONGEST_LINE
        assert count_tokens(next_request(state, "n", "write", "Go on.").context_summary) <= MOST_TOKENS
        assert read_state(state.to_json()).to_json() == state.to_json()


def test_a_register_says_who_runs_and_what_is_expected_and_where_answers_are():
    register = SubAgentRegister().started("a", "Find the leak", ["docs/leak.md"], "research").started("b", "Fix it")
    register = register.finished("b", "failed", "agent_003")
    assert [agent.id for agent in register.running] == ["a"]
    assert register.lines() == [
        "running: a (research): Find the leak; expected: docs/leak.md",
        'failed: b: Fix it [answer: recall("agent_003")]',
    ]


def test_starting_or_finishing_twice_changes_nothing_and_another_task_is_refused():
    register = SubAgentRegister().started("a", "Find the leak")
    assert register.started("a", "Find the leak") == register
    with pytest.raises(BadInput, match="'a' is running with another task"):
        register.started("a", "Something else")
    done = register.finished("a", ref="agent_001")
    assert done.finished("a", "failed") == done
    assert done.started("a", "Once more").running[0].task == "Once more"
    with pytest.raises(BadInput, match="'z'; running: a"):
        register.finished("z")
    with pytest.raises(BadInput, match="needs an id"):
        register.started(" ", "Find the leak")


def test_a_register_holds_no_more_than_it_may():
    register = SubAgentRegister()
    for at in range(MOST_FINISHED + 20):
        register = register.started(f"old-{at}", "done").finished(f"old-{at}")
    assert len(register.agents) == MOST_FINISHED
    for at in range(MOST_RUNNING):
        register = register.started(f"new-{at}", "go")
    with pytest.raises(BadInput, match="50 sub-agents are running"):
        register.started("one-more", "go")
