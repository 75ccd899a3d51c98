"""Exact tokens: a name that a question spells out is looked for as it is spelled, before anything else.

An environment variable, a path, an error code or a hash is asked for by somebody who wants that one and no other. Its
parts may be common words, so ranking by words would find everything else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from context_compactor.archive.search.passages import SAID, Passage

_MOST = 16
_LONGEST = 400
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
    named = (chunk for chunk in plain if 1 < len(chunk) <= _LONGEST and _NAME.search(chunk) and not chunk.isspace())
    return tuple(dict.fromkeys((*quoted, *named)))[:_MOST]


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
                says = passages[at].kind in SAID or defines.search(passages[at].text) is not None
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
