from __future__ import annotations

import pytest
from hypothesis import given

from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import extract_facts
from context_compactor.facts.lesson_folders import owner_folder
from context_compactor.facts.promotion import error_key, is_architectural, is_recurring, promote

from .conversations import agent, bash, histories, texts, turns_of, user

DAY = "2026-01-26"
ANN = "ann"


def decision(content: str, role: str = "assistant") -> Fact:
    return Fact("decision", content, 17, role, "", "", 1, 17, "turn_017")  # type: ignore[arg-type]


def failure(command: str, error: str, status: str = "", outcome: str = "") -> Fact:
    return Fact("failure", command, 3, "tool", error, status, 1, 3, "tool_003", outcome=outcome)


@pytest.mark.parametrize(
    "content",
    [
        "Using libsql instead of DuckDB for Bun compatibility",
        "We decided to keep sessions in Redis, because two machines read them.",
        "I'll use a state machine rather than flags so that illegal states cannot exist.",
        "We'll go with JWT in httpOnly cookies to avoid a session store.",
        "We chose event sourcing over CRUD because audits need the history.",
        "We decided against microservices; a modular monolith is enough.",
        "**Key decision:** the webhook only verifies and puts the request on a queue.",
        "We will keep the old endpoint for backwards compatibility because clients depend on it.",
        "I'll go with `pnpm` instead of `npm`.",
        "Wir haben uns entschieden, PostgreSQL statt MySQL zu verwenden.",
        "我们决定使用PostgreSQL而不是MySQL。",
    ],
)
def test_a_choice_that_the_project_is_built_on_is_architectural(content):
    assert is_architectural(decision(content))
    assert is_architectural(decision(content, "user"))


@pytest.mark.parametrize(
    "content",
    [
        "I decided to run the tests again.",
        "I'll rerun the failing test instead of the whole suite.",
        "I'll split this into two commits so that the review is easier.",
        "I'm going to push to a branch instead of main, because the repository forbids the rest.",
        "The fix is to close the database connection when the worker stops.",
        "The simplest fix is to add the schema to the import list.",
        "I'd recommend option 1, since it needs no migration.",
        "I'd go with PostgreSQL rather than SQLite.",
        "Let's go with option B.",
        "We went with that because of the API.",
        "I'll go with the first option, flight HAT136.",
        "I'll use a Python script instead of sed, because the edit spans lines.",
        "I'll use `rg` instead of grep because it is faster.",
        "The description says we should use the cache instead of the database.",
        "1. server.go with content: package main, because the API needs it",
        "I'll skip this refactoring because the interface is clear enough.",
    ],
)
def test_an_errand_a_repair_or_a_suggestion_is_not(content):
    assert not is_architectural(decision(content))


@pytest.mark.parametrize(
    "content",
    [
        "We decided to keep sessions in Redis.",
        "We settled on cursor-based pagination for the public API.",
        "We'll go with JWT in httpOnly cookies.",
    ],
)
def test_a_choice_without_a_reason_counts_only_as_the_users(content):
    assert is_architectural(decision(content, "user"))
    assert not is_architectural(decision(content))


def test_the_users_word_counts_for_more_than_the_agents():
    words = "I'll put the parser into its own module instead of app.py so that no import of the server is needed."
    assert is_architectural(decision(words, "user"))
    assert not is_architectural(decision(words))


def test_what_is_no_decision_is_not_architectural():
    content = "We decided to keep sessions in Redis."
    assert not is_architectural(Fact("constraint", content, 1, "user"))
    assert not is_architectural(Fact("decision", content, 1, "assistant", "", "finding"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("src/auth/jwt.py:41: error: Missing return", "lib/auth/jwt.py:7: error: Missing return"),
        ("panic at 0x7f3a9c: goroutine 18", "panic at 0xdeadbeef: goroutine 9"),
        ('ModuleNotFoundError: No module named "pytz"', "ModuleNotFoundError: No module named 'pytz'"),
        ("fatal: bad object 3f2a9c1d8e", "fatal: bad object 94be02aa71"),
        ("timeout after 30.5s on https://a.example/x?id=1", "timeout after 31s on https://b.example/y"),
        ("\x1b[31mConnection refused\x1b[0m on port 5432", "Connection refused on port 5433"),
        ("cannot write C:\\Users\\a\\app.log", "cannot write /var/log/app.log"),
    ],
)
def test_an_error_has_the_same_key_whatever_its_numbers_ids_and_places(one, other):
    assert error_key(failure("make", one)) == error_key(failure("make -j", other)) != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("No module named 'pytz'", "No module named 'asgiref'"),
        ("src/a.py: undefined name x", "src/b.py: undefined name x"),
        ("connection refused", "connection reset"),
    ],
)
def test_other_errors_have_other_keys(one, other):
    assert error_key(failure("make", one)) != error_key(failure("make", other))


def test_an_error_that_tells_nothing_is_known_by_its_command():
    assert error_key(failure("make lint", "exit code 1")) == error_key(failure("make lint", "exit code 2"))
    assert error_key(failure("make lint", "exit code 1")) != error_key(failure("make test", "exit code 1"))
    missing = "File does not exist."
    assert error_key(failure("Read src/a.py", missing)) != error_key(failure("Read src/b.py", missing))


def test_what_the_user_denied_and_what_is_no_error_has_no_key():
    assert error_key(failure("git push", "The user doesn't want to proceed", "denied")) == ""
    assert error_key(decision("We decided to keep sessions in Redis.")) == ""


def test_an_error_recurs_when_two_sessions_have_seen_it():
    fact = failure("npm install", "npm ERR! ERESOLVE peer dependency conflict")
    assert not is_recurring(fact, {})
    assert not is_recurring(fact, {error_key(fact): ["run-1", "run-1"]})
    assert is_recurring(fact, {error_key(fact): ["run-1", "run-2"]})


