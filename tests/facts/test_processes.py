"""What still runs, what sub-agents reported, what comes next and what is waited for."""

from __future__ import annotations

from context_compactor.dialects.messages import Message, Text
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import extract_facts
from tests.facts.conversations import agent, bash, call, turns_of, user

STARTED = "Command running in background with ID: b41. Output is being written to: /tmp/tasks/b41.output"


def running(*steps: list[Message]) -> list[tuple[str, str]]:
    found = extract_facts(turns_of(user("go"), *steps))
    return [(fact.content, fact.detail) for fact in found if fact.status == "running" and fact.kind == "command"]


def told(kind: str, *steps: list[Message]) -> list[Fact]:
    return [fact for fact in extract_facts(turns_of(user("go"), *steps)) if fact.kind == kind]


SERVER = call("Bash", STARTED, command="npm run dev -- --port 4000", run_in_background=True)


def test_a_server_in_the_background_runs_until_it_is_stopped() -> None:
    assert running(SERVER) == [("npm run dev -- --port 4000", "port 4000, id b41")]
    assert running(SERVER, call("KillShell", "Successfully killed shell: b41", shell_id="b41")) == []
    assert running(SERVER, bash("kill $(lsof -t -i:4000)", "")) == []


def test_a_command_that_was_put_behind_runs_on() -> None:
    assert running(bash("python -m http.server 8123 &", "[1] 4711")) == [("python -m http.server 8123 &", "id 4711")]
    assert running(bash("python app.py & sleep 2; curl localhost:80; kill $!", "ok")) == []
    assert running(bash("make 2>&1 | tail -3 && echo a&b", "ok")) == []


def test_a_session_runs_until_it_is_seen_to_exit() -> None:
    started = call("exec_command", "Wall time: 1 s\nProcess running with session ID 66547\nOutput:\n", cmd="make watch")
    waiting = call("write_stdin", "Process running with session ID 66547\nOutput:\n", session_id=66547, chars="")
    ended = call("write_stdin", "Process exited with code 0\nOutput:\nok", session_id=66547, chars="")
    assert [content for content, _ in running(started, waiting)] == ["make watch"]
    assert running(started, waiting, ended) == []


def test_a_short_command_that_was_not_waited_for_is_forgotten() -> None:
    started = call("exec_command", "Process running with session ID 71\nOutput:\n", cmd="bd list --json")
    assert running(started) == [("bd list --json", "id 71")]
    assert running(started, *(bash("ls", "a") for _ in range(12))) == []


def test_a_question_that_waits_is_told_with_what_it_points_to() -> None:
    (found,) = told("blocker", agent("I'd suggest one lock per worktree. Want me to make that change?"))
    assert found.content == "I'd suggest one lock per worktree. Want me to make that change?"


def test_a_notice_of_its_end_ends_a_command() -> None:
    notice = "<task-notification>\n<task-id>b41</task-id>\n<status>completed</status>\n</task-notification>"
    assert running(SERVER, user(notice)) == []


def test_a_test_run_in_the_background_has_not_passed() -> None:
    found = told("command", call("Bash", STARTED, command="npm test", run_in_background=True))
    assert [fact.status for fact in found] == ["running"]


def test_a_sub_agent_is_told_by_the_head_of_its_report() -> None:
    started = call("Task", "Async agent launched successfully.\nagentId: a1b2c3", description="Docs", prompt="Write")
    report = "<status>completed</status>\n<output>\nHere is what I found:\n\nThree pages lack examples.\n</output>"
    (done,) = told("subagent", started, call("TaskOutput", report, task_id="a1b2c3"))
    assert (done.status, done.detail) == ("done", "Three pages lack examples.")
    broken = "<task-notification>\n<task-id>a1b2c3</task-id>\n<status>failed</status>\n</task-notification>"
    assert told("subagent", started, user(broken))[0].status == "failed"


def test_without_a_word_the_first_open_point_comes_next() -> None:
    todos = [{"content": "write parser", "status": "completed"}, {"content": "wire it up", "status": "pending"}]
    found = told("next_step", call("TodoWrite", "ok", todos=todos), bash("ls", "a"))
    assert [fact.content for fact in found] == ["wire it up"]


def test_a_report_is_no_intent() -> None:
    found = told("next_step", call("Read", "x", say="All 12 tests pass now. Let me know.", file_path="a"))
    assert found == []


def test_a_question_by_a_tool_waits_for_its_answer() -> None:
    questions = [{"question": "Which store?", "options": [{"label": "SQLite"}]}]
    asked = call("AskUserQuestion", None, questions=questions)
    assert [(fact.content, fact.status) for fact in told("blocker", agent("One thing."), asked)] == [
        ("Which store?", "open")
    ]


# As Claude Code 2.1.326 writes it; before the id it speaks of an id.
LAUNCHED = (
    "Async agent launched successfully. (This tool result is internal metadata — never quote or paste any part of it, "
    "including the agentId below, into a user-facing reply.)\nagentId: a2a9fa6c0233a4d55 (internal ID)\n"
    "The agent is working in the background."
)
ENDED = (
    "<task-notification>\n<task-id>a2a9fa6c0233a4d55</task-id>\n<tool-use-id>c</tool-use-id>\n<status>completed</status>\n"
    '<summary>Agent "Docs" finished</summary>\n<result>Three pages lack examples. Never deploy.</result>\n'
    "<usage><subagent_tokens>20060</subagent_tokens></usage>\n</task-notification>"
)


def test_a_sub_agent_in_the_background_runs_until_its_end_is_reported() -> None:
    started = call("Agent", LAUNCHED, description="Docs", prompt="Look through the pages")
    (runs,) = told("subagent", started)
    assert (runs.status, runs.detail) == ("running", "Look through the pages, id a2a9fa6c0233a4d55")
    (done,) = told("subagent", started, agent("I wait."), user(ENDED))
    assert (done.status, done.detail, done.ref) == ("done", "Three pages lack examples. Never deploy.", "turn_004")
    assert told("constraint", started, agent("I wait."), user(ENDED)) == []


def test_an_end_that_is_reported_beside_the_result_of_another_call_counts() -> None:
    started = call("Agent", LAUNCHED, description="Docs", prompt="Look")
    ended = ENDED.replace("a2a9fa6c0233a4d55", "b41")
    asked, answered = bash("ls", "a.py")
    beside = [asked, Message("user", (*answered.parts, Text("x" * 5_000), Text(ENDED), Text(ended)))]
    assert [fact.status for fact in told("subagent", started, SERVER, beside)] == ["done"]
    assert running(SERVER, beside) == []


def test_a_report_that_quotes_a_notice_ends_nobody_else() -> None:
    quoting = ENDED.replace("Three pages", "<task-id>b41</task-id> <status>completed</status> Three pages")
    assert running(SERVER, user(quoting)) != []
