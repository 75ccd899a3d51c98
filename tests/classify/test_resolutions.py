"""What came of failed attempts, in conversations made like real ones."""

from __future__ import annotations

import pytest
from hypothesis import given

from context_compactor.dialects.messages import Message
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import find_failures, may_repeat, merge_failures, resolve_facts
from context_compactor.facts.outcomes import check_of, covers_check, is_check
from context_compactor.facts.shell import split_command
from tests.facts.conversations import agent, bash, call, histories, turns_of, user

RED = "Exit code 1\n--- FAIL: TestRotate (0.03s)\n    jwt_test.go:61: expected 200, got 401\nFAIL"
GREEN = "ok  \tacme/auth\t0.31s"


def edit(path: str, answer: str = "The file has been updated.", is_error: bool = False) -> list[Message]:
    return call("Edit", answer, is_error, file_path=path, old_string="a", new_string="b")


def read(path: str, answer: str = "1→package auth") -> list[Message]:
    return call("Read", answer, answer.startswith("File does"), file_path=path)


def looks(count: int) -> list[list[Message]]:
    return [call("Read", "text", file_path=f"docs/{number}.md") for number in range(count)]


def came_of(*steps: list[Message]) -> list[tuple[str, str]]:
    return [(fact.status, fact.outcome) for fact in merge_failures(find_failures(turns_of(user("go"), *steps)))]


def test_a_test_that_passed_later_is_resolved_by_what_was_edited_in_between():
    steps = [bash("go test ./...", RED, True), edit("src/jwt.go"), bash("go test ./... 2>&1 | tail -20", GREEN)]
    assert came_of(*steps) == [("resolved", "passed in turn 4 after editing jwt.go")]


def test_a_test_that_never_passed_is_open_however_old_it_is():
    assert came_of(bash("go test ./...", RED, True), *looks(30)) == [("open", "")]


def test_the_whole_suite_speaks_for_a_part_of_it_and_a_part_not_for_the_whole():
    part, whole = "go test ./auth -run TestRotate", "mise run test"
    assert came_of(bash(part, RED, True), bash(whole, GREEN)) == [("resolved", "`mise run test` passed in turn 3")]
    assert came_of(bash(whole, "FAIL\nError: no network, see the log", True), bash(part, GREEN)) == [("open", "")]


def test_a_test_that_passes_by_its_own_name_is_resolved():
    steps = [bash("mise run test", RED, True), edit("jwt.go"), bash("go test ./auth -run TestRotate", GREEN)]
    assert came_of(*steps) == [("resolved", "TestRotate passed in turn 4 after editing jwt.go")]


@pytest.mark.parametrize(
    "later",
    [
        bash("go test ./... | grep -c RUN", "41"),
        bash("go test ./... -run TestOther", GREEN),
        bash("git stash && go test ./...", GREEN),
        bash("go test ./...", "testing: warning: no tests to run\nPASS"),
        bash("go test ./...", "Command running in background with ID: b41"),
    ],
)
def test_a_run_that_shows_no_pass_resolves_nothing(later):
    assert came_of(bash("go test ./...", RED, True), later) == [("open", "")]


def test_a_run_that_is_not_shown_whole_hides_the_first_error():
    other = "Exit code 1\n" + "a.go:3:1: undefined: x (typecheck)\n" * 9
    assert came_of(bash("go test ./...", RED, True), bash("go test ./... | tail -9", other, True))[0] == ("open", "")


def test_a_wider_filter_speaks_for_a_test_by_its_name():
    steps = [bash("mise run test:e2e", RED, True), bash("go test -tags=e2e -run TestRot ./auth", GREEN)]
    assert came_of(*steps) == [("resolved", "TestRotate passed in turn 3")]


def test_a_run_that_fails_otherwise_has_left_the_first_error_behind():
    other = "Exit code 1\n" + "a.go:3:1: undefined: x (typecheck)\n" * 9
    first, second = came_of(bash("go test ./...", RED, True), edit("jwt.go"), bash("go test ./...", other, True))
    assert first == ("resolved", "no longer in the run of turn 4 after editing jwt.go")
    assert second == ("open", "")


