from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.messages import ToolCall
from context_compactor.facts.kinds import Kind, kind_of
from tests.classify.calls_of import bash, tool

SOME_TEXT = "one line\nanother line\n"


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (tool("Read", file_path="src/a.py"), Kind.CODE),
        (tool("read_file", path="src/a.py"), Kind.CODE),
        (tool("str_replace_editor", command="view", path="a.py"), Kind.CODE),
        (tool("mcp__filesystem__read_text_file", path="a.py"), Kind.CODE),
        (tool("Grep", pattern="x", path="src"), Kind.SEARCH_RESULT),
        (tool("Glob", pattern="**/*.py"), Kind.SEARCH_RESULT),
        (tool("search_files", query="x"), Kind.SEARCH_RESULT),
        (tool("WebSearch", query="x"), Kind.SEARCH_RESULT),
        (tool("LS", path="src"), Kind.LISTING),
        (tool("list_dir", path="src"), Kind.LISTING),
        (tool("Task", description="review", prompt="…"), Kind.SUBAGENT),
        (tool("Agent", description="review", prompt="…"), Kind.SUBAGENT),
        (tool("spawn_agent", message="review"), Kind.SUBAGENT),
        (tool("WebFetch", url="https://example.com", prompt="…"), Kind.WEB_PAGE),
        (tool("run_tests", path="tests"), Kind.TEST_RUN),
        (tool("get_user_details", user_id="mia_kim_4397"), Kind.API_RESPONSE),
        (tool("mcp__linear__get_issue", id="ENT-53"), Kind.API_RESPONSE),
        (tool("Edit", file_path="a.py", old_string="a", new_string="b"), Kind.COMMAND),
        (tool("TodoWrite", todos=[]), Kind.COMMAND),
        (tool("update_plan", plan=[]), Kind.COMMAND),
        (tool("AskUserQuestion", questions=[]), Kind.TALK),
        (tool("frobnicate", x=1), Kind.COMMAND),
    ],
)
def test_a_tool_tells_its_kind_by_name(call, kind):
    assert kind_of(call, SOME_TEXT) is kind


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("cat src/a.py", Kind.CODE),
        ("sed -n '1,20p' src/a.py", Kind.CODE),
        ("head -50 src/a.py", Kind.CODE),
        ("tail -n +20 src/a.py", Kind.CODE),
        ("git show HEAD:src/a.py", Kind.CODE),
        ("cat src/a.py | head -50", Kind.CODE),
        ("rg -n verifyToken src", Kind.SEARCH_RESULT),
        ("grep -rn x . | head", Kind.SEARCH_RESULT),
        ("find . -name '*.py' | xargs grep -l x", Kind.SEARCH_RESULT),
        ("cat src/a.py | grep -n x", Kind.SEARCH_RESULT),
        ("git grep x", Kind.SEARCH_RESULT),
        ("ls -la", Kind.LISTING),
        ("pwd && ls -la | grep test", Kind.LISTING),
        ("tree -L 2", Kind.LISTING),
        ("git diff", Kind.DIFF),
        ("git -C /srv/app diff --stat", Kind.DIFF),
        ("git show abc123", Kind.DIFF),
        ("gh pr diff 142", Kind.DIFF),
        ("diff -u a b", Kind.DIFF),
        ("pytest -q", Kind.TEST_RUN),
        ("python -m pytest tests -x 2>&1 | tail -20", Kind.TEST_RUN),
        ("python3 -m unittest discover", Kind.TEST_RUN),
        ("./manage.py test", Kind.COMMAND),
        ("python manage.py test polls", Kind.TEST_RUN),
        ("cd app && uv run pytest", Kind.TEST_RUN),
        ("go test ./...", Kind.TEST_RUN),
        ("go build ./... && go test ./... -run TestX", Kind.TEST_RUN),
        ("cargo test --lib", Kind.TEST_RUN),
        ("cargo nextest run", Kind.TEST_RUN),
        ("npm test", Kind.TEST_RUN),
        ("npm run test:unit -- refresh", Kind.TEST_RUN),
        ("npx vitest run", Kind.TEST_RUN),
        ("CI=1 yarn test", Kind.TEST_RUN),
        ("mise run test:ci", Kind.TEST_RUN),
        ("make check", Kind.TEST_RUN),
        ("curl -s https://api.example.com/users/7", Kind.API_RESPONSE),
        ("gh api repos/a/b/pulls", Kind.API_RESPONSE),
        ("docker logs web", Kind.LOG),
        ("kubectl logs -f pod/web", Kind.LOG),
        ("tail -100 /var/log/app.log", Kind.LOG),
        ("cat app.log", Kind.LOG),
        ("git status", Kind.COMMAND),
        ("python test_thing.py", Kind.COMMAND),
        ("cat > a.py <<'EOF'\nimport pytest\nEOF", Kind.COMMAND),
        ("sed -i 's/a/b/' a.py", Kind.COMMAND),
        ("npm run build", Kind.COMMAND),
    ],
)
def test_a_shell_call_tells_its_kind_by_its_command(command, kind):
    assert kind_of(bash(command), SOME_TEXT) is kind


