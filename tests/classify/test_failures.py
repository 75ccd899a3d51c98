from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.messages import ToolCall, ToolResult
from context_compactor.dialects.repair import repair
from context_compactor.dialects.turns import ToolUse
from context_compactor.engine.classify import parse_context
from context_compactor.facts.calls import parse_call
from context_compactor.facts.failures import Failure, call_text, failure_of, find_failures, merge_failures
from context_compactor.facts.outcomes import exit_code_of, was_not_run
from context_compactor.facts.outputs import LINE_LENGTH, error_lines
from tests.engine.talks import DIALECT_NAMES, Call, talk_in
from tests.facts.conversations import bash, call, exchange_of, histories, patch, turns_of, user

TRACEBACK = "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    run()\nKeyError: 'indexes'\n"
DENIED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected. "
    "To tell you how to proceed, the user said:\npull and rebase first"
)

FAILED = {
    "flag": (bash("make", "boom", is_error=True), "boom"),
    "claude code's exit code": (bash("git status", "Exit code 128\nfatal: bad object e5364"), "fatal: bad object"),
    "codex's exit code": (
        call("exec_command", "Chunk ID: 1a\nProcess exited with code 2\nOutput:\nno rule", cmd="make"),
        "no rule",
    ),
    "a return code in tags": (
        bash("python a.py", f"<returncode>1</returncode>\n<output>\n{TRACEBACK}</output>"),
        "KeyError: 'indexes'",
    ),
    "a code as a field": (call("shell", '{"output":"","metadata":{"exit_code":127}}', command=["foo"]), "code 127"),
    "a code in other JSON": (call("run", '{"stdout": "x", "stderr": "bad flag", "exit_code": 3}'), "bad flag"),
    "a code in words": (bash("make all", "returncode: 1\nno rule to make target 'all'"), "no rule to make target"),
    "a code at the end": (bash("npm ci", "some lines\n\nCommand exited with code 1"), "some lines"),
    "a traceback behind a pipe": (bash("python a.py 2>&1 | tail -5", TRACEBACK), "KeyError: 'indexes'"),
    "a failing test behind a pipe": (
        bash("go test ./... | tail", "--- FAIL: TestRefresh (0.03s)\n    a_test.go:9: got 1, want 2\nFAIL\n"),
        "--- FAIL: TestRefresh",
    ),
    "pytest's summary": (
        bash("pytest -q | tail -3", "FAILED tests/test_a.py::test_b - AssertionError: assert 1 == 2\n1 failed"),
        "FAILED tests/test_a.py::test_b",
    ),
    "an import error in pytest": (bash("pytest | tail", "E   ModuleNotFoundError: No module named 'np'"), "No module"),
    "a missing module": (bash("python -m pytest || true", "/usr/bin/python: No module named pytest"), "No module"),
    "a missing command": (bash("foo --bar; true", "zsh:1: command not found: foo"), "command not found: foo"),
    "no permission": (bash("./deploy.sh || true", "bash: ./deploy.sh: Permission denied"), "Permission denied"),
    "a missing file": (bash("cat a.txt | head -3", "cat: a.txt: No such file or directory"), "cat: a.txt: No such"),
    "a compiler": (bash("npx tsc | head", "src/a.ts(3,1): error TS2304: Cannot find name 'foo'."), "error TS2304"),
    "a runner's task": (bash("mise run lint | tail", "[lint] ERROR task failed\n\na.go:3:1: undefined: x"), "a.go:3:1"),
    "an edit without its text": (
        call("Edit", "<tool_use_error>String to replace not found in file.\nString: x</tool_use_error>", file_path="a"),
        "String to replace not found in file.",
    ),
    "a patch that does not apply": (
        patch("*** Begin Patch\n*** Update File: a.py\n", "verification failed: Failed to find expected lines in a.py"),
        "Failed to find expected lines in a.py",
    ),
    "an editor tool": (
        call("str_replace_editor", "No replacement was performed: old_str is missing", command="str_replace", path="a"),
        "No replacement was performed",
    ),
    "a denial": (bash("git push", DENIED), "pull and rebase first"),
    "an API's error": (call("book_flight", "Error: payment method not found", id="x"), "Error: payment method"),
    "an error as JSON": (call("get_user", '{"error": "user not found", "status": 404}'), "user not found"),
    "a refused MCP call": (call("mcp__db__query", "MCP error -32602: invalid params"), "MCP error -32602"),
}  # fmt: skip

