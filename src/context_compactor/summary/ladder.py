"""The rungs of one question: ask; ask again and say what was wrong; ask for less by our own prompt; give up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from context_compactor.llm.model import ModelAnswer
from context_compactor.prompts.prompt import built_in
from context_compactor.summary.ask import Assignment, build_request
from context_compactor.summary.caller import Caller
from context_compactor.summary.evidence import Evidence, Objection
from context_compactor.summary.gate import judge, judge_prose, without_inventions
from context_compactor.summary.shape import Prose, parse_prose

_TIGHTER = 0.6
_BY_LINE = ("invented", "unknown_reference", "vague_claim", "unspoken")


class Question(Struct, frozen=True):
    """A text to be summarized, and what the answer is held against.

    A question that is `alone` is not asked at the same time as others, so its answer may be shown as it is written.
    """

    assignment: Assignment
    text: str
    evidence: Evidence
    previous: Prose | None = None
    prefix: tuple[dict[str, Any], ...] = ()
    beside: dict[str, Any] = {}
    alone: bool = True


def climb(caller: Caller, question: Question) -> Prose | None:
    """Prose that nothing speaks against, or None when no rung gave any."""
    wrong: list[Objection] = []
    for rung in _rungs(question.assignment):
        is_cut = any(objection.code == "cut_off" for objection in wrong)
        request = build_request(
            structs.replace(rung, is_roomy=True) if is_cut else rung,
            question.text,
            caller.model,
            previous=question.previous,
            objections=list(dict.fromkeys(objection.advice for objection in wrong)),
            prefix=question.prefix,
            beside=question.beside,
        )
        answer = caller.send(request, alone=question.alone)
        if answer is None:  # it failed before and nothing has changed: another rung would only be billed again
            return None
        wrong = judge(answer, question.evidence, caller.count)
        prose = parse_prose(answer.text) if not wrong else _salvaged(answer, wrong, question.evidence)
        caller.note(request, answer, wrong, is_used=prose is not None)
        if prose is not None:
            return prose
    return None


def _salvaged(answer: ModelAnswer, wrong: Sequence[Objection], evidence: Evidence) -> Prose | None:
    """An answer whose only fault is that a few lines name what does not exist is used without these lines."""
    if any(objection.code not in _BY_LINE for objection in wrong):
        return None
    prose = without_inventions(parse_prose(answer.text), evidence)
    return prose if prose and not judge_prose(prose, evidence) else None


def _rungs(assignment: Assignment) -> tuple[Assignment, Assignment, Assignment]:
    prompt = built_in(assignment.prompt.name)
    less = max(int(assignment.tokens * _TIGHTER), 1)
    return assignment, assignment, structs.replace(assignment, prompt=prompt, tokens=less, focus="")
