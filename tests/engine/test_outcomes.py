"""How a tool call ended, in one line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.messages import ToolCall, ToolResult
from context_compactor.dialects.turns import ToolUse
from context_compactor.engine.digests.outcomes import outcome_of
from context_compactor.facts.failures import failure_of
from context_compactor.facts.kinds import Kind, kind_of
from tests.apply.digests import outputs
from tests.classify.calls_of import bash, tool


def told(call: ToolCall | None, text: str, most: int = 160) -> str:
    use = ToolUse(7, call, ToolResult("c1", text))
    return outcome_of(use, kind_of(call, text), failure_of(use), most)


CARGO = """running 3 tests
test jwt::signs ... ok
test jwt::expires ... FAILED

failures:

---- jwt::expires stdout ----
thread 'jwt::expires' panicked at src/jwt.rs:41:9:
assertion `left == right` failed

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 4 tests
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""
JEST = """FAIL test/refresh.test.ts
  ● refresh › rotates on use

    expect(received).toBe(expected)

Test Suites: 1 failed, 3 passed, 4 total
Tests:       2 failed, 41 passed, 43 total
"""
GO = """=== RUN   TestRotate
--- PASS: TestRotate (0.02s)
=== RUN   TestLogout
    auth_test.go:61: expected 200, got 401
--- FAIL: TestLogout (0.01s)
FAIL
FAIL\texample.com/auth\t0.031s
"""


@pytest.mark.parametrize(
    ("command", "text", "outcome"),
    [
        ("pytest -q", outputs.PYTEST, "32 passed, 1 failed, 1 error: test_rotates_on_use[expired], test_close; "),
        ("pytest -q", "........\n8 passed in 0.31s\n", "8 passed"),
        ("cargo test", CARGO, "6 passed, 1 failed: jwt::expires; thread 'jwt::expires' panicked at src/jwt.rs:41:9:"),
        ("npm test", JEST, "41 passed, 2 failed: refresh \u203a rotates on use; expect(received).toBe(expected)"),
        ("go test -v ./...", GO, "1 passed, 1 failed: TestLogout; auth_test.go:61: expected 200, got 401"),
        ("go test ./...", "ok  \ta/b\t0.1s\nok  \ta/c\t(cached)\n", "2 packages ok"),
        ("python -m unittest", "....\n-----\nRan 4 tests in 0.01s\n\nOK\n", "4 passed"),
    ],
)
def test_a_test_run_tells_counts_failing_names_and_why(command, text, outcome):
    assert told(bash(command), text).startswith(outcome)


def test_failing_names_lose_their_files_before_they_lose_their_number():
    lines = [f"FAILED tests/unit/test_ledger_{at}.py::TestLedger::test_closes_{at} - assert 1 == 2" for at in range(9)]
    text = "\n".join(["=== test session starts ===", *lines, "=== 9 failed, 3 passed in 2.10s ==="])
    assert told(bash("pytest"), text).startswith("3 passed, 9 failed: test_closes_0, test_closes_1, ")
    assert " more" in told(bash("pytest"), text)


@pytest.mark.parametrize(
    ("command", "text", "outcome"),
    [
        ("make lint", "[lint:go] 0 issues.\n[lint:go] Finished in 3.10s\n", "0 issues"),
        ("mypy src", "Success: no issues found in 41 source files\n", "Success: no issues found in 41 source files"),
        (
            "mypy src",
            'src/a.py:41: error: Name "x" is not defined\nFound 3 errors in 2 files (checked 9 source files)\n',
            'Found 3 errors in 2 files (checked 9 source files): src/a.py:41 error: Name "x" is not defined',
        ),
        (
            "npm run build",
            "vite v5.0.0 building\n\u2713 41 modules transformed.\n\u2713 built in 2.31s\n",
            "built in 2.31s",
        ),
        (
            "go build ./...",
            "Exit code 1\n# example.com/auth\nauth/jwt.go:41:7: undefined: leeway\nauth/jwt.go:52:2: missing return\n",
            "2 errors: auth/jwt.go:41:7 undefined: leeway",
        ),
    ],
)
def test_a_build_or_linter_tells_its_counts_and_the_first_place(command, text, outcome):
    assert told(bash(command), text) == outcome


TRACE = """Exit code 1
Traceback (most recent call last):
  File "/srv/app/tasks.py", line 12, in <module>
    run()
  File "/srv/app/ledger.py", line 88, in close
    total = entry["sum"]
  File "/usr/lib/python3.11/site-packages/box.py", line 9, in __getitem__
    raise KeyError(key)
KeyError: 'sum'
"""


