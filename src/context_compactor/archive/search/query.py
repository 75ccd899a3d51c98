"""Queries: which words of a question tell something, whom it names, and what it spells out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from math import log

from msgspec import Struct

from context_compactor.archive.search.english import MEANINGS
from context_compactor.archive.search.exact import exact_tokens
from context_compactor.archive.search.words import stem, terms
from context_compactor.classify.kinds import Voice

_MEANT = 0.4
_LONGEST = 20_000
# A question is one line of no more terms than these. Anything else is a message, and about many things.
_MOST_ASKED = 24
_VERBS = (
    "say said says tell told ask asked asks want wanted wants wish wished agree agreed reply replied answer answered "
    "give gave decide decided approve approved reject rejected refuse refused prefer preferred correct corrected "
    "complain complained request requested insist insisted mean meant report reported mention mentioned need needed "
    "conclude concluded find found do did write wrote"
)
_WHO = {"user": Voice.USER.value, "agent": Voice.AGENT.value, "assistant": Voice.AGENT.value}
_SAYING = re.compile(rf"\b(?:the )?({'|'.join(_WHO)})(?:'s)?(?: \w+)? (?:{'|'.join(_VERBS.split())})\b", re.IGNORECASE)
_NEWEST = re.compile(r"\b(?:now|current(?:ly)?|state|status|stands?|end|last|latest|final(?:ly)?|still|open)\b", re.I)


class Query(Struct, frozen=True):
    """A question understood: how much each term counts, those of them that were asked for, and speakers it names.

    `exact` are the tokens that it spells out; `voice` is whose words it asks for. It `is_question` when it is short
    enough to be meant word for word, and `is_newest` when it asks how things stand.
    """

    weights: dict[str, float]
    asked: frozenset[str]
    speakers: frozenset[str]
    exact: tuple[str, ...] = ()
    voice: str = ""
    is_question: bool = True
    is_newest: bool = False


def read_query(text: str, speakers: Collection[str] = ()) -> Query:
    """Weigh the terms of a question; words for what its general words stand for count for less.

    A speaker's name says whose words to look for, so it is no term: others say it far more often than its owner.
    """
    if len(text) > _LONGEST:  # the end of a long message is its point as often as the beginning
        text = f"{text[: _LONGEST // 2]} {text[-_LONGEST // 2 :]}"
    named = frozenset(name for name in speakers if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE))
    saying = _SAYING.search(text)
    counts = Counter(terms(text))
    for term in (term for name in named for term in terms(name)):
        counts.pop(term, None)
    counts = _without(counts, terms(saying[0])) if saying else counts
    weights = {term: 1 + log(count) for term, count in counts.items()}
    for term in counts:
        for meant in _MEANT_BY.get(term, ()):
            weights.setdefault(meant, _MEANT)
    voice = _WHO[saying[1].lower()] if saying else ""
    is_question = len(counts) <= _MOST_ASKED and "\n" not in text.strip()
    is_newest = is_question and bool(_NEWEST.search(text))
    return Query(weights, frozenset(counts), named, exact_tokens(text), voice, is_question, is_newest)


def _without(counts: Counter[str], said: Collection[str]) -> Counter[str]:
    """The terms beside those by which a question names whose words it wants, if any are left."""
    rest = counts - Counter(said)
    return rest or counts


_MEANT_BY = {stem(general): tuple(map(stem, special)) for general, special in MEANINGS.items()}
