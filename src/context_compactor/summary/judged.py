"""What a model answers that is asked which turns are still needed: its shape, its schema, and how it is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from context_compactor.classify.tier import Tier
from context_compactor.facts.fact import Fact
from context_compactor.llm.model import ModelAnswer
from context_compactor.summary.evidence import Objection

JudgedKind = Literal["decision", "error", "file_state", "dependency", "constraint"]


class JudgedTurn(Struct, frozen=True):
    """One turn on the scale."""

    turn: str
    tier: Tier
    score: Annotated[float, Meta(ge=0, le=1)]
    reason: str = ""


class JudgedFact(Struct, frozen=True):
    """One fact with the turn that tells it."""

    kind: JudgedKind
    content: str
    source: str


class Judged(Struct, frozen=True):
    """All of an answer."""

    turns: tuple[JudgedTurn, ...] = ()
    facts: tuple[JudgedFact, ...] = ()


class Judgement(Struct, frozen=True):
    """What is made of all answers: by how much each turn is worth more or less, why, and the facts that hold.

    Turns that are not in `factors` are worth what they are worth without a model.
    """

    factors: dict[int, float] = {}
    reasons: dict[int, str] = {}
    facts: tuple[Fact, ...] = ()
    objections: tuple[Objection, ...] = ()


def answer_schema() -> dict[str, Any]:
    """The JSON schema of an answer, with nothing left to look up elsewhere."""
    _, parts = msgspec.json.schema_components((JudgedTurn, JudgedFact), ref_template="{name}")
    turn = {**parts["JudgedTurn"], "additionalProperties": False, "required": ["turn", "tier", "score", "reason"]}
    turn["properties"] = {**turn["properties"], "tier": {"enum": [tier.value for tier in Tier]}}
    fact = {**parts["JudgedFact"], "additionalProperties": False}
    lists = {"turns": {"type": "array", "items": turn}, "facts": {"type": "array", "items": fact}}
    return {"type": "object", "properties": lists, "required": ["turns", "facts"], "additionalProperties": False}


def read_answer(answer: ModelAnswer) -> tuple[Judged | None, list[Objection]]:
    """The answer as its schema says, or why it is none."""
    if answer.stop != "complete":
        return None, [Objection("not_complete", f"the answer ended with {answer.stop}")]
    try:
        if answer.value is not None:
            return msgspec.convert(answer.value, Judged), []
        return msgspec.json.decode(answer.text.encode("utf-8", "replace"), type=Judged), []
    except (msgspec.DecodeError, RecursionError) as error:
        return None, [Objection("not_as_asked", f"the answer is not the JSON that was asked for: {error}")]