def test_a_trace_tells_its_message_and_the_innermost_own_frame():
    assert told(bash("python tasks.py"), TRACE) == "KeyError: 'sum' at /srv/app/ledger.py:88 in close"


def test_a_trace_with_a_cause_tells_both():
    text = TRACE + (
        "\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n"
        '  File "/srv/app/tasks.py", line 15, in <module>\n    raise CloseError("ledger 7")\nCloseError: ledger 7\n'
    )
    assert told(bash("python tasks.py"), text) == (
        "CloseError: ledger 7; caused by KeyError: 'sum' at /srv/app/ledger.py:88 in close"
    )


def test_a_refusal_says_so_with_the_words_of_the_user():
    text = (
        "The user doesn't want to proceed with this tool use. The tool use was rejected. To tell you how to proceed, "
        "the user said:\nnot on production, use the dev database"
    )
    assert told(bash("psql prod"), text) == "refused by the user: not on production, use the dev database"


def test_an_api_answer_tells_status_shape_and_key_values():
    states = ["ok", "failed", "failed"] * 4
    items = [
        {"name": f"run {at}", "status": each, "id": 88213 + at, "logs": "x" * 400} for at, each in enumerate(states)
    ]
    text = f"HTTP/1.1 200 OK\nContent-Type: application/json\n\n{json.dumps(items)}"
    assert told(bash("curl -i https://ci.example.com/runs"), text) == (
        '200 OK; 12 items, status failed 8, ok 4; first: id=88213, name="run 0"'
    )


def test_an_answer_does_not_repeat_what_was_asked():
    text = json.dumps({"order_id": "A17", "status": "shipped", "items": [1, 2]})
    assert told(tool("get_order", order_id="A17"), text) == "status=shipped, items: 2 items"


def test_a_search_tells_how_many_and_the_ones_that_define():
    hits = [f"src/auth/session.py:{at}:    rotate(token)" for at in range(10, 22)]
    text = "\n".join([*hits, "src/auth/jwt.py:41:def rotate(token: str) -> Token:"])
    assert told(bash("rg -n rotate src"), text).startswith("13 hits in 2 files: ")
    assert "src/auth/jwt.py:41 def rotate(token: str) -> Token:" in told(bash("rg -n rotate src"), text)


@pytest.mark.parametrize(
    ("call", "text", "outcome"),
    [
        (tool("Grep", pattern="x"), "No matches found", "no hits"),
        (bash("grep -rn nothing src"), "", "no hits"),
        (tool("Glob", pattern="**/*.ts"), "Found 2 files\nsrc/a.ts\nsrc/b.ts", "2 files: src/a.ts, src/b.ts"),
    ],
)
def test_a_search_for_files_tells_them(call, text, outcome):
    assert told(call, text) == outcome


PUSHED = """[feat/refresh 3f9c2ab] Rotate
 3 files changed, 71 insertions(+)
To github.com:acme/shop.git
   1a2b3c4..3f9c2ab  feat/refresh -> feat/refresh
"""


@pytest.mark.parametrize(
    ("command", "text", "outcome"),
    [
        (
            'git commit -m "Rotate tokens" && git push',
            PUSHED,
            "commit 3f9c2ab Rotate (on feat/refresh); pushed feat/refresh; 3 files changed, 71 insertions(+)",
        ),
        (
            "git status --short",
            " M src/a.py\n M src/b.py\n?? notes.md\n",
            "2 modified: src/a.py, src/b.py; 1 untracked: notes.md",
        ),
        ("git status -sb", "## main...origin/main [behind 8]\n", "nothing changed on main [behind 8]"),
        ("git status --porcelain", "", "nothing changed"),
        (
            "git diff --stat",
            " src/a.py | 4 ++--\n 1 file changed, 2 insertions(+), 2 deletions(-)\n",
            "1 file changed, 2 insertions(+), 2 deletions(-)",
        ),
        (
            "git log --oneline -2",
            "3f9c2ab Rotate tokens\n1a2b3c4 Add login\n",
            "2 commits, newest 3f9c2ab Rotate tokens",
        ),
        (
            "gh pr create --fill",
            "https://github.com/acme/shop/pull/118\n",
            "PR #118 https://github.com/acme/shop/pull/118",
        ),
        ("git checkout -b x", "Switched to a new branch 'x'\n", "Switched to a new branch 'x'"),
    ],
)
def test_git_tells_what_it_changed(command, text, outcome):
    assert told(bash(command), text) == outcome


