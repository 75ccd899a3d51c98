"""What a name is worth to whoever goes on: how often the agent itself used it, how long ago, and what it names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from math import log2

from context_compactor.classify.names import CHUNK, names_in
from context_compactor.classify.relevance import fade
from context_compactor.plan.options import Voice
from context_compactor.plan.view import Spoken

# How much one text of the agent or the user says for a name in it; what was only shown counts by itself.
_SAYS = {Voice.CALL: 1.0, Voice.AGENT: 0.8, Voice.USER: 0.8, Voice.THINKING: 0.3}
# Names used often are taken up again more than in proportion.
_USED_OFTEN = 1.2
_SHOWN, _MOST_SHOWN = 0.1, 0.6
_FLOOR, _BEND = 0.3, 2.5
_SHOWN_PARTS = 2
_FILE = re.compile(r"\.\w{1,5}$")
_SYMBOL = re.compile(r"_|[a-z][A-Z]|[A-Z]{2}[a-z]")
_HASH = re.compile(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{7,40}")
_LONGEST = 120


def names_worth(spoken: Iterable[Spoken]) -> dict[str, float]:
    """The names of a history and what each is worth."""
    texts = list(spoken)
    total = sum(text.tokens for text in texts) or 1
    used: dict[str, float] = {}
    shown: dict[str, float] = {}
    ages: dict[str, float] = {}
    after = total
    for text in texts:
        after -= text.tokens
        counts, says = (used, _SAYS[text.voice]) if text.voice in _SAYS else (shown, _SHOWN)
        for name in handles(text.text):
            counts[name] = counts.get(name, 0.0) + says
            ages[name] = after / total
    return {name: _times(used, shown, name) * _form(name) * fade(age, _FLOOR, _BEND) for name, age in ages.items()}


def _times(used: dict[str, float], shown: dict[str, float], name: str) -> float:
    return log2(1 + used[name]) ** _USED_OFTEN if name in used else min(shown[name], _MOST_SHOWN)


def handles(text: str) -> set[str]:
    """The names in a text that somebody can take hold of: files, symbols, expressions, hashes. Paths are shortened."""
    return {name for chunk in set(CHUNK.findall(text)) for name in _handles_in(chunk)}


@lru_cache(maxsize=1 << 13)
def _handles_in(chunk: str) -> tuple[str, ...]:
    # A leading underscore is a part of a symbol's name.
    found = (chunk.strip("./~@$-"), *names_in(chunk))
    return tuple(dict.fromkeys(name for name in map(short_path, found) if len(name) > 3 and _form(name)))


def short_path(name: str) -> str:
    """A path by its last two parts, which tell files apart; anything else as it is."""
    return "/".join(name.split("/")[-_SHOWN_PARTS:])


@lru_cache(maxsize=1 << 13)
def _form(name: str) -> float:
    """How likely a name of this form is taken up again; 0 for words and numbers that only look like names."""
    if len(name) > _LONGEST or not re.search("[a-zA-Z]", name):
        return 0.0
    if "/" in name:
        return 1.0 if _FILE.search(name) else 0.3
    if "." in name:
        return 1.15
    if _SYMBOL.search(name):
        return 1.0
    return 0.2 if _HASH.fullmatch(name) else 0.0


def is_enough(tokens: object, fewest: int) -> bool:
    """Whether a number of tokens is one, and leaves room for a text."""
    return isinstance(tokens, int) and tokens >= fewest