def test_an_edit_is_resolved_when_the_file_was_edited_later():
    missed = "String to replace not found in file."
    steps = [edit("src/jwt.go", missed, True), read("src/jwt.go"), edit("src/jwt.go")]
    assert came_of(*steps) == [("resolved", "applied in turn 4 after reading the file again")]
    assert came_of(edit("a.go", missed, True), edit("b.go"), *looks(12)) == [("given up", "not tried again")]


def test_a_file_that_was_found_elsewhere_is_resolved():
    steps = [read("src/auth/jwt.go", "File does not exist."), read("lib/jwt.go")]
    assert came_of(*steps) == [("resolved", "found at lib/jwt.go in turn 3")]


def test_a_slip_that_was_corrected_at_once_is_resolved():
    steps = [bash("gh pr diff 104 --stat", "unknown flag: --stat", True), bash("gh pr diff 104", "+ a")]
    assert came_of(*steps) == [("resolved", "worked in turn 3 as `gh pr diff 104`")]
    other = [bash("git gc --dry-run", "error: unknown option `dry-run'", True), bash("git log", "3f9c2ab x")]
    assert came_of(*other, *looks(12)) == [("given up", "not tried again")]


def test_the_last_step_of_a_chain_speaks_for_the_one_that_failed_only():
    push = bash("git push", "To acme\n   1..2  main -> main")
    rejected = "Exit code 1\nerror: failed to push some refs"
    assert came_of(bash("make tidy && git push", rejected, True), push) == [("resolved", "passed in turn 3")]
    broken = bash("make tidy && git push", "Exit code 2\nmake: no rule", True)
    assert came_of(broken, push, *looks(12)) == [("given up", "not tried again")]


def test_what_was_missing_is_resolved_by_its_installation():
    steps = [
        bash("python a.py", "ModuleNotFoundError: No module named 'pytz'", True),
        bash("pip install pytz", "Successfully installed pytz"),
        *looks(12),
    ]
    assert came_of(*steps) == [("resolved", "`pip install pytz` in turn 3")]


def test_a_conflict_is_resolved_by_a_commit_and_given_up_by_an_abort():
    conflict = bash("git merge main", "CONFLICT (content): Merge conflict in a.go\nAutomatic merge failed", True)
    commit = bash("git add a.go && git commit --no-edit", "[main 3f9c2ab] Merge")
    assert came_of(conflict, commit) == [("resolved", "conflicts settled, committed in turn 3")]
    assert came_of(conflict, bash("git merge --abort", "")) == [("given up", "aborted in turn 3")]


def test_who_turned_to_another_way_is_quoted():
    pytest_missing = bash("python -m pytest", "/usr/bin/python: No module named pytest", True)
    said = agent("No pytest here. Let me use the runner of the project instead. Then I look at it.")
    assert came_of(pytest_missing, said, *looks(12)) == [
        ("given up", 'agent: "Let me use the runner of the project instead."')
    ]
    retried = bash("./deploy.sh", "Error: port in use", True)
    assert came_of(retried, user("don't retry, that only hides it"), *looks(12)) == [
        ("given up", 'user: "don\'t retry, that only hides it"')
    ]


def test_what_failed_a_moment_ago_is_open():
    assert came_of(bash("./deploy.sh", "Error: port in use", True)) == [("open", "")]


def test_a_background_run_is_followed_by_the_command_that_started_it():
    steps = [
        call("exec_command", "Process running with session ID 42\nOutput:\n", cmd="go test ./..."),
        call("write_stdin", f"Process exited with code 1\nOutput:\n{RED}", session_id=42, chars=""),
        edit("jwt.go"),
        call("exec_command", f"Process exited with code 0\nOutput:\n{GREEN}", cmd="go test ./..."),
    ]
    assert came_of(*steps) == [("resolved", "passed in turn 5 after editing jwt.go")]


def test_repeats_are_one_failure_whatever_the_clock_says():
    later = RED.replace("0.03s", "0.41s")
    steps = [user("go"), bash("go test ./...", RED, True), bash("go test ./... | tail", later)]
    (fact,) = merge_failures(find_failures(turns_of(*steps)))
    assert (fact.count, fact.turn, fact.last_turn) == (2, 2, 3)


