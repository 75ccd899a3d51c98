"""Queries: which words of a question tell something, and whom it names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from math import log

from msgspec import Struct

from context_compactor.archive.search.english import MEANINGS
from context_compactor.archive.search.words import stem, terms

_MEANT = 0.4
_LONGEST = 20_000


class Query(Struct, frozen=True):
    """A question understood: how much each term counts, those of them that were asked for, and speakers it names."""

    weights: dict[str, float]
    asked: frozenset[str]
    speakers: frozenset[str]


def read_query(text: str, speakers: Collection[str] = ()) -> Query:
    """Weigh the terms of a question; words for what its general words stand for count for less.

    A speaker's name says whose words to look for, so it is no term: others say it far more often than its owner.
    """
    if len(text) > _LONGEST:  # the end of a long message is its point as often as the beginning
        text = f"{text[: _LONGEST // 2]} {text[-_LONGEST // 2 :]}"
    named = frozenset(name for name in speakers if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE))
    counts = Counter(terms(text))
    for term in (term for name in named for term in terms(name)):
        counts.pop(term, None)
    weights = {term: 1 + log(count) for term, count in counts.items()}
    for term in counts:
        for meant in _MEANT_BY.get(term, ()):
            weights.setdefault(meant, _MEANT)
    return Query(weights, frozenset(counts), named)


_MEANT_BY = {stem(general): tuple(map(stem, special)) for general, special in MEANINGS.items()}
