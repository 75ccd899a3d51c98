"""Where a task, or a step of it, ends: the best moment to change what an agent sees."""

from __future__ import annotations

import re
from collections.abc import Sequence

from context_compactor.classify.calls import Reading
from context_compactor.classify.kinds import Kind, kind_of
from context_compactor.classify.outcomes import has_failed
from context_compactor.facts.exchanges import Called, calls_of
from context_compactor.facts.side_effects import side_effect_facts
from context_compactor.facts.speech import user_sayings
from context_compactor.facts.state import todo_facts
from context_compactor.messages.turn import Turn

# What a runner prints when at least one test has passed; whether one has failed is known by then.
_PASSED = re.compile(
    r"\b[1-9]\d*(?: tests?| examples?| specs?)?(?: have)? pass(?:ed|ing|es)?\b|^(?:OK|PASS|ok)\b|^--- PASS"
    r"|test result: ok|\b100% tests passed|[1-9]\d* examples?, 0 failures|BUILD SUCCESS|(?:# |\u2139 )pass [1-9]"
    r"|Tests run: [1-9]\d*, Failures: 0, Errors: 0",
    re.MULTILINE,
)


def find_boundary(turns: Sequence[Turn]) -> str:
    """In words what has just ended where these turns end; "" in the midst of a task.

    That is a new request of the user, tests that passed, a commit, or a point of the to-do list that is done. What the
    agent says about it afterwards, without doing anything more, changes nothing.
    """
    told = [turn for turn in turns if not turn.is_instruction]
    while told and told[-1].role == "assistant" and not told[-1].exchanges:
        told.pop()
    if not told:
        return ""
    last = told[-1]
    if last.role == "user" and not last.exchanges:
        return "the user's new request" if any(each.turn == last.number for each in user_sayings(told[-2:])) else ""
    called = [each for each in calls_of([last]) if each[1].result is not None]
    if any(_passed(each) for each in called):
        return "tests passed"
    if _committed(called):
        return "a commit was made"
    return "a point of the to-do list is done" if _finished(told, called) else ""


def _passed(called: Called) -> bool:
    _, exchange, _ = called
    result = exchange.result
    if result is None or kind_of(exchange.call, result.text) is not Kind.TEST_RUN:
        return False
    return not has_failed(exchange.call, result) and _PASSED.search(result.text) is not None


def _committed(called: Sequence[Called]) -> bool:
    failed = {each.number for _, each, _ in called if each.result and has_failed(each.call, each.result)}
    return any("git commit" in fact.content for fact in side_effect_facts(called, failed))


def _finished(turns: Sequence[Turn], called: Sequence[Called]) -> bool:
    """Whether the last turn has set a point of the list to done. One that nobody saw open is none unless all are."""
    if any(_closes_task(reading) for _, _, reading in called):
        return True
    now, before = _points(turns), _points(turns[:-1])
    done = {title for title, status in now.items() if status == "done"}
    if now == before or not done:
        return False
    return len(done) == len(now) or any(before.get(title, "done") != "done" for title in done)


def _closes_task(reading: Reading) -> bool:
    return reading.tool == "taskupdate" and reading.arguments.get("status") == "completed"


def _points(turns: Sequence[Turn]) -> dict[str, str]:
    return {fact.content: fact.status for fact in todo_facts(calls_of(turns))}
