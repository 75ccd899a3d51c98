"""A model's say in what is kept: it places every turn on the scale, with a score and a reason, and names facts.

It advises and cannot do harm. An id must exist, what is pinned or failed is never lowered, a turn without a word is
weighed as always, and a fact must be told by the turn that it names as its source.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from context_compactor.classify.tier import Tier
from context_compactor.errors import ModelDenied, ModelError, ModelStopped, ModelUnavailable
from context_compactor.facts.fact import Fact
from context_compactor.llm.model import ModelMessage, ModelRequest
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn
from context_compactor.prompts.prompt import built_in
from context_compactor.summary.ask import focus_line, request_tokens
from context_compactor.summary.caller import Caller, objection_to
from context_compactor.summary.evidence import Objection
from context_compactor.summary.hostile import HOSTILE, as_read
from context_compactor.summary.judged import Judged, JudgedTurn, Judgement, answer_schema, read_answer
from context_compactor.summary.judged_facts import hold_facts
from context_compactor.summary.quoting import escape, framed, mark_for, tell_turns
from context_compactor.summary.shape import clean
from context_compactor.summary.spans import Chunk, cut_chunks, map_parallel

# What a token of a turn is worth beside what we think ourselves, at a score of a half. Stronger ones gain little with a
# judge who knows the future and lose much with one who guesses; see docs/why/models.md.
_FACTOR = {Tier.KEEP: 1.3, Tier.SUMMARIZE: 1.0, Tier.REFERENCE: 0.8, Tier.DROP: 0.6}
_ANSWER_TOKENS = 60
_LEAST_ROOM = 200
_LONGEST_TASK = 600
_LONGEST_REASON = 120
_LONGEST_ID = 20
_FATAL = (ModelDenied, ModelStopped, ModelUnavailable)


class Bench(Struct, frozen=True):
    """The turns to be judged, what is known of them, and what is asked: the task at hand, what the user cares for.

    `protected` are the turns that cannot be lowered.
    """

    turns: Sequence[Turn]
    protected: Collection[int] = ()
    facts: Sequence[Fact] = ()
    task: str = ""
    focus: str = ""


def judge_turns(caller: Caller, bench: Bench, chunk_tokens: int = 10_000, parallel: int = 4) -> Judgement:
    """Ask a model about all of these turns. Whatever goes wrong is an objection; only a cancelled call raises."""
    fixed = request_tokens(_request(caller, bench, "", 0), caller.count)
    room = min(chunk_tokens, int(caller.model.window * 0.9) - fixed - _ANSWER_TOKENS * 20)
    if room < _LEAST_ROOM:
        words = f"the model's window of {caller.model.window:,} tokens leaves no room to judge turns"
        return Judgement(objections=(Objection("window_too_small", words),))
    chunks = cut_chunks(tell_turns(bench.turns), room, caller.count)
    if len(chunks) > caller.left:
        words = f"{len(chunks):,} chunks need more calls than the {caller.left:,} that are left"
        return Judgement(objections=(Objection("too_many_calls", words),))
    return weigh_answers(_answers(caller, bench, chunks, parallel), bench, caller.model.name, caller.objections)


def _answers(caller: Caller, bench: Bench, chunks: Sequence[Chunk], parallel: int) -> list[Judged]:
    """The answers in the order of the chunks. After a failure that others will share no more is asked."""
    found: dict[int, Judged] = {}

    def ask(at: int) -> None:
        judged = _ask(caller, bench, chunks[at])
        if judged is not None:
            found[at] = judged

    try:
        map_parallel(ask, range(len(chunks)), parallel, caller.control.cancel.set)
    except _FATAL as error:
        if isinstance(error, ModelStopped) and caller.control.cancel.is_set():
            raise
        caller.object_to(objection_to(error))
    return [found[at] for at in sorted(found)]


def _ask(caller: Caller, bench: Bench, chunk: Chunk) -> Judged | None:
    request = _request(caller, bench, chunk.text, len(chunk.turns))
    try:
        answer = caller.send(request, alone=False)
    except _FATAL:
        raise
    except ModelError:  # it is in the account; the turns of this chunk are weighed as always
        return None
    if answer is None:
        return None
    judged, wrong = read_answer(answer)
    caller.note(request, answer, wrong)
    return judged


def _request(caller: Caller, bench: Bench, text: str, turns: int) -> ModelRequest:
    mark = mark_for(text)
    question = built_in("judge").fill(
        messages=framed(text, mark, "conversation"),
        mark=mark,
        task=escape(" ".join(bench.task.split()))[:_LONGEST_TASK] or "not known",
        focus=focus_line(bench.focus),
    )
    room = max(min(_ANSWER_TOKENS * (turns + 10), caller.model.most_output, caller.model.window // 2), 1)
    messages = (ModelMessage("user", question),)
    return ModelRequest(messages=messages, max_tokens=room, schema=answer_schema(), schema_name="judgement")


def weigh_answers(
    answers: Sequence[Judged], bench: Bench, model: str = "", known: Sequence[Objection] = ()
) -> Judgement:
    """What of the answers holds. Of two words on one turn the kinder one counts."""
    by_id = {reference_id("turn", turn.number): turn for turn in bench.turns if not turn.is_instruction}
    best: dict[int, JudgedTurn] = {}
    wrong = list(known)
    for said in (said for answer in answers for said in answer.turns):
        if said.turn not in by_id:
            wrong.append(Objection("unknown_reference", f"there is no turn {said.turn[:_LONGEST_ID]!r}"))
            continue
        number = by_id[said.turn].number
        if number not in best or _factor(said) > _factor(best[number]):
            best[number] = said
    facts, bad = hold_facts([said for answer in answers for said in answer.facts], by_id, bench.facts, model)
    used = {number: said for number, said in best.items() if number not in bench.protected or _factor(said) >= 1.0}
    factors = {number: _factor(said) for number, said in used.items()}
    reasons = {number: opinion(said) for number, said in used.items()}
    return Judgement(factors, reasons, facts, tuple(dict.fromkeys((*wrong, *bad))))


def _factor(said: JudgedTurn) -> float:
    return _FACTOR[said.tier] * (0.5 + said.score)


def opinion(said: JudgedTurn) -> str:
    """What a model thinks of a turn in one printable line, its reason quoted and cut. An order is not repeated."""
    start = clean(said.reason[: 4 * _LONGEST_REASON])
    words = "".join(sign for sign in start if sign.isprintable()).replace('"', "'")
    if any(pattern.search(as_read(words)) for pattern in HOSTILE):
        words = ""
    short = words if len(words) <= _LONGEST_REASON else words[: _LONGEST_REASON - 1].rstrip() + "…"
    return f"{said.tier.value}, {said.score:.1f}" + (f', "{short}"' if short else "")
