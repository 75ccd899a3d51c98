"""Decisions by a short reply, by a label, and those that were taken back."""

from __future__ import annotations

import pytest

from context_compactor.dialects.messages import Message
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import extract_facts
from tests.facts.conversations import agent, bash, turns_of, user

OPTIONS = "Two ways:\n\n1. **Server sessions** - need Redis\n2. **Cookies** - httpOnly, 15 minutes\n\nWhich one?"


def decided(*steps: list[Message]) -> list[Fact]:
    return [fact for fact in extract_facts(turns_of(user("Add a login."), *steps)) if fact.kind == "decision"]


@pytest.mark.parametrize(
    "reply", ["2", "option 2", "the second one", "2.", "let's go with 2", "I'd take option 2, no Redis in production"]
)
def test_a_choice_is_told_in_the_words_of_the_option(reply: str) -> None:
    (found,) = decided(agent(OPTIONS), user(reply))
    assert found.content == "Cookies - httpOnly, 15 minutes"
    assert (found.detail, found.role, found.ref) == (f'user chose: "{reply}"', "assistant", "turn_003")


def test_several_options_can_be_chosen() -> None:
    found = [fact.content for fact in decided(agent(OPTIONS), user("both please"))]
    assert found == ["Server sessions - need Redis", "Cookies - httpOnly, 15 minutes"]


@pytest.mark.parametrize("reply", ["3 files are missing in the list", "neither", "1. no\n2. it is open\n3. yes"])
def test_a_number_that_picks_nothing_is_no_choice(reply: str) -> None:
    assert decided(agent(OPTIONS), user(reply)) == []


@pytest.mark.parametrize("reply", ["yes", "yes, do it", "go ahead", "ok do that", "sounds good"])
def test_an_accepted_proposal_is_a_decision(reply: str) -> None:
    (found,) = decided(agent("The test is flaky. Want me to replace the clock by a fixed one?"), user(reply))
    assert found.content == "Want me to replace the clock by a fixed one?"
    assert found.detail == f'user agreed: "{reply}"'


def test_a_question_that_only_points_back_is_told_with_what_it_points_to() -> None:
    asked = "I looked at both.\n\nI'd suggest a lock file instead of a pid check.\n\nWant me to make that change?"
    (found,) = decided(agent(asked), user("yes"))
    assert found.content == "I'd suggest a lock file instead of a pid check. Want me to make that change?"


@pytest.mark.parametrize(
    ("asked", "reply"),
    [
        ("Want me to commit this?", "yes"),
        ("Which direction do you want to go?", "yeah I feel it is too long"),
        ("Want me to drop the table?", "no, keep it"),
        ("All tests pass.", "great"),
        ("Want me to drop the table?", "thanks"),
    ],
)
def test_small_steps_refusals_and_thanks_decide_nothing(asked: str, reply: str) -> None:
    assert [fact for fact in decided(agent(asked), user(reply)) if fact.detail] == []


@pytest.mark.parametrize("say", [user, agent])
def test_what_is_labelled_as_a_decision_is_one(say: object) -> None:
    assert callable(say)
    (found,) = decided(say("Fine.\n- **Decision:** JSON, might change later? No."))
    assert found.content == "**Decision:** JSON, might change later? No."


def test_a_later_decision_on_the_same_subject_takes_the_place_of_the_first() -> None:
    first, later = "Decision: store the sessions in Redis.", "Decision: store the sessions in Postgres instead."
    assert [fact.content for fact in decided(user(first), agent("ok"), user(later))] == [later]
    other = "Decision: store the uploads in S3."
    assert [fact.content for fact in decided(user(first), agent("ok"), user(other))] == [first, other]


def test_a_finding_that_its_author_takes_back_goes() -> None:
    cause = "Found it: the cache is never cleared when a session ends early."
    back = "Actually no, the cache is fine. Let me look at the queue."
    assert [fact.content for fact in decided(agent(cause))] == [cause]
    assert decided(agent(cause), bash("ls", "a"), agent(back)) == []


@pytest.mark.parametrize(
    "guess",
    [
        "The issue is probably that the cache is never cleared.",
        "The problem may be in the queue, since it is read twice.",
        "I suspect the root cause is the clock of the test machine.",
    ],
)
def test_hypotheses_are_no_findings(guess: str) -> None:
    assert decided(agent(guess)) == []
