"""Decisions and conclusions, as their author worded them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from context_compactor.facts import cues
from context_compactor.facts.choices import choice_facts
from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import Saying, sentences, without_code
from context_compactor.messages.message import Role
from context_compactor.messages.references import reference_id

_SHORTEST = 25
_SHORT = 200
_SHORTEST_FINDING = 40
_LONGEST = 400
_MOST_DECISIONS = 40
_MOST_FINDINGS = 8
_MOST_AT_ONCE = 3
_LABELLED = re.compile(
    rf"^[ \t]{{0,8}}(?:[-*+•]|\d{{1,3}}[.)]|#{{1,6}})?[ \t]{{0,4}}((?:\*\*|__)?{cues.DECISION_LABELS}[^\n]{{5,400}})$",
    re.IGNORECASE | re.MULTILINE,
)
# Every line that the lists can match holds one of these, so most lines need no closer look.
SIGNS = (
    *cues.UNSPACED_DECISIONS,
    "decid", "décid", "decision", "décis", "decisi", "entscheid", "решени", "considered", "go with", "going with",
    "went with", "opted", "opting", "settled on", "chose", "ruled out", "rejected b", "favo", "approach is", "plan is",
    "fix is", "instead of", "rather than", "because", "so that", "not worth", "to avoid", "root cause", "cause is",
    "cause was", "caused by", "found it", "found the", "real issue", "real problem", "actual issue", "actual problem",
    "issue is", "issue was", "problem is", "problem was", "bug is", "bug was", "the bug", "turns out", "turned out",
    "culprit", "reason is", "reason was", "entschieden", "beschlossen", "решили",
)  # fmt: skip
_PLAIN_SIGNS = tuple(sign for sign in SIGNS if sign.isascii())


def decision_facts(user: Sequence[Saying], agent: Sequence[Saying]) -> list[Fact]:
    """What was decided, and what was found out (status `finding`; only the newest, since they replace each other).

    What its author took back is left out, and so is what a later decision on the same subject revises.
    """
    found = [*_facts(user, "user"), *_facts(agent, "assistant"), *choice_facts(user, agent)]
    ordered = sorted(found, key=lambda fact: fact.turn)
    distinct = list({(fact.status, fact.content): fact for fact in ordered}.values())
    decisions = [fact for fact in distinct if not fact.status]
    findings = _newest([fact for fact in distinct if fact.status], [saying.turn for saying in user])
    kept = [*_unrevised(decisions)[-_MOST_DECISIONS:], *findings[-_MOST_FINDINGS:]]
    return sorted(kept, key=lambda fact: fact.turn)


def _unrevised(decisions: Iterable[Fact]) -> list[Fact]:
    kept: dict[str, Fact] = {}
    for fact in decisions:
        for old in cues.revised(fact.content, kept):
            del kept[old]
        kept[fact.content] = fact
    return list(kept.values())


def _newest(findings: list[Fact], spoken: list[int]) -> list[Fact]:
    """Of what was found out between two sayings of the user the last ones: they stand for those before them."""
    groups: dict[int, list[Fact]] = {}
    for fact in findings:
        groups.setdefault(bisect_left(spoken, fact.turn), []).append(fact)
    kept: list[Fact] = []
    for group in groups.values():
        sure = [fact for fact in group if cues.has_any(cues.spaced(fact.content), cues.CAUSES)]
        others = [fact for fact in group if fact not in sure]
        kept += sorted((*sure[-_MOST_AT_ONCE:], *others[-1:]), key=lambda fact: fact.turn)
    return kept


def _facts(sayings: Iterable[Saying], role: Role) -> list[Fact]:
    found: list[Fact] = []
    for saying in sayings:
        low = saying.text.lower()
        if "let me " in low[:20] and len(low) < _SHORT and ". " not in low and "\n" not in low:
            continue  # one sentence that says what comes next: most of what an agent says between its calls
        if role == "assistant" and found and found[-1].status and cues.has_any(low[:200], _TAKING_BACK):
            found = _taken_back(found, saying)
        # Only signs that stand somewhere in the text need to be looked for in its lines.
        signs = tuple([sign for sign in (_PLAIN_SIGNS if low.isascii() else SIGNS) if sign in low])
        if signs:
            found += _facts_in(without_code(saying.text), signs, saying.turn, role)
    return found


def _facts_in(text: str, signs: tuple[str, ...], turn: int, role: Role) -> list[Fact]:
    may_be_labelled = any(sign in _LABEL_SIGNS for sign in signs)
    labelled = [match.strip() for match in _LABELLED.findall(text)] if may_be_labelled else []
    found = [_fact(line, turn, role, "") for line in labelled]
    for line in text.split("\n"):
        if cues.has_any(line.lower(), signs) and not any(each in line for each in labelled):
            for sentence in sentences(line):
                status = _status(sentence, role, signs)
                if status is not None:
                    found.append(_fact(sentence, turn, role, status))
    return found


_TAKING_BACK = tuple(cue.strip() for cue in cues.RETRACTIONS)
_LABEL_SIGNS = frozenset(("decid", "decision", "décis", "entscheid", "decisi", "решени", "决定"))


def _taken_back(found: list[Fact], saying: Saying) -> list[Fact]:
    """What was found before, without the last finding where its author begins by taking it back."""
    words = cues.spaced(next(sentences(saying.text), ""))
    is_back = words.startswith(cues.RETRACTIONS) and found[-1].status == "finding"
    return found[:-1] if is_back else found


def _fact(sentence: str, turn: int, role: Role, status: str) -> Fact:
    return Fact("decision", sentence, turn, role, "", status, 1, turn, reference_id("turn", turn))


def _status(sentence: str, role: Role, signs: tuple[str, ...]) -> str | None:
    if len(sentence) > _LONGEST or sentence.rstrip("*_ ").endswith(("?", ":", "\uff1f")):
        return None
    if not sentence.isascii() and cues.has_any(sentence, cues.UNSPACED_DECISIONS):
        return ""
    if len(sentence) < _SHORTEST or not cues.has_any(sentence.lower(), signs):
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
