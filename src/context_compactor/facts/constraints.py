"""The user's rules and corrections, in the user's own words.

Only what a user said can become a rule. What an agent or a tool wrote never does, however much it reads like one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from context_compactor.facts import cues
from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import Saying, sentences, without_code
from context_compactor.messages.references import reference_id

_SHORT_MESSAGE = 900
_LONGEST = 400
_MOST_PER_MESSAGE = 6
_LEAST_WORDS = 4
_ONE_SENTENCE = 150
_MOST_SENTENCES = 200
_MOST_LABELLED = 30
_LABEL_SIGNS = (
    "rule", "important", "remember", "note", "nb", "constraint", "requirement", "regel", "wichtig", "merke", "regla",
    "you may not", "you must not", "from now on", "never",
)  # fmt: skip
_LABELLED = re.compile(
    rf"^[ \t]{{0,8}}(?:[-*+•]|\d{{1,3}}[.)]|#{{1,6}})?[ \t]{{0,4}}((?:\*\*|__)?(?:{cues.RULE_LABELS})[^\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)


def constraint_facts(sayings: Iterable[Saying]) -> list[Fact]:
    """Every rule and correction of the user; one that is said again counts, one that is revised goes."""
    found: dict[str, Fact] = {}
    for saying in sayings:
        for sentence in _rules_in(saying.text):
            for old in cues.revised(sentence, found):
                del found[old]
            before = found.get(sentence)
            first = before.turn if before else saying.turn
            count = before.count + 1 if before else 1
            ref = reference_id("turn", saying.turn)
            found[sentence] = Fact("constraint", sentence, first, "user", "", "active", count, saying.turn, ref)
    return list(found.values())


class _Present(Struct, frozen=True):
    """The cues that stand somewhere in a message: only these need to be looked for in its sentences."""

    hard: tuple[str, ...] = cues.HARD_RULES
    addressed: tuple[str, ...] = cues.ADDRESSED_RULES
    soft: tuple[str, ...] = cues.SOFT_RULES
    reports: tuple[str, ...] = cues.REPORTS


_EVERY = _Present()


def _present(text: str) -> _Present:
    words = cues.spaced(text)
    lists = (cues.HARD_RULES, cues.ADDRESSED_RULES, cues.SOFT_RULES, cues.REPORTS)
    return _Present(*(tuple(cue for cue in each if cue in words) for each in lists))


def _rules_in(text: str) -> Iterator[str]:
    """What a message labels as a rule, line by line, and the sentences that are rules without a label."""
    is_short = len(text) < _SHORT_MESSAGE
    kept = 0
    labelled = list(islice(_labelled(text), _MOST_LABELLED))
    yield from labelled
    if labelled:
        text = "\n".join(line for line in text.split("\n") if not any(each in line for each in labelled))
    present = _present(text) if _ONE_SENTENCE < len(text) < _SHORT_MESSAGE * 2 else _EVERY
    for at, sentence in enumerate(islice(sentences(text), _MOST_SENTENCES)):
        if kept < _MOST_PER_MESSAGE and len(sentence) <= _LONGEST and is_rule(sentence, is_short, at == 0, present):
            kept += 1
            yield sentence


def _labelled(text: str) -> Iterator[str]:
    if text.isascii() and not cues.has_any(text.lower(), _LABEL_SIGNS):
        return
    for match in _LABELLED.finditer(without_code(text)):
        line = match[1].strip()
        if len(line) > _LONGEST:
            line = next(sentences(line), "")
        if 5 < len(line) <= _LONGEST and not line.endswith(("?", ":", "\uff1f")):
            yield line


def is_rule(sentence: str, is_short: bool = True, opens: bool = False, present: _Present = _EVERY) -> bool:
    """Whether a sentence orders, forbids, prefers or corrects. `opens`: it begins a message."""
    if sentence.endswith(("?", "\uff1f", ":")):
        return False
    words = cues.spaced(sentence)
    if not sentence.isascii() and cues.has_any(sentence, cues.UNSPACED_RULES):
        return True
    if is_short and opens and _corrects(words, sentence):
        return True
    for report in present.reports:
        words = words.replace(report, " ") if report in words else words
    first = words.split(maxsplit=1)[0] if words.strip() else ""
    is_question = first in cues.QUESTIONS and not words.lstrip().startswith("do not ")
    return not is_question and _orders(sentence, words, first, is_short, present)


def _orders(sentence: str, words: str, first: str, is_short: bool, present: _Present) -> bool:
    if cues.has_any(words, present.hard) or (" do" in words and cues.FORBIDS.search(sentence)):
        return True
    if cues.has_any(words, cues.SOFT_HEDGES) or "? " in sentence:
        return False
    if cues.has_any(words, present.addressed):
        return first in cues.ORDERS or cues.has_any(words, cues.ADDRESSES)
    if not is_short or not cues.has_any(words, present.soft) or len(words.split()) < _LEAST_WORDS:
        return False
    return " whether " not in words


def _corrects(words: str, sentence: str) -> bool:
    if sentence.startswith(cues.UNSPACED_CORRECTIONS):
        return len(sentence) > 5
    return words.count(" ") > 3 and words.startswith(cues.CORRECTIONS) and not words.startswith(cues.NOT_CORRECTIONS)