@pytest.mark.parametrize(
    "wrapped",
    [
        "cd /srv/app && go test ./...",
        "cd /srv/app; go test ./...",
        'bash -lc "go test ./..."',
        "bash -lc 'cd x && go test ./...'",
        "GOFLAGS=-race CGO_ENABLED=1 go test ./...",
        "env GOFLAGS=-race go test ./...",
        "timeout 60 go test ./...",
        "sudo time go test ./...",
        "# run everything\ngo test ./...",
        "(cd sub && go test ./...)",
    ],
)
def test_a_command_is_recognised_behind_what_stands_in_front_of_it(wrapped):
    assert kind_of(bash(wrapped), SOME_TEXT) is Kind.TEST_RUN


@pytest.mark.parametrize("arguments", ['{"command": ["bash", "-lc", "rg -n x src"]}', '{"cmd": "rg -n x src"}'])
def test_codex_commands_are_read_in_both_forms(arguments):
    assert kind_of(ToolCall("c", "exec_command", arguments), SOME_TEXT) is Kind.SEARCH_RESULT


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    import x\nImportError: no x\n'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (TRACEBACK, Kind.ERROR_TRACE),
        ("panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/app/main.go:5 +0x1d\n", Kind.ERROR_TRACE),
        ("TypeError: x is not a function\n    at run (/app/a.js:3:5)\n", Kind.ERROR_TRACE),
        ("diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a\n+b\n", Kind.DIFF),
        ('{"id": 7, "name": "Mia"}', Kind.API_RESPONSE),
        ('[{"id": 7}, {"id": 8}]', Kind.API_RESPONSE),
        ("collected 2 items\n\n==== 2 passed in 0.03s ====\n", Kind.TEST_RUN),
        ("ok  \texample.com/a\t0.01s\n", Kind.TEST_RUN),
        ("test result: ok. 3 passed; 0 failed;\n", Kind.TEST_RUN),
        ("<!DOCTYPE html><html><head></head></html>", Kind.WEB_PAGE),
        ("2026-01-02 10:00:00 INFO a\n" * 8, Kind.LOG),
        ("src/a.py:3:x\nsrc/a.py:9:x\nsrc/b.py:1:x\n", Kind.SEARCH_RESULT),
        ("     1\timport x\n     2\t\n     3\tx()\n     4\t\n", Kind.CODE),
        ("Already up to date.", Kind.COMMAND),
        ("", Kind.COMMAND),
    ],
)
@pytest.mark.parametrize("call", [None, bash("./script")])
def test_an_unknown_command_is_judged_by_the_shape_of_its_output(call, text, kind):
    assert kind_of(call, text) is kind


def test_the_shape_is_read_behind_the_agents_own_header():
    body = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a\n+b\n"
    codex = f"Chunk ID: 1f\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n{body}"
    tagged = f"<returncode>0</returncode>\n<output>\n{body}</output>"
    assert kind_of(bash("./script"), codex) is Kind.DIFF
    assert kind_of(bash("./script"), tagged) is Kind.DIFF


def test_a_test_command_that_only_crashed_is_a_trace():
    assert kind_of(bash("pytest"), TRACEBACK) is Kind.ERROR_TRACE


def test_a_patch_file_that_was_read_is_a_diff():
    text = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n"
    assert kind_of(bash("cat patch.txt"), text) is Kind.DIFF


def test_an_edit_that_shows_its_snippet_shows_code():
    text = "The file a.py has been updated.\n    11→def a():\n    12→    pass\n    13→\n    14→x\n"
    assert kind_of(tool("Edit", file_path="a.py"), text) is Kind.CODE


@given(st.text(), st.text(), st.text())
def test_any_call_and_any_text_have_a_kind(name, arguments, text):
    assert kind_of(ToolCall("c", name, arguments), text) in Kind
    assert kind_of(None, text) in Kind


@pytest.mark.parametrize(
    "text", [" " * 1_000_000, "A" * 5_000_000, "[" * 100_000, "\ud800" * 5_000, "\x00\x01\n" * 50_000]
)
def test_hostile_text_has_a_kind_too(text):
    assert kind_of(bash("./script"), text) in Kind
    assert kind_of(bash(text), "") in Kind
