"""Facts that a model has found: each is held against the turn that it names as its source, or it is not used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import agent_sayings, user_sayings
from context_compactor.messages.record import STORY
from context_compactor.messages.turn import Turn
from context_compactor.plan.options import Line
from context_compactor.summary.evidence import Objection, flat
from context_compactor.summary.exact import Origin
from context_compactor.summary.hostile import ADDRESSED, HOSTILE, as_read
from context_compactor.summary.judged import JudgedFact
from context_compactor.summary.losses import Told, words_of
from context_compactor.summary.quoting import tell_turns
from context_compactor.summary.shape import clean

_GROUNDED = 0.7
_LONGEST = 600
_LONGEST_ID = 20
_LABELS = {
    "decision": "decided",
    "error": "failed",
    "file_state": "file",
    "dependency": "depends",
    "constraint": "the user said",
}


def hold_facts(
    said: Sequence[JudgedFact], by_id: Mapping[str, Turn], known: Sequence[Fact], model: str
) -> tuple[tuple[Fact, ...], list[Objection]]:
    """The facts that hold and say something new beside `known`, each once, and what speaks against the others."""
    bodies = {telling.turn: telling.body for telling in tell_turns(list(by_id.values()))}
    told = Told([fact.content for fact in known])
    found: dict[tuple[str, str], Fact] = {}
    wrong: list[Objection] = []
    for each in said:
        turn = by_id.get(each.source)
        problem = _problem(each, turn, bodies[turn.number]) if turn else "its source does not exist"
        if turn is None or problem:
            source = each.source[:_LONGEST_ID]
            wrong.append(Objection("bad_fact", f"a fact from {source!r} is not used, since {problem}"))
            continue
        content = clean(each.content)
        if not told.says(content):
            role, number = turn.messages[0].role, turn.number
            fact = Fact(each.kind, content, number, role, "", "", 1, number, each.source, model)
            found.setdefault((each.kind, content), fact)
    return tuple(found.values()), wrong


def _problem(said: JudgedFact, turn: Turn, body: str) -> str:
    """Why a fact does not hold: a rule is a quote of the user, a decision is said by somebody, all is in the turn."""
    content = clean(said.content)
    if len(content) > _LONGEST:
        return "it is too long for one line"
    is_said = _is_in(content, _sayings(turn))
    if said.kind == "constraint" and not _is_quote(content, turn):
        return "only the user's own words make a rule"
    if said.kind != "constraint" and _is_order(as_read(content), is_said):
        return "it reads like an order"
    if not (is_said or (said.kind != "decision" and _is_in(content, body))):
        return "the turn does not say so"
    invented = next(Origin(body).invented(content), "")
    return f"the turn does not hold {invented[:80]!r}" if invented else ""


def _is_order(read: str, is_said: bool) -> bool:
    """What a tool has put out may not address its reader; what people and agents say to each other may."""
    return any(pattern.search(read) for pattern in HOSTILE) or (not is_said and bool(ADDRESSED.search(read)))


def _is_in(content: str, text: str) -> bool:
    words = words_of(content)
    return bool(words) and len(words & words_of(text)) >= _GROUNDED * len(words)


def _is_quote(content: str, turn: Turn) -> bool:
    own = flat("\n".join(saying.text for saying in user_sayings([turn])))
    return turn.role == "user" and bool(flat(content)) and flat(content) in own


def _sayings(turn: Turn) -> str:
    return "\n".join(saying.text for saying in (*user_sayings([turn]), *agent_sayings([turn])))


def told_lines(facts: Sequence[Fact]) -> tuple[Line, ...]:
    """Facts as lines of the section that a model tells. None of them must stay."""
    return tuple(Line(STORY, _line(fact), fact.turn, status=_LABELS[fact.kind]) for fact in facts)


def _line(fact: Fact) -> str:
    words = f'"{fact.content}"' if fact.kind == "constraint" else fact.content
    return f"{words} ({fact.ref})"
