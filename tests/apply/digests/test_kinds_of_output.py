from __future__ import annotations

import json

from context_compactor.engine.digests import digest
from context_compactor.facts.kinds import Kind
from tests.apply.digests import outputs
from tests.classify.calls_of import bash, tool


def short(kind: Kind, text: str, command: str = "") -> list[str]:
    return digest(kind, bash(command) if command else None, text).split("\n")


def test_a_search_keeps_the_count_the_files_and_three_findings_with_the_definition():
    lines = short(Kind.SEARCH_RESULT, outputs.GREP)
    assert lines[0] == "33 matches in 32 files"
    assert lines[1].startswith("src/auth/routes.ts 2, src/auth/jwt.ts 1, ")
    assert lines[3:] == [
        "src/auth/jwt.ts:41:export function verifyToken(token: string): TokenPayload {",
        "src/auth/routes.ts:41: const payload = verifyToken(request.cookies.token);",
        "src/auth/routes.ts:12:import { verifyToken } from './jwt';",
    ]


def test_a_search_in_one_file_names_the_file():
    text = "\n".join(f"{n}:    value = compute(n{n})" for n in range(1, 60))
    lines = short(Kind.SEARCH_RESULT, text, "grep -n compute src/a.py")
    assert lines[:2] == ["59 matches", "src/a.py:1: value = compute(n1)"]


def test_a_search_that_only_counts_keeps_the_counts():
    text = "\n".join(f"src/module_{n}.py:{n}" for n in range(40))
    lines = short(Kind.SEARCH_RESULT, text)
    assert lines[0] == "780 matches in 40 files"
    assert lines[1].startswith("src/module_39.py 39, src/module_38.py 38")


def test_found_paths_are_counted_by_folder_and_ending():
    text = "Found 60 files\n" + "\n".join(f"/srv/app/src/{'auth' if n % 2 else 'web'}/file_{n}.ts" for n in range(60))
    lines = short(Kind.SEARCH_RESULT, text)
    assert lines[0] == "60 files under /srv/app/src/: .ts 60"
    assert lines[1] == "in web/ 30, auth/ 30"


def test_web_search_keeps_three_titles_with_their_addresses():
    assert short(Kind.SEARCH_RESULT, outputs.WEB_SEARCH) == [
        "4 results",
        "- How to use fixtures https://docs.pytest.org/how-to/fixtures.html",
        "- Fixture scopes explained https://example.com/scopes",
        "- Five mistakes https://example.com/five",
    ]


def test_a_diff_keeps_files_counts_and_the_functions_it_touches():
    assert short(Kind.DIFF, outputs.DIFF) == [
        "3 files, 3 hunks, +11 -4",
        "src/auth/jwt.ts +9 -1: export function verifyToken(token: string): TokenPayload; adds rotate",
        "src/auth/legacy.ts (deleted file) +0 -3",
        "tests/refresh.test.ts (new file) +2 -0",
    ]


def test_a_shown_commit_keeps_its_hash_and_first_words():
    text = f"commit 81e74812aa9fc6b43101\nAuthor: Mia <mia@example.com>\n\n    fix: simplify\n\n{outputs.DIFF}"
    assert short(Kind.DIFF, text)[0] == "commit 81e74812aa9f fix: simplify"


def test_a_plain_diff_is_read_as_well():
    text = "--- a.py.orig\t2026-01-02\n+++ a.py\t2026-01-02\n@@ -1,30 +1,30 @@ class A:\n" + " same\n" * 40 + "-x\n+y\n"
    assert short(Kind.DIFF, text) == ["1 file, 1 hunk, +1 -1", "a.py +1 -1: class A"]


def test_a_patch_for_an_agent_is_read_as_well():
    text = "*** Begin Patch\n*** Update File: src/a.py\n@@ def f():\n" + " same\n" * 40 + "-x\n+y\n*** End Patch"
    assert short(Kind.DIFF, text)[1] == "src/a.py +1 -1"


def test_a_diff_stat_keeps_the_total_and_the_largest_first():
    lines = short(Kind.DIFF, outputs.GIT_STAT)
    assert lines[0] == "5 files changed, 131 insertions(+), 21 deletions(-)"
    assert lines[1].startswith("docs/architecture/checkpoint-scenarios.md 88, ")


def test_a_listing_keeps_counts_and_names():
    lines = short(Kind.LISTING, outputs.LS)
    assert lines[0] == "23 files, 2 folders: .py 20, .md 1, .toml 1"
    assert lines[1].startswith(".git/, src/, README.md, pyproject.toml, latest, module_00.py")


def test_a_tree_keeps_its_names():
    lines = short(Kind.LISTING, outputs.TREE * 3)
    assert lines[1].startswith("src, auth, jwt.ts, routes.ts, types.ts, config, default.json")


def test_a_log_keeps_levels_times_and_complaints_with_counts():
    assert short(Kind.LOG, outputs.LOG) == [
        "49 lines; fatal 1, error 7, warning 1, info 40; 2026-01-02T10:00:00.120Z to 2026-01-02T10:02:03.777Z",
        "2026-01-02T10:02:03.777Z FATAL [main] shutting down: out of connections",
        "2026-01-02T10:01:00.500Z ERROR [db] connection 10.0.0.0 refused after 3000ms  \N{MULTIPLICATION SIGN}7",
        "2026-01-02T10:02:00.001Z WARN [cache] 91% full",
        "last: 2026-01-02T10:02:03.777Z FATAL [main] shutting down: out of connections",
    ]


