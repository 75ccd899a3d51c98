"""Failed attempts. The text they stood in may leave the context; command and error stay for ever."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from context_compactor.classify.background import asked_id, running_id
from context_compactor.classify.calls import CHANGES_FOLDER, Reading, is_own, read_call
from context_compactor.classify.checks import checks_in, is_check
from context_compactor.classify.outcomes import has_failed, is_refusal
from context_compactor.classify.references import reference_of
from context_compactor.classify.resolutions import MISSING, OPEN, RESOLVED, Course
from context_compactor.classify.shell import split_steps
from context_compactor.classify.telling import telling_lines
from context_compactor.facts.fact import Fact
from context_compactor.messages.message import ToolCall
from context_compactor.messages.turn import ToolUse, Turn

COMMAND_LENGTH = 160
_MARK = "[failed: "
_SOUGHT_LENGTH = 70
_LINE_BREAK = re.compile(r"[ \t\r]*\n\s*")
_PLACE = re.compile(r"::\w|--- FAIL: |\(fail\) |\w:\d+")
_DURATION = re.compile(r"\b\d+(?:\.\d+)?(?:ms|s)\b")
_OLD_TEXT = ("old_string", "old_str", "old_text", "oldText", "search")


class Failure(Struct, frozen=True):
    """One failed attempt: what was tried, what it answered, and what came of it. `turn` is 0 when it is not known."""

    command: str
    error: str
    exchange: int
    turn: int = 0
    denied: bool = False
    ref: str = ""
    status: str = OPEN
    came: str = ""
    """What resolved it, or who gave it up, in a few words."""


def failure_of(exchange: ToolUse, turn: int = 0) -> Failure | None:
    """The failure an exchange ended in, if it did."""
    result = None if is_own(exchange.call) or exchange.is_lost else exchange.result
    known = marked_error(result.text) if result else ""
    if result is None or not (known or has_failed(exchange.call, result)):
        return None
    command = wording_of(exchange.call)
    error = known or telling_lines(result.text)
    return Failure(command, error, exchange.number, turn, is_refusal(result.text), reference_of(exchange))


def failed_mark(error: str) -> str:
    """The line that heads a failed result which was shortened, so that it is still known as one."""
    return f"{_MARK}{error}]"


def marked_error(text: str) -> str:
    """The error that such a line tells."""
    return text[len(_MARK) : text.find("]\n")] if text.startswith(_MARK) and "]\n" in text else ""


def find_failures(turns: Sequence[Turn]) -> list[Failure]:
    """Every failed attempt of a history, in order, with what came of it.

    One in the background is told as the command it began with.
    """
    found: list[Failure] = []
    started: dict[str, str] = {}
    for turn in turns:
        for exchange in turn.exchanges:
            started.pop("", None)
            failure = failure_of(exchange, turn.number)
            if failure:
                begun = started.get(asked_id(exchange.call), "")
                found.append(structs.replace(failure, command=begun) if begun else failure)
            elif exchange.call and exchange.result and read_call(exchange.call).command is not None:
                started[running_id(exchange.result.text)] = wording_of(exchange.call)
    course = Course(turns, (failure.exchange for failure in found)) if found else None
    return [_followed(failure, course) for failure in found] if course else []


def resolve_facts(facts: Iterable[Fact], turns: Sequence[Turn]) -> list[Fact]:
    """The facts, with failures from before some turns resolved as far as these turns show it."""
    facts = list(facts)
    waiting = [fact for fact in facts if fact.kind == "failure" and fact.status != RESOLVED]
    if not waiting or not turns:
        return facts
    course, first = course_of(turns), min(turn.number for turn in turns)
    return [_resolved(fact, course) if fact in waiting and _last(fact) < first else fact for fact in facts]


def course_of(turns: Sequence[Turn]) -> Course:
    """The calls of some turns, by which failures from before them can be followed."""
    failed = [each.number for turn in turns for each in turn.exchanges if failure_of(each, turn.number)]
    return Course(turns, failed)


def _resolved(fact: Fact, course: Course) -> Fact:
    how = course.later(fact.content, fact.detail)
    return structs.replace(fact, status=RESOLVED, outcome=how) if how else fact


def _last(fact: Fact) -> int:
    return max(fact.turn, fact.last_turn)


def may_repeat(fact: Fact) -> bool:
    """Whether what failed may be done again: it worked since, or it is a test, linter or build that still fails."""
    return fact.status == RESOLVED or (fact.status in ("", OPEN) and is_check(fact.content))


def _followed(failure: Failure, course: Course) -> Failure:
    came = course.of(failure.exchange, failure.turn, failure.error)
    return structs.replace(failure, status=came.status, came=came.how)


def merge_failures(failures: Sequence[Failure]) -> list[Fact]:
    """One fact for each different failure, with how often and when it was seen, in the order of the first."""
    return [_merged(group) for group in group_failures(failures)]


def group_failures(failures: Sequence[Failure]) -> list[list[Failure]]:
    """The failures, those together that are one: the same error of the same command, however much of it was shown.

    A test or a line that fails is the same whatever else ran; what is missing is missing for all that need it.
    """
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        groups.setdefault((_family(failure), _DURATION.sub("", failure.error)), []).append(failure)
    return list(groups.values())


def _family(failure: Failure) -> str:
    steps = [step for step in split_steps(failure.command) if step.words and step.program != "cd"]
    if steps and MISSING.search(failure.error):
        return steps[-1].program.removesuffix("3")
    checks = checks_in(steps)
    if _PLACE.search(failure.error):
        return " && ".join(check.runner for check in checks) or failure.command
    return repr(checks) if checks else failure.command


def _merged(group: list[Failure]) -> Fact:
    first, last = group[0], group[-1]
    is_denied = last.denied and last.status != RESOLVED
    status = "denied" if is_denied else last.status
    return Fact(
        "failure",
        first.command,
        first.turn,
        "tool",
        first.error,
        status,
        len(group),
        last.turn,
        last.ref,
        outcome="" if is_denied else last.came,
    )


def wording_of(call: ToolCall | None) -> str:
    """A call on one line, as the agent would recognise it: the command as typed, or the tool and its arguments."""
    if call is None:
        return "(result without its call)"
    reading = read_call(call)
    if reading.command is not None:
        return _one_line(reading.command.strip(), _room_for(reading.command))
    return _arguments(call, reading)


def _room_for(command: str) -> int:
    """A change of folder in front says little: what follows it gets its own room."""
    moved = CHANGES_FOLDER.match(command.lstrip()[:300])
    return COMMAND_LENGTH + (moved.end() if moved else 0)


def _arguments(call: ToolCall, reading: Reading) -> str:
    if not reading.paths or not reading.arguments:
        return _one_line(f"{call.name} {call.arguments}".rstrip(), COMMAND_LENGTH)
    named = _one_line(f"{call.name} {', '.join(reading.paths[:3])}", COMMAND_LENGTH)
    old = next((reading.arguments[key] for key in _OLD_TEXT if isinstance(reading.arguments.get(key), str)), "")
    sought = _one_line(old[:400].strip(), _SOUGHT_LENGTH)
    return f"{named}: {sought}" if sought else named


def _one_line(text: str, limit: int) -> str:
    line = _LINE_BREAK.sub(" ", text[: limit * 2])
    return line if len(line) <= limit else line[: limit - 1] + "…"