WORKED = {
    "a file that talks about errors": call(
        "Read", "1→raise ValueError('no')\n2→# Error: see below", file_path="errors.py"
    ),
    "a shown file with a traceback": bash("cat docs/errors.md", f"# Errors\n\n{TRACEBACK}\nError: x\nand\nmore\ntext"),
    "a search for errors": bash(
        "rg -n 'Error:' src", "src/a.py:3:    print('Error: no')\nsrc/b.py:9:  # fatal: error: x"
    ),
    "a search tool": call("Grep", "src/a.py:3: raise FatalError('x')", pattern="Error"),
    "a log of commits": bash("git log --oneline", "1b72a7e fix: error: not found\nfatal: is a word here"),
    "no match": bash("grep -rn needle src", "<returncode>1</returncode>\n<output>\n</output>"),
    "no match in codex": call("exec_command", "Chunk ID: 1\nProcess exited with code 1\nOutput:\n", cmd="rg needle"),
    "passed tests": bash("pytest", "collected 12 items\n\n12 passed, 0 failed in 0.34s"),
    "code zero": bash("make", "<returncode>0</returncode>\n<output>\nall done\n</output>"),
    "a null error": call("get_user", '{"error": null, "id": 7}'),
    "an answer about errors": call(
        "WebFetch", "# Error handling\n" + "How to handle errors.\n" * 300, url="https://e.com"
    ),
    "no output": bash("git add -A", ""),
    "a difference": bash("diff -u a.py b.py", "Exit code 1\n--- a.py\n+++ b.py\n-Error\n+error: x", is_error=True),
    "a difference in git": bash("git diff --exit-code", "Exit code 1\n-fatal: old\n+fatal: new", is_error=True),
    "a test for a file": bash("test -f dist/app.js", "Exit code 1", is_error=True),
    "a flagged search without a hit": bash("grep -rn needle src", "Exit code 1", is_error=True),
    "a search behind other output": bash("cat a.txt && rg needle src", "Exit code 1\n7 error: a line", is_error=True),
    "a program that is not there": bash("command -v beads", "Process exited with code 1\nOutput:\n"),
    "a folder that is not there": bash("ls build/", "ls: build/: No such file or directory", is_error=True),
    "a pattern without a file": bash("ls dist/*.map", "(eval):1: no matches found: dist/*.map", is_error=True),
    "no process": call("exec_command", "Process exited with code 1\nOutput:\n PID CMD\n", cmd="ps -o pid,cmd -p 77"),
    "passed tests that talk of errors": bash(
        "bun test 2>&1 | tail -20", "error: connect refused (expected)\nError: boom\n\n 41 pass\n 0 fail\nRan 41 tests"
    ),
    "passed tests with a log": bash("go test ./...", "2026/01/02 fatal: not a repo\nError: x\nok  \tacme/app\t0.31s"),
    "code zero with words": bash(
        "npm run sync", "<returncode>0</returncode>\n<output>\nError: retried, fine now\n</output>"
    ),
    "a call that was cancelled": bash(
        "git log", "<tool_use_error>Cancelled: parallel tool call Bash(x) errored</tool_use_error>", is_error=True
    ),
    "a call beside one that failed": bash(
        "ls", "<tool_use_error>Sibling tool call errored</tool_use_error>", is_error=True
    ),
    "an interrupt": bash("make test", "[Request interrupted by user for tool use]", is_error=True),
    "an interrupt amid a run": bash(
        "make test", "Exit code 137\n[Request interrupted by user for tool use]\n=== RUN TestA", is_error=True
    ),
    "an aborted command": call("exec_command", "aborted by user after 3.2s", cmd="make test"),
    "a file written": call("Write", "File created successfully at: a.py", file_path="a.py", content="raise Error"),
}


@pytest.mark.parametrize("name", FAILED)
def test_every_way_to_fail_is_recognised_with_its_error(name: str) -> None:
    step, error = FAILED[name]
    failure = failure_of(exchange_of(step))
    assert failure is not None
    assert error in failure.error


@pytest.mark.parametrize("name", WORKED)
def test_what_only_talks_about_errors_is_no_failure(name: str) -> None:
    assert failure_of(exchange_of(WORKED[name])) is None


STILL_FAILED = {
    "a runner that says so with code zero": bash(
        "python run.py", "<returncode>0</returncode>\n<output>\nFAIL: test_a (t.A)\nFAILED (failures=1)\n</output>"
    ),
    "a search that was written wrongly": bash("rg 'a(' src", "Exit code 2\nrg: regex parse error", is_error=True),
    "a broken pattern in a pipe": bash("grep 'a\\(' src | grep -v b", "grep: Unmatched ( or \\("),
    "one test of many": bash("bun test | tail", "(fail) rotates on use\n\n 40 pass\n 1 fail"),
    "a linter with issues": bash("mise run lint | grep -A2 x", "a.go:3:1: too long (lll)\n1 issues:"),
    "a file to be shown": bash("cat notes.md", "cat: notes.md: No such file or directory", is_error=True),
}


@pytest.mark.parametrize("name", STILL_FAILED)
def test_what_did_not_do_its_work_has_failed_whatever_else_it_says(name: str) -> None:
    assert failure_of(exchange_of(STILL_FAILED[name])) is not None