def lessons(tmp_path, *facts, sessions=("run-1", "run-2")):
    seen = {error_key(fact): list(sessions) for fact in facts}
    return [lesson.text for lesson in promote(facts, tmp_path, ANN, session_id="run-2", day=DAY, seen=seen)]


def test_a_failure_that_came_back_is_promoted_with_what_came_of_it(tmp_path):
    installed = failure("python a.py", "No module named 'pytz'", "resolved", "`pip install pytz` in turn 7")
    assert lessons(tmp_path, installed) == ["`python a.py` → No module named 'pytz' · resolved: `pip install pytz`"]
    again = failure("python b.py", "No module named 'pytz'", "given up", "not tried again")
    assert lessons(tmp_path, again) == []


def test_what_was_given_up_is_promoted_from_one_session_when_somebody_said_why(tmp_path):
    by_user = failure(
        "npm run e2e", "Error: no display", "given up", 'user: "skip e2e, there is no display on this box"'
    )
    by_agent = failure(
        "docker ps", "Cannot connect to the daemon", "given up", 'agent: "Docker is not available here."'
    )
    left = failure("./x.sh", "Error: no route", "given up", "not tried again")
    simpler = failure(
        "python run.py", "KeyError: no such key here", "given up", 'agent: "Let me try a simpler script."'
    )
    found = lessons(tmp_path, by_user, by_agent, left, simpler, sessions=("run-2",))
    assert [text.split("`")[1] for text in found] == ["npm run e2e", "docker ps"]


@pytest.mark.parametrize(
    "fact",
    [
        failure("go test ./...", "a_test.go:9: expected 1, got 2", "resolved", "passed in turn 9 after editing a.go"),
        failure("mise run lint", "[lint] ERROR task failed", "open"),
        failure("rg 'a(' src", "rg: regex parse error", "given up", "not tried again"),
        failure("sed -n 1,9p a.py", "sed: can't read a.py: No such file or directory", "open"),
        failure("cat > a.py <<'EOF' x EOF python a.py", "KeyError: 'indexes' is missing", "open"),
        failure("Edit a.py: x", "String to replace not found in file.", "resolved", "applied in turn 9"),
        failure("gh pr diff --stat", "unknown flag: --stat", "given up", "not tried again"),
        failure("git push", "The user doesn't want to proceed with this tool use.", "resolved", "passed in turn 9"),
    ],
)
def test_repairs_searches_and_slips_teach_nothing(tmp_path, fact):
    assert lessons(tmp_path, fact) == []


def test_nothing_is_promoted_from_a_run_that_passed(tmp_path):
    passed = bash("bun test | tail", "error: refused (expected)\n 41 pass\n 0 fail")
    facts = [fact for fact in extract_facts(turns_of(user("go"), passed, passed)) if fact.kind == "failure"]
    assert facts == []
    assert lessons(tmp_path, *facts) == []


def test_a_conversation_is_promoted_with_where_it_came_from(tmp_path):
    facts = extract_facts(
        turns_of(
            user("We decided to store all events in SQLite instead of Postgres."),
            agent("I decided to run the tests again."),
            bash("python -m pytest", "/usr/bin/python: No module named pytest", is_error=True),
        )
    )
    seen = {error_key(fact): ["run-7", "run-8"] for fact in facts if fact.kind == "failure"}
    new = promote(facts, tmp_path, ANN, session_id="run-8", day=DAY, seen=seen)
    assert [lesson.by for lesson in new] == ["user", "tool"]
    assert (
        (owner_folder(tmp_path, ANN) / "decisions.md")
        .read_text()
        .endswith(
            "- We decided to store all events in SQLite instead of Postgres.\n"
            "  by the user · 2026-01-26 · 1 session · run-8 turn_001\n"
        )
    )
    assert (
        (owner_folder(tmp_path, ANN) / "errors.md")
        .read_text()
        .endswith(
            "- `python -m pytest` → /usr/bin/python: No module named pytest\n"
            "  by a tool · 2026-01-26 · 2 sessions · run-7, run-8 tool_001\n"
        )
    )


def test_promoting_again_changes_nothing(tmp_path):
    facts = [decision("We decided to keep sessions in Redis.", "user")]
    assert len(promote(facts, tmp_path, ANN, session_id="run-1", day=DAY, seen={})) == 1
    before = (owner_folder(tmp_path, ANN) / "decisions.md").read_bytes()
    assert promote(facts, tmp_path, ANN, session_id="run-1", day="2026-01-30", seen={}) == []
    assert (owner_folder(tmp_path, ANN) / "decisions.md").read_bytes() == before


def test_nothing_worth_knowing_makes_no_files(tmp_path):
    facts = [decision("I decided to run the tests again."), failure("make", "boom: it broke")]
    assert promote(facts, tmp_path / "learned", ANN, session_id="run-1", day=DAY, seen={}) == []
    assert not (tmp_path / "learned").exists()


@given(histories)
def test_any_history_can_be_promoted(tmp_path_factory, turns):
    facts = extract_facts(turns)
    seen = {error_key(fact): ["run-1", "run-2"] for fact in facts}
    folder = tmp_path_factory.mktemp("learned")
    promote(facts, folder, ANN, session_id="run-2", day=DAY, seen=seen)
    assert promote(facts, folder, ANN, session_id="run-2", day=DAY, seen=seen) == []


@given(texts)
def test_the_key_of_any_error_is_one_short_line(text):
    key = error_key(failure(text, text))
    assert len(key) <= 100
    assert key.split() == key.split(" ") or key == ""
