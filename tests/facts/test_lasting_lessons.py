"""Which rules of the user hold in other sessions, and which errors tell something about the project."""

from __future__ import annotations

import pytest
from hypothesis import given

from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import extract_facts
from context_compactor.facts.lesson_folders import load_lessons, owner_folder
from context_compactor.facts.promotion import is_lasting_rule, is_slip, lasting_rules, promote

from .conversations import agent, histories, turns_of, user


def rule(content: str, turn: int = 1, role: str = "user") -> Fact:
    return Fact("constraint", content, turn, role, "", "active", 1, turn, f"turn_{turn:03d}")  # type: ignore[arg-type]


def failure(command: str, error: str) -> Fact:
    return Fact("failure", command, 3, "tool", error, "", 1, 3, "tool_003")


@pytest.mark.parametrize(
    "content",
    [
        "Never push to main, always open a pull request.",
        "Please always run `make lint` before you commit.",
        "From now on use uv, since pip is not pinned.",
        "In this repo we want snapshots of every screen.",
        "Put it into AGENTS.md: ask before the slow tests are run, since they cost money.",
        "Whenever a migration is added, update docs/schema.md as well.",
        "Niemals direkt auf main pushen, immer einen PR öffnen.",
        "今後は必ずテストを先に書いてください。",
    ],
)
def test_a_rule_that_says_so_itself_holds_in_other_sessions(content):
    assert is_lasting_rule(rule(content))


@pytest.mark.parametrize(
    "content",
    [
        "No, this should be a map.",
        "I'd keep it for now.",
        "never do that again",
        "yes, always do it like that",
        "I think we should always check the branch first.",
        "we can always render it on the way out",
        "We never got an answer from the server.",
        "Never mind, go on.",
        "The comment should be updated to: lines added by the agent.",
        "Never touch the parser in this PR.",
        "let's do 2 for now, always with the flag",
        "Your response must always include a tool call.",
        "Should we always use UTC?",
    ],
)
def test_what_is_said_of_the_work_at_hand_does_not(content):
    assert not is_lasting_rule(rule(content))


def test_only_the_user_makes_rules():
    content = "Never push to main, always open a pull request."
    assert not is_lasting_rule(rule(content, role="assistant"))
    assert not is_lasting_rule(Fact("decision", content, 1, "user"))


def test_a_page_of_instructions_is_no_rule_of_a_person():
    page = [rule(f"Always use the flag --{name} with every program.") for name in ("yes", "force", "quiet", "json")]
    assert lasting_rules(page) == []
    assert lasting_rules(page[:2]) == page[:2]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("python -m pytest", "/usr/bin/python: No module named pytest"),
        ("npm install", "npm ERR! ERESOLVE could not resolve peer dependency"),
        ("make deploy", "error: port 5432 is taken"),
        ("just build", "bash: just: command not found"),
        ("docker compose up", "Cannot connect to the Docker daemon: permission denied"),
    ],
)
def test_an_error_of_the_project_is_no_slip(command, error):
    assert not is_slip(failure(command, error))


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("Read src/gone.py", "File does not exist."),
        ("rg -n 'a(' src", "rg: regex parse error: unclosed group"),
        ("cd app && jq .a data.json", "jq: error (at <stdin>:3): cannot index string"),
        ("pytest tests/test_a.py", "E   assert 3 == 4"),
        ("go build ./...", "main.go:41: undefined: start"),
        ("go test ./...", "--- FAIL: TestStart (0.01s)"),
        ("sed -n 1,5p gone.ts", "sed: can't read gone.ts: No such file or directory"),
        ("make all", "the table of results follows"),
    ],
)
def test_a_look_that_found_nothing_and_code_under_work_are_slips(command, error):
    assert is_slip(failure(command, error))


def test_a_lasting_rule_is_told_to_the_next_session(tmp_path):
    facts = extract_facts(turns_of(user("Never push to main, always open a pull request."), agent("Understood.")))
    new = promote(facts, tmp_path, "ann", session_id="run-1", day="2026-01-26", seen={})
    assert [lesson.by for lesson in new] == ["user"]
    found = load_lessons(owner_folder(tmp_path, "ann"), 600)
    assert "## Rules of the user" in found
    assert '"Never push to main, always open a pull request."' in found


@given(histories)
def test_any_conversation_can_be_looked_through(history):
    facts = extract_facts(history)
    assert all(fact.role == "user" for fact in lasting_rules(facts))
    assert {is_slip(fact) for fact in facts if fact.kind == "failure"} <= {True, False}