def test_a_log_without_levels_merges_what_differs_only_in_numbers():
    text = "\n".join(f"10:00:{n:02} [wingman] review process started (pid={n})" for n in range(50))
    assert short(Kind.LOG, text) == [
        "50 lines; 10:00:00 to 10:00:49",
        "10:00:00 [wingman] review process started (pid=0)  \N{MULTIPLICATION SIGN}50",
        "last: 10:00:49 [wingman] review process started (pid=49)",
    ]


def test_an_api_response_keeps_status_shape_and_key_values_as_written():
    lines = short(Kind.API_RESPONSE, outputs.API)
    assert lines[0].startswith("state: closed, id: 1361, ")
    assert lines[0].endswith("score: 1.50")
    assert lines[1].startswith('body: "Repoint the existing target')
    assert 'user: {login: mia, id: 351934, type: User, site_admin: false, node_id: "MDQ6VXNlcjM1MTkzNA=="}' in lines
    assert any(line.startswith('files: [4] {status: modified, filename: "src/a.ts"') for line in lines)


def test_an_http_status_line_stays():
    lines = short(Kind.API_RESPONSE, outputs.CURL)
    assert lines[0] == "HTTP/1.1 404 Not Found"
    assert 'error: {code: not_found, message: "no user with id 7"}' in lines


def test_a_list_of_records_keeps_the_count_the_fields_three_records_and_the_states():
    records = [{"id": n, "status": "open" if n % 3 else "done", "title": f"issue number {n}"} for n in range(30)]
    assert short(Kind.API_RESPONSE, json.dumps(records)) == [
        "30 items of {id, status, title}",
        '- {id: 0, status: done, title: "issue number 0"}',
        '- {id: 1, status: open, title: "issue number 1"}',
        '- {id: 2, status: open, title: "issue number 2"}',
        "status: open 20, done 10",
    ]


def test_json_lines_are_a_list_of_records():
    text = "\n".join(json.dumps({"event": "push", "number": n, "padding": "x" * 40}) for n in range(20))
    assert short(Kind.API_RESPONSE, text)[0] == "20 items of {event, number, padding}"


def test_json_that_was_cut_off_still_tells_its_fields():
    text = json.dumps({"id": "ENT-53", "state": "open", "items": [{"n": n} for n in range(200)]})[:-100]
    lines = short(Kind.API_RESPONSE, text)
    assert lines[0] == "JSON, cut off; fields found:"
    assert lines[1].startswith('id: "ENT-53", state: "open", n: 0')


def test_a_sub_agent_keeps_status_summary_files_and_recommendations():
    assert short(Kind.SUBAGENT, outputs.SUBAGENT) == [
        "Task ID: TASK-042",
        "Status: success",
        "Summary: Implemented login endpoint with JWT authentication",
        "files: src/auth/login.ts, src/auth/types.ts, tests/auth/login.test.ts",
        "tests: 12 passing, 0 failing",
        "headings: Task Result",
        "Recommendations:",
        "- Add rate limiting",
        "- Consider refresh tokens",
    ]


def test_a_sub_agents_small_talk_is_passed_over():
    text = (
        "Perfect! Now I have all the information I need. Let me write the report.\n\n## Findings\n\n"
        "The session state keeps the base commit in `src/state.go`, and nothing else ever writes it.\n"
        + "More details about that.\n" * 40
        + "agentId: a9dc601"
    )
    lines = short(Kind.SUBAGENT, text)
    assert lines[0].startswith("The session state keeps the base commit")
    assert "files: src/state.go" in lines
    assert lines[-1] == "agent: a9dc601"


def test_a_web_page_keeps_title_headings_and_the_first_paragraph():
    assert short(Kind.WEB_PAGE, outputs.HTML) == [
        "title: Hooks reference & guide",
        "headings: Hooks reference · Matchers · Exit codes",
        "Hooks are shell commands that run at specific points of the life of a session.",
    ]


def test_a_page_in_markdown_keeps_the_same():
    assert short(Kind.WEB_PAGE, outputs.MARKDOWN) == [
        "title: Hooks reference",
        "headings: Matchers · Exit codes",
        "Hooks are shell commands that run at specific points of the life of a session.",
    ]


def test_a_command_keeps_its_exit_code_its_complaints_and_its_ends():
    text = f"<returncode>2</returncode>\n<output>\n{outputs.COMMAND}\n</output>"
    assert short(Kind.COMMAND, text) == [
        "exit code 2, 37 lines",
        "$ tsc -p . && vite build",
        "src/page0.ts(14,7): error TS2322: Type 'string' is not assignable to type 'number'.  \N{MULTIPLICATION SIGN}3",
        "warning: 2 chunks are larger than 500 kB",
        "dist/index.js 412.10 kB",
        "Found 3 errors.",
    ]


def test_colours_and_overwritten_progress_are_no_part_of_the_text():
    text = "\x1b[31merror:\x1b[0m boom\n" + "".join(f"\r{n}% done" for n in range(100)) + "\nend\n"
    assert short(Kind.COMMAND, text) == ["3 lines", "error: boom", "end"]


def test_a_tool_that_answers_json_is_read_as_json_whatever_its_kind():
    call = tool("spawn_agent", message="x")
    text = json.dumps({"agent_id": "019efedf", "status": "running", "log": ["line"] * 60})
    assert digest(Kind.SUBAGENT, call, text).startswith("status: running, agent_id: ")
