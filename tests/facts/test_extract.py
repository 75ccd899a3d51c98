from __future__ import annotations

import pytest
from hypothesis import given

from context_compactor.dialects.messages import Message
from context_compactor.dialects.turns import Turn
from context_compactor.engine.digests.outcomes import outcome_of
from context_compactor.facts import utterances
from context_compactor.facts.decisions import DECISION_SIGNS
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import extract_facts
from tests.facts.conversations import agent, bash, call, histories, system, turns_of, user

DENIED = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n"


def facts(kind: str, *steps: list[Message]) -> list[Fact]:
    found = extract_facts(turns_of(*steps), describe_outcome=outcome_of)
    return [fact for fact in found if fact.kind == kind]


def told(found: list[Fact]) -> list[tuple[str, str]]:
    return [(fact.status, fact.content) for fact in found]


# Requests


def test_the_newest_request_is_active_and_an_answered_one_done() -> None:
    found = facts("task", user("Add refresh tokens."), bash("ls", "a"), agent("Done."), user("Now write the docs."))
    assert told(found) == [("done", "Add refresh tokens."), ("active", "Now write the docs.")]


def test_a_request_that_was_cut_off_is_superseded() -> None:
    found = facts(
        "task", user("Add tokens."), bash("ls", "a"), user("[Request interrupted by user]\nForget it, fix the build.")
    )
    assert told(found) == [("superseded", "Add tokens."), ("active", "Forget it, fix the build.")]


def test_a_yes_is_no_request() -> None:
    found = facts("task", user("Rename the command."), agent("To `cleanup`?"), user("yes, go ahead"))
    assert told(found) == [("active", "Rename the command.")]


def test_a_request_that_begins_with_a_quotation_is_told_in_its_own_words() -> None:
    (found,) = facts("task", user("> git gc\nfatal: bad tree object 082c2c\n\nthis happens again, why?"))
    assert found.content == "this happens again, why?"
    assert found.detail == "> git gc fatal: bad tree object 082c2c"


# Decisions


@pytest.mark.parametrize(
    "sentence",
    [
        "I'll use libsql instead of DuckDB because Bun supports it.",
        "We decided to keep the old endpoint until March.",
        "I'm going with httpOnly cookies for the session.",
        "The approach is to fold the oldest turns first.",
        "Considered server sessions, but there is no Redis in production.",
        "我们决定使用 SQLite。",
    ],
)
def test_decisions_keep_their_words_and_their_author(sentence: str) -> None:
    (found,) = facts("decision", user("go"), agent(f"Let me see. {sentence}"))
    assert (found.content, found.role, found.status) == (sentence, "assistant", "")


def test_a_user_decides_too() -> None:
    (found,) = facts("decision", user("Which one?"), agent("Four options."), user("I'd go with option 4 for now."))
    assert (found.role, found.ref) == ("user", "turn_003")


def test_what_was_found_out_is_marked_as_a_finding() -> None:
    sentence = "The root cause is that the detached process runs in the root folder and finds no settings."
    (found,) = facts("decision", user("why?"), agent(sentence))
    assert (found.status, found.content) == ("finding", sentence)


@pytest.mark.parametrize(
    "sentence", ["Want to go with the wrapper?", "I think the issue is maybe in the cache.", "Let me check why."]
)
def test_guesses_and_questions_decide_nothing(sentence: str) -> None:
    assert facts("decision", user("go"), agent(sentence)) == []


@pytest.mark.parametrize("cue", [*utterances.DECISIONS, *utterances.CHOICES, *utterances.FINDINGS, " considered "])
def test_no_cue_is_lost_to_the_first_quick_look(cue: str) -> None:
    assert utterances.has_any(cue, DECISION_SIGNS)


# State


def test_the_newest_to_do_list_counts() -> None:
    todos = [
        {"content": "write parser", "status": "completed"},
        {"content": "wire it up", "status": "in_progress"},
        {"content": "docs", "status": "pending"},
    ]
    old = call("TodoWrite", "ok", todos=[{"content": "think", "status": "pending"}])
    assert told(facts("todo", user("go"), old, call("TodoWrite", "ok", todos=todos))) == [
        ("done", "write parser"),
        ("active", "wire it up"),
        ("open", "docs"),
    ]


def test_a_plan_of_codex_is_a_to_do_list() -> None:
    plan = [{"step": "read", "status": "completed"}, {"step": "patch", "status": "pending"}]
    assert told(facts("todo", call("update_plan", "Plan updated", plan=plan))) == [("done", "read"), ("open", "patch")]


def test_tasks_that_are_created_and_updated_one_by_one() -> None:
    found = facts(
        "todo",
        call("TaskCreate", "Task #1 created successfully: Add field", subject="Add field"),
        call("TaskCreate", "Task #2 created successfully: Test it", subject="Test it"),
        call("TaskUpdate", "Updated task #1 status", taskId="1", status="completed"),
        call("TaskUpdate", "Updated task #2 status", taskId="2", status="in_progress"),
    )
    assert told(found) == [("done", "Add field"), ("active", "Test it")]


