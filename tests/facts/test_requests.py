"""What the user asked for, and what became of it."""

from __future__ import annotations

import pytest

from context_compactor.dialects.messages import Message
from context_compactor.facts.ledgers import extract_facts
from context_compactor.facts.tasks import is_closing, is_request
from tests.facts.conversations import agent, bash, turns_of, user


def tasks(*steps: list[Message]) -> list[tuple[str, str]]:
    return [(fact.status, fact.content) for fact in extract_facts(turns_of(*steps)) if fact.kind == "task"]


@pytest.mark.parametrize(
    "text",
    [
        "thanks!",
        "That's all I needed. Thanks so much for your help!",
        "Thank you. ###STOP###",
        "!git status",
        "/compact",
        "yes please",
        "Please continue",
        "Rule: amounts are integers in cents.\nNote: times are in UTC.",
    ],
)
def test_thanks_commands_and_rules_are_no_requests(text: str) -> None:
    assert tasks(user("Book a flight."), agent("Booked."), user(text))[-1][1] == "Book a flight."


@pytest.mark.parametrize(
    "text", ["/review-pull-request", "push", "Thanks, now write the docs.", "thanks, but it fails"]
)
def test_what_asks_for_something_is_a_request(text: str) -> None:
    assert is_request(text) or text == "push"
    assert not is_closing(text)


def test_a_request_that_was_answered_and_thanked_for_is_done() -> None:
    done = (user("Book a flight."), bash("book", "ok"), agent("Booked: XK12."))
    assert tasks(*done) == [("active", "Book a flight.")]
    assert tasks(*done, user("thanks a lot!")) == [("done", "Book a flight.")]


def test_a_request_on_top_of_another_does_not_end_it() -> None:
    steps = (user("Fix the parser."), bash("ls", "a"), user("also update the docs for it"), bash("ls", "b"))
    assert [status for status, _ in tasks(*steps)] == ["active", "active"]
    assert [status for status, _ in tasks(*steps, agent("Both done."), user("Now release it."))] == [
        "done",
        "done",
        "active",
    ]


def test_the_answer_to_a_question_is_no_new_task() -> None:
    steps = (user("Set up the database."), agent("Which one should I use?"), user("Postgres 16 on port 5433"))
    assert tasks(*steps) == [("active", "Set up the database.")]
    assert tasks(*steps[:2], user("Use Postgres 16"))[-1][1] == "Use Postgres 16"


def test_the_request_that_a_harness_wraps_is_told_in_its_own_words() -> None:
    prompt = (
        "<pr_description>\nConsider the following PR description:\nmerge() drops the last row of uneven tables\n"
        "Steps to see it ...\n</pr_description>\n<instructions>\nYou're an engineer. Do not commit.\n</instructions>"
    )
    assert tasks(user(prompt)) == [("active", "merge() drops the last row of uneven tables")]


def test_behind_a_quotation_the_question_is_the_request() -> None:
    text = "=== Step 11: check ===\nFound entry 12fdf\n=== Step 12: done ===\nThat should have a date, or?"
    assert tasks(user(text)) == [("active", "That should have a date, or?")]


def test_a_request_that_is_made_again_is_one_with_a_count() -> None:
    steps = (user("commit and push"), agent("Done."), user("Fix the lint."), agent("Done."), user("commit and push"))
    found = [fact for fact in extract_facts(turns_of(*steps)) if fact.kind == "task"]
    assert [(fact.content, fact.count, fact.status) for fact in found] == [
        ("Fix the lint.", 1, "done"),
        ("commit and push", 2, "active"),
    ]


def test_a_request_behind_a_rule_is_still_one() -> None:
    text = "Never touch the migrations folder. Then add a test for it."
    assert tasks(user("Fix it."), agent("Done."), user(text))[-1] == ("active", text)


def test_the_first_request_is_never_lost() -> None:
    assert tasks(user("hi"), agent("Hello!")) == [("active", "hi")]


def test_a_problem_that_is_reported_behind_a_question_is_a_request_and_no_answer():
    turns = turns_of(
        user("Write the parser."), agent("It is written. Ready to commit?"), user("the nightly build is failing")
    )
    asked = [fact for fact in extract_facts(turns) if fact.kind == "task"]
    assert [fact.content for fact in asked] == ["Write the parser.", "the nightly build is failing"]