def test_a_call_without_an_answer_has_not_failed() -> None:
    assert failure_of(exchange_of(bash("make", None))) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Exit code 1\nx", 1),
        ("Process exited with code 2\nOutput:\n", 2),
        ("<returncode>137</returncode>\n<output>\n</output>", 137),
        ('{"exit_code":1}', 1),
        ("returncode: 1", 1),
        ("Exit code: 0\nWall time: 0 seconds\nOutput:\nok", 0),
        ("hello", None),
        ("the exit code is described in the manual, see section 4 of it, and what follows", None),
    ],
)
def test_exit_codes_are_read_in_the_forms_agents_print(text: str, code: int | None) -> None:
    assert exit_code_of(text) == code


def test_a_command_starts_with_its_own_words_on_one_line() -> None:
    command = "cat > test_wrap.py <<'EOF'\nimport sys\n\n    print(1)\nEOF\npython test_wrap.py"
    failure = failure_of(exchange_of(bash(command, TRACEBACK)))
    assert failure is not None
    assert failure.command == "cat > test_wrap.py <<'EOF' import sys print(1) EOF python test_wrap.py"


def test_a_long_command_keeps_its_beginning_verbatim() -> None:
    command = "pytest " + " ".join(f"tests/test_{number}.py" for number in range(60))
    shown = call_text(ToolCall("c", "Bash", f'{{"command": "{command}"}}'))
    assert len(shown) == 160
    assert command.startswith(shown[:-1])


def test_a_change_of_folder_takes_no_room_from_the_command() -> None:
    command = "cd /home/somebody/projects/a/very/long/way/down/to/the/checkout && pytest " + "x" * 140
    assert "pytest " + "x" * 140 in call_text(ToolCall("c", "Bash", f'{{"command": "{command}"}}'))


def test_an_edit_is_named_by_its_file_and_what_it_looked_for() -> None:
    step = call(
        "Edit", "String to replace not found in file.", True, file_path="src/a.py", old_string="\n  x = compute()\n"
    )
    failure = failure_of(exchange_of(step))
    assert failure is not None
    assert failure.command == "Edit src/a.py: x = compute()"


def test_other_tools_are_named_with_their_arguments_as_given() -> None:
    shown = call_text(ToolCall("c", "book_flight", '{"user_id":"mia_li","cabin":"economy"}'))
    assert shown == 'book_flight {"user_id":"mia_li","cabin":"economy"}'


def test_a_result_without_its_call_is_still_recorded() -> None:
    failure = failure_of(ToolUse(3, None, ToolResult("x", "Error: gone", True)))
    assert failure == Failure("(result without its call)", "Error: gone", 3, 0, False, "tool_003")


def test_first_and_last_telling_line_are_joined() -> None:
    text = "Exit code 1\nRunning…\na.go:3:1: undefined: x\nb.go:9:2: undefined: y\nFAIL"
    assert error_lines(text) == "a.go:3:1: undefined: x … b.go:9:2: undefined: y"


def test_of_chained_tracebacks_both_exceptions_are_told() -> None:
    second = TRACEBACK.replace("KeyError: 'indexes'", "RuntimeError: Django module not found")
    text = f"{TRACEBACK}\nDuring handling of the above exception, another exception occurred:\n\n{second}"
    assert error_lines(text) == "KeyError: 'indexes' … RuntimeError: Django module not found"


def test_a_log_line_is_passed_over_for_the_error() -> None:
    text = (
        "hooks.go:196: INFO stop failed=0\n    a_test.go:8: expected 1, got 2\n--- FAIL: TestA (0.1s)\nFAIL\tpkg\t2.1s"
    )
    assert error_lines(text) == "--- FAIL: TestA (0.1s) … a_test.go:8: expected 1, got 2"