def test_a_build_that_failed_is_resolved_by_any_part_that_runs():
    broken = "Exit code 1\na.go:3:1: undefined: x"
    steps = [bash("go test ./auth", broken, True), edit("a.go"), bash("go test ./auth -run TestRotate", GREEN)]
    assert came_of(*steps) == [("resolved", "passed in turn 4 after editing a.go")]


def test_the_same_word_of_two_test_files_is_two_failures():
    bare = "1 failed\nE   AssertionError"
    steps = [
        bash("pytest tests/a.py", bare),
        bash("pytest tests/b.py", bare),
        bash("pytest tests/b.py -v | tail", bare),
    ]
    assert [fact.count for fact in merge_failures(find_failures(turns_of(*steps)))] == [1, 2]


def test_another_part_of_a_program_is_no_correction():
    steps = [bash("bd unlink a --force", "Error: unknown command", True), bash("bd list a --force", "1 a")]
    assert came_of(*steps, *looks(12)) == [("given up", "not tried again")]


def test_what_is_missing_is_one_failure_for_all_that_need_it():
    missing = "ModuleNotFoundError: No module named 'pytz'"
    steps = [bash("python a.py", missing, True), bash("python3 b.py", missing, True)]
    assert [fact.count for fact in merge_failures(find_failures(turns_of(*steps)))] == [2]


def test_a_fact_of_an_earlier_store_is_resolved_by_later_turns():
    old = Fact("failure", "npm test", 3, "tool", "TypeError: x", "", 2, 9, "tool_007")
    turns = turns_of(*(user("go on") for _ in range(9)), bash("npm test", "12 passing"))
    assert resolve_facts([old], turns[9:])[0].status == "resolved"
    assert resolve_facts([old], turns_of(bash("npm run lint", "ok"))) == [old]


def test_only_what_still_fails_as_a_check_may_be_repeated():
    def fact(command: str, status: str) -> Fact:
        return Fact("failure", command, 1, "tool", "boom", status)

    assert may_repeat(fact("npm test", "open"))
    assert may_repeat(fact("npm test", ""))
    assert may_repeat(fact("./deploy.sh", "resolved"))
    assert not may_repeat(fact("./deploy.sh", "open"))
    assert not may_repeat(fact("npm test", "given up"))
    assert not may_repeat(fact("git push --force", "denied"))


@pytest.mark.parametrize(
    "command", ["npm test", "npm run lint:fix", "uv run pytest -q", "make build", "go vet ./...", "python -m mypy src"]
)
def test_tests_linters_and_builds_are_checks(command):
    assert is_check(command)


@pytest.mark.parametrize("command", ["npm install jest", "cat test", "git commit -m 'a test'", "python test_a.py", ""])
def test_other_commands_are_none(command):
    assert not is_check(command)


@pytest.mark.parametrize(
    ("later", "earlier", "speaks"),
    [
        ("pytest", "pytest tests/a.py -k rotate", True),
        ("pytest tests", "pytest tests/a.py::test_b", True),
        ("go test ./x", "go test ./x -timeout 30s", True),
        ("go test ./x -timeout 30s", "go test ./x", True),
        ("pytest tests/b.py", "pytest tests/a.py", False),
        ("go test -run TestA ./x", "go test -run TestA_Old ./x", True),
        ("go test ./...", "go test -tags=e2e ./...", False),
        ("mise run test:ci", "go test -tags=e2e ./x", True),
        ("npm run lint", "npm test", False),
        ("make test", "make build", True),
    ],
)
def test_a_run_speaks_for_another_when_it_runs_all_of_it(later, earlier, speaks):
    one, other = check_of(split_command(later)[0]), check_of(split_command(earlier)[0])
    assert one is not None
    assert other is not None
    assert covers_check(one, other) is speaks


@given(histories)
def test_no_history_breaks_what_came_of_its_failures(turns):
    facts = merge_failures(find_failures(turns))
    assert all(fact.status in ("open", "resolved", "given up", "denied") for fact in facts)
    assert all(fact.outcome for fact in facts if fact.status == "resolved")
    assert resolve_facts(facts, turns) == facts