def test_a_diff_tells_its_size_and_files():
    text = "diff --git a/src/a.py b/src/a.py\n--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1,2 @@\n-x = 1\n+x = 2\n+y = 3\n"
    assert told(bash("git diff"), text) == "1 file, +2 -1: src/a.py"


REPORT = """I'll start by looking at the login module.

## Task Result

**Task ID**: TASK-042
**Status**: success
**Summary**: Implemented login endpoint with JWT authentication
**Files Modified**:
- src/auth/login.ts (created)
- src/auth/types.ts (created)

**Recommendations**:
- Add rate limiting
- Consider refresh tokens
"""


def test_a_sub_agent_tells_status_summary_advice_and_files():
    assert told(tool("Task", prompt="login"), REPORT, 240) == (
        "success: Implemented login endpoint with JWT authentication; recommends: Add rate limiting, Consider refresh "
        "tokens; files: src/auth/login.ts, src/auth/types.ts"
    )


def test_a_sub_agent_without_labels_tells_what_it_concluded():
    text = (
        "Perfect! Now I have everything.\n\n## Report on sessions\n\nBased on my analysis, here is what I found:\n\n"
        "### Storage\n- files below state/\n\nSessions are never removed, since nothing calls expire()."
    )
    assert told(tool("Task", prompt="x"), text) == "Sessions are never removed, since nothing calls expire()."


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (tool("Read", file_path="src/a.py"), "\n".join(f"{at}\tx = {at}" for at in range(300))),
        (bash("ls -la src"), "\n".join(f"-rw-r--r-- 1 a a 10 Jan 1 10:00 file{at}.py" for at in range(50))),
        (tool("Edit", file_path="a.py"), "The file a.py has been updated successfully."),
        (bash("tool --help"), "Usage: tool\n\nOptions:\n  --all\n  --none\n"),
    ],
)
def test_what_only_shows_or_edits_tells_nothing(call, text):
    assert told(call, text) == ""


@pytest.mark.parametrize(
    ("command", "text", "outcome"),
    [
        ("docker start db", "", "no output"),
        (
            "./deploy.sh",
            "Uploading\n45%\n100%\nDeployed revision 17 to staging\n=====\n",
            "Deployed revision 17 to staging",
        ),
        ("node -v", "v18.19.0\n", "v18.19.0"),
        ("python check.py", "\u2713 one\n\u2713 two\n\u2717 three: got 4\n", "2 \u2713, 1 \u2717: three: got 4"),
    ],
)
def test_other_commands_tell_their_last_telling_line(command, text, outcome):
    assert told(bash(command), text) == outcome


def test_a_call_without_a_result_tells_nothing():
    assert outcome_of(ToolUse(1, bash("make"), None), Kind.COMMAND, None) == ""


def test_a_test_run_without_totals_tells_how_many_passed_so_far():
    text = "Chunk ID: a1\nProcess running with session ID 88\nOutput:\nbun test v1.3\n(pass) one\n(pass) two\n"
    assert told(tool("exec_command", cmd="bun test"), text) == "still running (session 88): 2 passed so far"


def test_a_command_that_still_runs_says_so():
    text = "Chunk ID: a1\nWall time: 30.0 seconds\nProcess running with session ID 6593\nOutput:\n"
    assert told(tool("exec_command", cmd="npm run dev"), text) == "still running (session 6593)"


CALLS = (None, bash("git status && npm test"), bash("./x"), tool("Read", file_path="a.py"), tool("Task", prompt="p"))
EXAMPLES = [text for name, text in vars(outputs).items() if isinstance(text, str) and name[0].isupper()]
texts = st.one_of(
    st.text(max_size=400),
    st.text(alphabet="ab1:/.-+ []{}\"'\n\t\r\x1b\x0b\x85\u2028", max_size=400),
    st.tuples(st.sampled_from(EXAMPLES), st.integers(0, 3000), st.integers(0, 3000)).map(
        lambda drawn: drawn[0][min(drawn[1:]) : max(drawn[1:])]
    ),
)


@given(texts, st.sampled_from(Kind), st.sampled_from(CALLS), st.booleans(), st.integers(0, 300))
def test_any_text_of_any_kind_gives_one_line_within_its_room(text, kind, call, is_error, most):
    use = ToolUse(1, call, ToolResult("c1", text, is_error))
    outcome = outcome_of(use, kind, failure_of(use), most)
    assert len(outcome) <= most
    assert len(outcome.splitlines()) <= 1
    assert outcome == outcome_of(use, kind, failure_of(use), most)