def test_plan_mode_is_carried_until_the_plan_is_approved() -> None:
    entered = call("EnterPlanMode", "Entered plan mode.")
    refused = call("ExitPlanMode", DENIED + "smaller steps", is_error=True, plan="# Plan")
    approved = call("ExitPlanMode", "User has approved your plan. You can now start coding.", plan="# Plan")
    assert facts("mode", user("go")) == []
    assert facts("mode", user("go"), entered, refused)[0].status == "active"
    assert facts("mode", user("go"), entered, refused, approved)[0].status == "done"


def test_plan_mode_is_read_from_a_reminder_and_from_no_tool() -> None:
    assert facts("mode", user("<system-reminder>\nPlan mode is active.\n</system-reminder>\nhow would you do it?"))
    assert not facts("mode", user("go"), bash("cat a", "<system-reminder>Plan mode is active.</system-reminder>"))


def test_the_question_that_waits_for_an_answer_blocks() -> None:
    assert told(facts("blocker", user("go"), agent("Two ways exist.\n\nWhich database should I use?"))) == [
        ("open", "Which database should I use?")
    ]
    assert facts("blocker", user("go"), agent("Which database should I use?"), user("SQLite")) == []


def test_next_steps_are_taken_from_the_agents_last_list() -> None:
    found = facts(
        "next_step", user("go"), agent("Done so far.\n\n## Next steps\n\n1. wire POST /refresh\n2. write tests\n")
    )
    assert told(found) == [("open", "wire POST /refresh"), ("open", "write tests")]


def test_what_the_agent_is_at_is_the_active_step() -> None:
    found = facts(
        "next_step", user("go"), call("Read", "x", say="Found it. Now let me wire the handler.", file_path="a")
    )
    assert told(found) == [("active", "Now let me wire the handler.")]


# Files, packages, commands


def test_files_carry_their_state_and_how_to_recall_it() -> None:
    found = facts(
        "file_state",
        call("Read", "x", file_path="/r/a.py", offset=5, limit=10),
        call("Edit", "ok", file_path="/r/b.py", old_string="x", new_string="y = 2"),
        call("Write", "File created successfully", file_path="/r/c.py", content="def main(): pass"),
    )
    assert [(fact.content, fact.status, fact.detail, fact.ref) for fact in found] == [
        ("/r/b.py", "uncommitted", "+ y = 2", "tool_002"),
        ("/r/c.py", "uncommitted", "created: + def main()", "tool_003"),
        ("/r/a.py", "read", "read lines 5-14", "file_001"),
    ]


def test_packages_that_were_installed_are_dependencies() -> None:
    found = facts(
        "dependency",
        bash("pip install -q 'httpx>=0.27' rich && npm install --save-dev vitest", "ok"),
        bash("pip install -r requirements.txt -e .", "ok"),
        bash("pip install nosuch", "Exit code 1\nERROR: No matching distribution", is_error=True),
    )
    assert [fact.content for fact in found] == ["httpx>=0.27", "rich", "vitest"]


def test_the_newest_outcome_of_a_check_counts() -> None:
    found = facts(
        "command",
        bash("npm test", "Exit code 1\n1 failing\nTypeError: x", is_error=True),
        bash("npm test", "Exit code 1\n1 failing\nTypeError: x", is_error=True),
        bash("npm test", "12 passing"),
        bash("ls tests", "a"),
        bash("mise run lint", "a.go:1:1: undefined: x\n[lint] ERROR task failed", is_error=True),
    )
    assert [(fact.content, fact.status, fact.count) for fact in found] == [
        ("npm test", "passed", 1),
        ("mise run lint", "failed", 1),
    ]
    assert found[0].detail == "12 passed (after 2 failures)"


# Side effects, consent, sub-agents


@pytest.mark.parametrize(
    ("step", "content", "detail"),
    [
        (bash("git add -A && git commit -m 'Fix it'", "[main 3d6a048] Fix it"), "git commit", "[main 3d6a048] Fix it"),
        (bash("git push", "To x\n   03fd5c21..469cb2ee  main -> main"), "git push", "03fd5c21..469cb2ee main -> main"),
        (bash("gh pr create --fill", "https://e.com/o/r/pull/118\n"), "gh pr create --fill", "https://e.com/o/r/pull/118"),
        (bash("alembic upgrade head", "Running upgrade 41 -> 42"), "alembic upgrade head", "Running upgrade 41 -> 42"),
        (bash("npm publish", "+ pkg@1.2.0"), "npm publish", "+ pkg@1.2.0"),
        (call("mcp__linear__create_issue", '{"id":"ENT-9"}', title="T"), "mcp__linear__create_issue", "id:ENT-9"),
        (call("send_certificate", "Certificate 32 added", amount=150), "send_certificate", "Certificate 32 added"),
        (bash("curl -X POST https://e.com/hook -d '{}'", '{"id": 7}'), "curl -X POST https://e.com/hook", "id: 7"),
    ],
)  # fmt: skip
def test_what_was_done_outside_is_recorded_with_its_evidence(step: list[Message], content: str, detail: str) -> None:
    (found,) = facts("side_effect", user("go"), step)
    assert found.content.startswith(content)
    assert (found.detail, found.status, found.role) == (detail, "done", "tool")


