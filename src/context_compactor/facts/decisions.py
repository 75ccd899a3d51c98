"""Decisions and conclusions, as their author worded them."""

from __future__ import annotations

from collections.abc import Iterable

from context_compactor.facts import cues
from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import Saying, sentences, without_code
from context_compactor.messages.message import Role
from context_compactor.messages.references import reference_id

_SHORTEST = 25
_SHORTEST_FINDING = 60
_LONGEST = 400
_MOST_DECISIONS = 40
_MOST_FINDINGS = 6
# Every line that the lists can match holds one of these, so most lines need no closer look.
SIGNS = (
    *cues.UNSPACED_DECISIONS,
    "decid", "décid", "decision", "considered", "go with", "going with", "went with", "opted", "opting", "settled",
    "chose", "ruled out", "reject", "favo", "approach", "plan is", "fix", "recommend", "trade", "instead", "rather",
    "because", "so that", "not worth", "avoid", "root cause", "issue", "problem", "bug", "turns out", "turned out",
    "culprit", "reason", "entschieden", "beschlossen", "решили",
)  # fmt: skip


def decision_facts(user: Iterable[Saying], agent: Iterable[Saying]) -> list[Fact]:
    """What was decided, and what was found out (status `finding`; only the newest, since they replace each other)."""
    found = [*_facts(user, "user"), *_facts(agent, "assistant")]
    distinct = {(fact.status, fact.content): fact for fact in sorted(found, key=lambda fact: fact.turn)}.values()
    decisions = [fact for fact in distinct if not fact.status]
    findings = [fact for fact in distinct if fact.status]
    return sorted([*decisions[-_MOST_DECISIONS:], *findings[-_MOST_FINDINGS:]], key=lambda fact: fact.turn)


def _facts(sayings: Iterable[Saying], role: Role) -> list[Fact]:
    found: list[Fact] = []
    for saying in sayings:
        lines = (line for line in without_code(saying.text).split("\n") if cues.has_any(line.lower(), SIGNS))
        for sentence in (sentence for line in lines for sentence in sentences(line)):
            status = _status(sentence, role)
            if status is not None:
                ref = reference_id("turn", saying.turn)
                found.append(Fact("decision", sentence, saying.turn, role, "", status, 1, saying.turn, ref))
    return found


def _status(sentence: str, role: Role) -> str | None:
    if len(sentence) > _LONGEST or sentence.endswith(("?", ":", "\uff1f")):
        return None
    if cues.has_any(sentence, cues.UNSPACED_DECISIONS):
        return ""
    if len(sentence) < _SHORTEST or not cues.has_any(sentence.lower(), SIGNS):
        return None
    words = cues.spaced(sentence)
    if _decides(words):
        status = ""
    elif role == "assistant" and len(sentence) >= _SHORTEST_FINDING and cues.has_any(words, cues.FINDINGS):
        status = "finding"
    else:
        return None
    is_loose = cues.has_any(words, cues.HEDGES) or words.split(maxsplit=1)[0] in cues.QUESTIONS
    return None if is_loose else status


def _decides(words: str) -> bool:
    if cues.has_any(words, cues.DECISIONS):
        return True
    if " considered " in words and cues.has_any(words, (" but ", " rejected ", " instead ")):
        return True
    is_choice = cues.has_any(words, cues.INTENTS) and cues.has_any(words, cues.CHOICES)
    return is_choice and not cues.has_any(words, cues.LOOKS)
