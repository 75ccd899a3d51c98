"""A question understood: the weight of its words, whom it names, and the exact tokens it spells out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from math import log

from msgspec import Struct

from context_compactor.archive.search.passages import SPOKEN_KINDS, Passage
from context_compactor.archive.search.terms import RELATED_WORDS, stem, terms
from context_compactor.facts.kinds import Voice

_MAX_TOKENS = 16
_LONGEST_TOKEN = 400
_QUOTED = re.compile(r"`([^`\n]{2,200})`|\"([^\"\n]{2,200})\"")
_EDGES = "\"'`,;:!?()[]{}<>*\u201c\u201d\u2018\u2019\u2026"
# Signs inside a token, a digit beside a letter, or capitals where a word has none: somebody's name for something.
_NAME = re.compile(r"\w[_/\\.:@#=+~$%&-]+\w|[_/$@#.~\\-]\w|\w[_/$]|\d|[^\W\d_]*[a-z][A-Z]|^[A-Z]{2,}$")
_DEFINING = (
    r"(?:\b(?:def|class|func|fn|function|const|let|var|val|type|struct|enum|interface|trait|module|export|export"
    r"|set|create table|alter table|define|#define)\s+)"
)


def exact_tokens(text: str) -> tuple[str, ...]:
    """The names that a question spells out: quoted words, and whatever no plain word looks like."""
    quoted = [first or second for first, second in _QUOTED.findall(text)]
    plain = (chunk.lstrip(_EDGES).rstrip(f".{_EDGES}").removeprefix("./") for chunk in text.split())
    named = (
        chunk for chunk in plain if 1 < len(chunk) <= _LONGEST_TOKEN and _NAME.search(chunk) and not chunk.isspace()
    )
    return tuple(dict.fromkeys((*quoted, *named)))[:_MAX_TOKENS]


def exact_places(passages: Sequence[Passage], tokens: Sequence[str], rare: int) -> list[int]:
    """Where tokens of no more than `rare` places stand: first where most of them do, then what states or defines one.

    Of each the newest come first. A text that stands in several places is named once, where it is newest.
    """
    found: dict[int, tuple[int, bool]] = {}
    for token in tokens:
        places = _places(passages, token)
        if 0 < len(places) <= rare:
            defines = re.compile(_DEFINING + re.escape(token) + r"|" + re.escape(token) + r"\s*(?::?=(?!=)|:\s)", re.I)
            for at in places:
                count, states = found.get(at, (0, False))
                says = passages[at].kind in SPOKEN_KINDS or defines.search(passages[at].text) is not None
                found[at] = (count + 1, states or says)
    order = sorted(found, key=lambda at: (*found[at], at), reverse=True)
    newest = {passages[at].text: at for at in sorted(found)}
    return sorted(order, key=lambda at: newest[passages[at].text] != at)


def _places(passages: Sequence[Passage], token: str) -> list[int]:
    """The passages in which a token stands by itself, spelled as it is; else in any case."""
    inside = [at for at, passage in enumerate(passages) if token in passage.text]
    before, after = (r"(?<!\w)" if _is_word(token[0]) else ""), (r"(?!\w)" if _is_word(token[-1]) else "")
    whole = re.compile(before + re.escape(token) + after)
    exact = [at for at in inside if whole.search(passages[at].text)]
    if exact:
        return exact
    folded = token.casefold()
    return [at for at, passage in enumerate(passages) if folded in passage.text.casefold()]


def _is_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


_RELATED_WEIGHT = 0.4
_MAX_QUERY_LENGTH = 20_000
# A question is one line of no more terms than these. Anything else is a message, and about many things.
_MOST_ASKED = 24
_VERBS = (
    "say said says tell told ask asked asks want wanted wants wish wished agree agreed reply replied answer answered "
    "give gave decide decided approve approved reject rejected refuse refused prefer preferred correct corrected "
    "complain complained request requested insist insisted mean meant report reported mention mentioned need needed "
    "conclude concluded find found do did write wrote"
)
_WHO = {"user": Voice.USER.value, "agent": Voice.AGENT.value, "assistant": Voice.AGENT.value}
_ATTRIBUTION = re.compile(
    rf"\b(?:the )?({'|'.join(_WHO)})(?:'s)?(?: \w+)? (?:{'|'.join(_VERBS.split())})\b", re.IGNORECASE
)
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
    if len(text) > _MAX_QUERY_LENGTH:  # the end of a long message is its point as often as the beginning
        text = f"{text[: _MAX_QUERY_LENGTH // 2]} {text[-_MAX_QUERY_LENGTH // 2 :]}"
    named = frozenset(name for name in speakers if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE))
    wording = _ATTRIBUTION.search(text)
    counts = Counter(terms(text))
    for term in (term for name in named for term in terms(name)):
        counts.pop(term, None)
    # The terms by which a question names whose words it wants are left out, if any others are left.
    counts = (counts - Counter(terms(wording[0]))) or counts if wording else counts
    weights = {term: 1 + log(count) for term, count in counts.items()}
    for term in counts:
        for meant in _RELATED_TERMS.get(term, ()):
            weights.setdefault(meant, _RELATED_WEIGHT)
    voice = _WHO[wording[1].lower()] if wording else ""
    is_question = len(counts) <= _MOST_ASKED and "\n" not in text.strip()
    is_newest = is_question and bool(_NEWEST.search(text))
    return Query(weights, frozenset(counts), named, exact_tokens(text), voice, is_question, is_newest)


_RELATED_TERMS = {stem(general): tuple(map(stem, special)) for general, special in RELATED_WORDS.items()}