TOLD = {
    "a task runner's word": (
        "[lint] $ golangci-lint\n[lint] ERROR task failed\na.go:3:1: undefined: x\n1 issues:",
        "a.go:3:1: undefined: x",
    ),
    "a banner": (
        "==== FAILURES ====\n____ test_b ____\nE   assert 1 == 2\nFAILED t/test_a.py::test_b - assert 1 == 2\n1 failed",
        "FAILED t/test_a.py::test_b - assert 1 == 2",
    ),
    "a test in Go": (
        "=== RUN TestA\n  jwt_test.go:9: Key\n  jwt_test.go:61: expected 200, got 401\n--- FAIL: TestA (0.31s)\nFAIL",
        "--- FAIL: TestA (0.31s) … jwt_test.go:61: expected 200, got 401",
    ),
    "a table of what was compared": (
        "--- FAIL: TestA (0.0s)\n  Error Trace:\ta_test.go:9\n  Error: \tNot equal:\n  \texpected: 1\n  \tactual: 2\n",
        "--- FAIL: TestA (0.0s) … Error: Not equal: expected: 1 actual: 2",
    ),
    "a runner that names the test last": (
        "8 | expect(a).toBe(1);\nerror: expect(a).toBe(b)\nExpected: 1\nReceived: 0\n(fail) keys > rotate\n 1 fail",
        "(fail) keys > rotate … error: expect(a).toBe(b) Expected: 1 Received: 0",
    ),
    "a progress line": (
        "Rebasing (1/2)\rRebasing (2/2)\rerror: could not apply 3f9c2ab... rotate\nhint: resolve",
        "error: could not apply 3f9c2ab... rotate",
    ),
    "code that is shown": (
        '  return fmt.Errorf("failed to get: %w", err)\na.go:7:2: unused result',
        "a.go:7:2: unused result",
    ),
    "only the runner's word": ("[test] $ go test\n[test] ERROR task failed", "[test] ERROR task failed"),
    "a refusal with words": (DENIED, "pull and rebase first"),
}


@pytest.mark.parametrize("name", TOLD)
def test_the_line_that_tells_what_went_wrong_is_told(name: str) -> None:
    text, found = TOLD[name]
    assert error_lines(text) == found


def test_when_nothing_tells_the_exit_code_does() -> None:
    assert error_lines("<returncode>2</returncode>\n<output>\n</output>") == "exit code 2"


@given(st.text(max_size=400))
def test_telling_lines_stand_in_the_text_and_are_short(text: str) -> None:
    words = error_lines(text)
    for line in words.split(" … ") if words and not words.startswith("exit code") else ():
        assert len(line) <= LINE_LENGTH or " … " in text
        assert line in text or " … " in text or "<" in text or "\x1b" in text


def test_repeated_failures_are_merged_with_count_and_turns() -> None:
    turns = turns_of(
        user("go"),
        bash("npm test", "Exit code 1\nTypeError: x is undefined"),
        bash("npm test", "Exit code 1\nTypeError: x is undefined"),
        bash("npm run build", "Exit code 1\nTypeError: x is undefined"),
        bash("npm test", "Exit code 1\nTypeError: x is undefined"),
    )
    first, other = merge_failures(find_failures(turns))
    assert (first.content, first.detail, first.count) == ("npm test", "TypeError: x is undefined", 3)
    assert (first.turn, first.last_turn, first.ref) == (2, 5, "tool_004")
    assert (first.kind, first.role) == ("failure", "tool")
    assert (other.content, other.count) == ("npm run build", 1)


def test_one_command_with_two_errors_is_two_failures() -> None:
    turns = turns_of(bash("npm test", "Exit code 1\nerror: a"), bash("npm test", "Exit code 1\nerror: b"))
    assert [fact.detail for fact in merge_failures(find_failures(turns))] == ["error: a", "error: b"]


def test_a_denial_is_marked() -> None:
    (failure,) = find_failures(turns_of(bash("git push --force", DENIED, is_error=True)))
    assert failure.denied
    assert merge_failures([failure])[0].status == "denied"


def test_a_command_that_fails_in_the_background_is_named() -> None:
    turns = turns_of(
        call("exec_command", "Chunk ID: 1\nProcess running with session ID 42\nOutput:\n", cmd="make integration"),
        call("write_stdin", "Process exited with code 2\nOutput:\nerror: no such target", session_id=42, chars=""),
    )
    (failure,) = find_failures(turns)
    assert failure.command == "make integration"


@given(histories)
def test_no_history_breaks_the_search_for_failures(turns: list) -> None:  # type: ignore[type-arg]
    failures = find_failures(turns)
    assert failures == find_failures(turns)
    flagged = {
        each.number
        for turn in turns
        for each in turn.exchanges
        if each.result and each.result.is_error and not was_not_run(each.result.text)
        if not (each.call and parse_call(each.call).command)
    }
    assert flagged <= {failure.exchange for failure in failures}
    assert {failure.status for failure in failures} <= {"open", "resolved", "given up"}
    assert sum(fact.count for fact in merge_failures(failures)) == len(failures)


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_call_whose_result_was_never_recorded_has_neither_failed_nor_done_anything(dialect):
    talk = (
        talk_in(dialect)
        .user("Ship it.")
        .step(Call("Bash", {"command": "git push origin main"}, None))
        .answer("Done.")
        .user("Go on.")
    )
    talk.step(Call("AskUserQuestion", {"question": "Which one?"}, None)).answer("Yes.").user("And now?")
    legal = repair(DIALECTS[dialect].parse(talk.messages), DIALECTS[dialect])[0]
    facts = parse_context(legal, DIALECTS[dialect]).facts
    assert [fact for fact in facts if fact.kind in ("failure", "side_effect", "approval", "command")] == []