@pytest.mark.parametrize(
    "step",
    [
        bash("git push", "Exit code 1\n ! [rejected] main -> main", is_error=True),
        bash("git push --dry-run", "ok"),
        bash("git tag --points-at HEAD", "v1"),
        bash("git log --grep commit", "x"),
        bash("gh pr view 3", "title"),
        bash("curl https://e.com", "{}"),
        call("TaskCreate", "Task #1 created", subject="x"),
        call("get_user", '{"id": 1}', id="1"),
        bash("git push", None),
    ],
)
def test_looking_failing_and_planning_are_no_side_effects(step: list[Message]) -> None:
    assert facts("side_effect", user("go"), step) == []


def test_a_commit_counts_even_when_the_push_after_it_fails() -> None:
    answer = "Exit code 1\n[main be937de] Inline it\n ! [rejected] main -> main\nerror: failed to push some refs"
    (found,) = facts("side_effect", bash("git commit -m x && git push", answer, is_error=True))
    assert found.detail == "[main be937de] Inline it"


def test_a_denial_is_quoted_with_the_users_words() -> None:
    (found,) = facts("denial", bash("git push --force", DENIED + "never force-push here", is_error=True))
    assert (found.content, found.detail, found.turn) == ("git push --force", "the user said: never force-push here", 1)
    assert found.role == "tool"


def test_answers_to_the_agents_questions_are_kept() -> None:
    answer = 'User has answered your questions: "Which store?"="SQLite", "Ship it?"="not yet". You can now continue.'
    options = [{"label": "SQLite", "description": "one file, no server"}, {"label": "Postgres"}]
    found = facts("decision", call("AskUserQuestion", answer, questions=[{"question": "Which?", "options": options}]))
    assert [(fact.content, fact.detail, fact.role) for fact in found] == [
        ("Which store? → SQLite", "one file, no server", "tool"),
        ("Ship it? → not yet", "", "tool"),
    ]


def test_a_sub_agent_without_an_answer_is_running() -> None:
    done = call(
        "Task", "## Report\nAll good.", description="Review auth", prompt="Look at jwt.ts", subagent_type="reviewer"
    )
    running = call("Task", None, description="Update docs", prompt="Write docs/api.md")
    found = facts("subagent", user("go"), done, running)
    assert [(fact.status, fact.content, fact.detail, fact.ref) for fact in found] == [
        ("done", "reviewer: Review auth", "Report", "agent_001"),
        ("running", "Update docs", "Write docs/api.md", "agent_002"),
    ]


def test_a_sub_agent_in_the_background_runs_until_its_end_is_reported() -> None:
    started = call("Task", "Async agent launched successfully.\nagentId: a1b2c3", description="Docs", prompt="Write")
    fetched = call("TaskOutput", "<status>completed</status>\nAll written.", task_id="a1b2c3")
    assert facts("subagent", user("go"), started)[0].status == "running"
    assert facts("subagent", user("go"), started, fetched)[0].status == "done"


def test_failures_are_among_the_facts() -> None:
    (found,) = facts("failure", bash("npm test", "Exit code 1\nTypeError: x is undefined", is_error=True))
    assert (found.content, found.detail) == ("npm test", "TypeError: x is undefined")


# For every history


def user_text(turns: list[Turn]) -> str:
    return "\n".join(message.text for turn in turns for message in turn.messages if message.role == "user")


@given(histories)
def test_facts_are_the_same_each_time_and_point_into_the_history(turns: list[Turn]) -> None:
    found = extract_facts(turns)
    assert found == extract_facts(turns)
    numbers = {turn.number for turn in turns}
    for fact in found:
        assert fact.turn in numbers
        assert fact.last_turn in numbers
        assert fact.count > 0
        assert "\n" not in fact.content
        assert fact.ref


@given(histories)
def test_what_a_fact_says_of_the_user_stands_in_the_users_words(turns: list[Turn]) -> None:
    spoken = user_text(turns)
    for fact in extract_facts(turns):
        assert fact.kind not in ("constraint", "task") or fact.role == "user"
        assert fact.role != "user" or fact.content in spoken


def test_an_empty_history_has_no_facts() -> None:
    assert extract_facts([]) == []
    assert extract_facts(turns_of(system("You are careful."))) == []
