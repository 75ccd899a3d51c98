"""Where a task, or a step of it, ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.detection import DIALECTS, find_dialect
from context_compactor.dialects.turns import split_turns
from context_compactor.facts.tasks import find_task_boundary
from tests.engine.talks import DIALECT_NAMES, Call, Talk, bash, edit, read, talk_in

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


def at_the_end_of(talk: Talk) -> str:
    return find_task_boundary(split_turns(find_dialect(talk.dialect, talk.messages).parse(talk.messages)))


def working(dialect: str = "anthropic") -> Talk:
    return talk_in(dialect).system("Be brief.").user("Fix it.").step(read("src/a.py", "x = 1"))


def todo(*items: tuple[str, str]) -> Call:
    return Call("TodoWrite", {"todos": [{"content": title, "status": status} for title, status in items]}, "ok")


@every_dialect
def test_a_new_request_of_the_user_is_one(dialect):
    assert at_the_end_of(working(dialect)) == ""
    assert at_the_end_of(working(dialect).answer("Done.").user("And the docs?")) == "the user's new request"


@every_dialect
def test_it_stays_one_while_the_agent_only_talks(dialect):
    talk = working(dialect).answer("Done.").user("And the docs?").answer("I will look.")
    assert at_the_end_of(talk) == "the user's new request"
    assert at_the_end_of(talk.step(read("docs/a.md", "# A"))) == ""


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("pytest -q", "....\n4 passed in 0.12s"),
        ("npm test", "Tests:       12 passed, 12 total"),
        ("go test ./...", "ok  \tgithub.com/a/b\t0.012s"),
        ("cargo test", "test result: ok. 3 passed; 0 failed; 0 ignored"),
        ("python -m unittest", "Ran 3 tests in 0.001s\n\nOK"),
        ("bundle exec rspec", "12 examples, 0 failures"),
        ("mvn test", "Tests run: 5, Failures: 0, Errors: 0\nBUILD SUCCESS"),
        ("make test", "5 passing (20ms)"),
    ],
)
def test_tests_that_pass_are_one(command, output):
    assert at_the_end_of(working().step(bash(command, output))) == "tests passed"


@pytest.mark.parametrize(
    ("command", "output", "is_error"),
    [
        ("pytest -q", "1 failed, 3 passed in 0.12s", True),
        ("pytest -q", "FAILED test_a.py::test_b - assert 1 == 2\n1 failed, 3 passed in 0.12s", False),
        ("pytest -q", "no tests ran in 0.01s", False),
        ("go test ./...", "--- FAIL: TestA (0.00s)\nFAIL\tgithub.com/a/b\t0.01s", False),
        ("grep -rn passed .", "log:12 passed in 0.1s", False),
    ],
)
def test_tests_that_fail_or_do_not_run_are_none(command, output, is_error):
    assert at_the_end_of(working().step(bash(command, output, is_error))) == ""


def test_a_commit_is_one_and_a_refused_one_is_none():
    done = bash('git add -A && git commit -m "Fix it"', "[main 1a2b3c4] Fix it\n 1 file changed, 2 insertions(+)")
    refused = bash('git commit -m "Fix it"', "nothing to commit, working tree clean", True)
    assert at_the_end_of(working().step(done)) == "a commit was made"
    assert at_the_end_of(working().step(refused)) == ""
    assert at_the_end_of(working().step(bash("git log -1", "commit 1a2b3c4"))) == ""


def test_a_point_of_the_list_that_is_done_is_one():
    said = "a point of the to-do list is done"
    talk = working().step(todo(("Read", "in_progress"), ("Write", "pending")))
    assert at_the_end_of(talk) == ""
    assert at_the_end_of(talk.step(todo(("Read", "completed"), ("Write", "in_progress")))) == said
    assert at_the_end_of(talk.step(edit("src/a.py", "x = 1", "x = 2"))) == ""
    assert at_the_end_of(talk.step(todo(("Read", "completed"), ("Write", "in_progress"), ("Ship", "pending")))) == ""
    assert at_the_end_of(working().step(Call("TaskUpdate", {"taskId": "3", "status": "completed"}, "ok"))) == said
    assert at_the_end_of(working().step(Call("TaskUpdate", {"taskId": "3", "status": "in_progress"}, "ok"))) == ""


def test_what_a_client_says_in_the_users_name_is_none():
    assert at_the_end_of(working().user("<system-reminder>The list is empty.</system-reminder>")) == ""


def test_nothing_at_all_is_none():
    assert find_task_boundary([]) == ""
    assert at_the_end_of(talk_in("anthropic").system("Be brief.")) == ""
    assert at_the_end_of(talk_in("anthropic").answer("Hello.")) == ""


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), st.text(max_size=30)), max_size=6))
def test_any_talk_has_an_end_or_not(said):
    dialect = DIALECTS["openai-chat"]
    messages = [{"role": role, "content": text} for role, text in said]
    assert find_task_boundary(split_turns(dialect.parse(messages))) in ("", "the user's new request")
