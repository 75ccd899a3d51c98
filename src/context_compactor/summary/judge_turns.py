"""A model's say in what is kept: it places every turn on the scale, with a score and a reason, and names facts.

It advises and cannot do harm. An id must exist, what is pinned or failed is never lowered, a turn without a word is
weighed as always, and a fact must be told by the turn that it names as its source.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from context_compactor.classify.tier import Tier
from context_compactor.errors import ModelError, ModelOverflow, ModelStopped
from context_compactor.facts.fact import Fact
from context_compactor.llm.model import ModelAnswer, ModelMessage, ModelRequest
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn
from context_compactor.prompts.prompt import built_in
from context_compactor.summary.ask import focus_line, request_tokens
from context_compactor.summary.caller import Caller, objection_to
from context_compactor.summary.evidence import Objection
from context_compactor.summary.exact import Origin
from context_compactor.summary.hostile import OVERRIDES, ROLE_MARKS, TOOL_SYNTAX, as_read
from context_compactor.summary.losses import words_of
from context_compactor.summary.quoting import escape, framed, mark_for, tell_turns
from context_compactor.summary.shape import clean
from context_compactor.summary.spans import Chunk, cut_chunks, map_parallel

JudgedKind = Literal["decision", "error", "file_state", "dependency", "constraint"]

# What a token of a turn is worth beside what we think ourselves, at a score of a half.
_FACTOR = {Tier.KEEP: 1.6, Tier.SUMMARIZE: 1.0, Tier.REFERENCE: 0.6, Tier.DROP: 0.35}
_LEAST, _MOST = 0.2, 2.5
_GROUNDED = 0.7
_ANSWER_TOKENS = 60
_LEAST_ROOM = 200


class JudgedTurn(Struct, frozen=True):
    """One turn on the scale."""

    turn: Annotated[str, Meta(pattern=r"^turn_\d{3,9}$")]
    tier: Tier
    score: Annotated[float, Meta(ge=0, le=1)]
    reason: Annotated[str, Meta(max_length=400)] = ""


class JudgedFact(Struct, frozen=True):
    """One fact with the turn that tells it."""

    kind: JudgedKind
    content: Annotated[str, Meta(min_length=3, max_length=600)]
    source: Annotated[str, Meta(pattern=r"^turn_\d{3,9}$")]


class Judged(Struct, frozen=True):
    """What a model answers."""

    turns: tuple[JudgedTurn, ...] = ()
    facts: tuple[JudgedFact, ...] = ()


class Judgement(Struct, frozen=True):
    """What is made of it: by how much each turn is worth more or less, why, and the facts that hold.

    Turns that are not in `factors` are worth what they are worth without a model.
    """

    factors: dict[int, float]
    reasons: dict[int, str]
    facts: tuple[Fact, ...]
    objections: tuple[Objection, ...]


def answer_schema() -> dict[str, Any]:
    """The JSON schema of an answer, with nothing left to look up elsewhere."""
    _, parts = msgspec.json.schema_components((JudgedTurn, JudgedFact), ref_template="{name}")
    turn = {**parts["JudgedTurn"], "additionalProperties": False, "required": ["turn", "tier", "score", "reason"]}
    turn["properties"] = {**turn["properties"], "tier": {"enum": [tier.value for tier in Tier]}}
    fact = {**parts["JudgedFact"], "additionalProperties": False}
    lists = {"turns": {"type": "array", "items": turn}, "facts": {"type": "array", "items": fact}}
    return {"type": "object", "properties": lists, "required": ["turns", "facts"], "additionalProperties": False}


def judge_turns(
    caller: Caller,
    turns: Sequence[Turn],
    pinned: Collection[int],
    failed: Collection[int],
    *,
    task: str = "",
    focus: str = "",
    chunk_tokens: int = 10_000,
    parallel: int = 4,
) -> Judgement:
    """Ask a model about these turns; `pinned` and `failed` ones cannot be lowered. Only a cancelled call raises."""
    bare = _request(caller, "", 0, task, focus)
    fixed = request_tokens(bare, caller.count)
    room = min(chunk_tokens, int(caller.model.window * 0.9) - fixed - _ANSWER_TOKENS * 20)
    if room < _LEAST_ROOM:
        words = f"the model's window of {caller.model.window:,} tokens leaves no room to judge turns"
        return Judgement({}, {}, (), (Objection("window_too_small", words),))
    chunks = cut_chunks(tell_turns(turns), room, caller.count)
    answers = map_parallel(lambda chunk: _ask(caller, chunk, task, focus), chunks, parallel)
    return weigh_answers([each for each in answers if each], turns, pinned, failed, caller.objections)


def _ask(caller: Caller, chunk: Chunk, task: str, focus: str) -> Judged | None:
    request = _request(caller, chunk.text, len(chunk.turns), task, focus)
    try:
        answer = caller.send(request, alone=False)
    except ModelOverflow:
        return None
    except ModelError as error:
        if isinstance(error, ModelStopped) and caller.control.cancel.is_set():
            raise
        caller.object_to(objection_to(error))
        return None
    if answer is None:
        return None
    judged, wrong = read_answer(answer)
    caller.note(request, answer, 1, wrong)
    return judged


def _request(caller: Caller, text: str, turns: int, task: str, focus: str) -> ModelRequest:
    mark = mark_for(text)
    question = built_in("judge").fill(
        messages=framed(text, mark, "conversation"),
        mark=mark,
        task=escape(" ".join(task.split()))[:600] or "not known",
        focus=focus_line(focus),
    )
    room = max(min(_ANSWER_TOKENS * (turns + 10), caller.model.most_output, caller.model.window // 2), 1)
    messages = (ModelMessage("user", question),)
    return ModelRequest(messages=messages, max_tokens=room, schema=answer_schema(), schema_name="judgement")


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


def weigh_answers(
    answers: Sequence[Judged],
    turns: Sequence[Turn],
    pinned: Collection[int],
    failed: Collection[int],
    known: Sequence[Objection] = (),
) -> Judgement:
    """What of the answers holds. Of two words on one turn the kinder one counts."""
    by_id = {reference_id("turn", turn.number): turn for turn in turns if not turn.is_instruction}
    factors: dict[int, float] = {}
    reasons: dict[int, str] = {}
    wrong = list(known)
    for said in (said for answer in answers for said in answer.turns):
        if said.turn not in by_id:
            wrong.append(Objection("unknown_reference", f"there is no turn {said.turn}"))
            continue
        number = by_id[said.turn].number
        factor = _factor(said)
        if number in pinned or number in failed:
            factor = max(factor, 1.0)
        if factor >= factors.get(number, -math.inf):
            factors[number], reasons[number] = factor, clean(said.reason)
    facts = _facts([said for answer in answers for said in answer.facts], by_id, wrong)
    return Judgement(factors, reasons, facts, tuple(dict.fromkeys(wrong)))


def _factor(said: JudgedTurn) -> float:
    return min(max(_FACTOR[said.tier] * (0.5 + said.score), _LEAST), _MOST)


def _facts(said: Sequence[JudgedFact], by_id: Mapping[str, Turn], wrong: list[Objection]) -> tuple[Fact, ...]:
    told = {telling.turn: telling.body for telling in tell_turns(list(by_id.values()))}
    found: dict[tuple[str, str], Fact] = {}
    for each in said:
        turn = by_id.get(each.source)
        problem = _problem(each, turn, told[turn.number]) if turn else "its source does not exist"
        if turn is None or problem:
            wrong.append(Objection("bad_fact", f"a fact from {each.source} is not used: {problem}"))
            continue
        content = clean(each.content)
        role = turn.messages[0].role
        fact = Fact(each.kind, content, turn.number, role, "", "", 1, turn.number, each.source)
        found.setdefault((each.kind, content), fact)
    return tuple(found.values())


def _problem(said: JudgedFact, turn: Turn, body: str) -> str:
    """Why a fact does not hold: only a user makes rules, and every fact is in the words of its turn."""
    content = clean(said.content)
    read = as_read(content)
    words = words_of(content)
    if said.kind == "constraint" and turn.role != "user":
        return "only the user's own words make a rule"
    if any(pattern.search(read) for pattern in (OVERRIDES, ROLE_MARKS, TOOL_SYNTAX)):
        return "it reads like an order"
    if not words or len(words & words_of(body)) < _GROUNDED * len(words):
        return "the turn does not say so"
    invented = next(Origin(body).invented(content), "")
    return f"the turn does not hold {invented!r}" if invented else ""
