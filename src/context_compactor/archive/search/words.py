"""Words: how a text becomes the terms by which it is found.

Identifiers count as a whole and in their parts, English words by their stem, scripts without spaces by pairs of
characters.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain

from context_compactor.archive.search.english import BASE_FORMS, STOP_WORDS

_RUN = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\da-zA-Z_]+")
# Thai, Lao, Myanmar, Khmer, Chinese, Japanese and Korean.
_UNSPACED = re.compile(r"[฀-໿က-႟ក-៿぀-ヿ㐀-鿿가-힯]")
_SIGN = re.compile(r"[^\w\s\x00-\x7f]")
_VOWEL = re.compile(r"[aeiouy]")
_LONGEST = 64

# What stands in for an ending; the first that fits is taken.
_ENDINGS = (
    ("ization", "ize"), ("ations", "ate"), ("ation", "ate"), ("ings", ""), ("ing", ""), ("ies", "y"), ("ied", "y"),
    ("edly", ""), ("ed", ""), ("ers", "er"), ("ments", "ment"), ("ment", ""), ("ness", ""), ("ily", "y"), ("ly", ""),
    ("sses", "ss"), ("es", "e"), ("s", ""),
)  # fmt: skip
_VERBAL = ("ing", "ings", "ed", "edly")
# The endings by their last letter, so that most words are looked at once.
_BY_LAST = {
    last: tuple(each for each in _ENDINGS if each[0][-1] == last) for last in {ending[-1] for ending, _ in _ENDINGS}
}


def terms(text: str) -> list[str]:
    """The terms of a text in order; words that say nothing alone are left out."""
    return list(chain.from_iterable(map(_run_terms, _RUN.findall(text))))


def signs(text: str) -> list[str]:
    """The signs of a text that are no letters, such as arrows and emoji: what stands in no term and is looked for."""
    return [] if text.isascii() else [sign for sign in dict.fromkeys(_SIGN.findall(text)) if sign.isprintable()]


@lru_cache(maxsize=1 << 13)
def _run_terms(run: str) -> tuple[str, ...]:
    if run.isascii() and (run.isdigit() or (run.isalpha() and run.islower())):  # one part, as most are
        return _part_terms(run[:_LONGEST])
    parts = _PART.findall(run[:_LONGEST])
    found = list(chain.from_iterable(map(_part_terms, parts)))
    if len(parts) > 1 and found:
        found.append("".join(parts).lower())
    return tuple(found)


@lru_cache(maxsize=1 << 13)
def _part_terms(part: str) -> tuple[str, ...]:
    word = part.lower()
    if not part.isascii() and _UNSPACED.search(part):
        return tuple(word[at : at + 2] for at in range(max(len(word) - 1, 1)))
    return (stem(word),) if word not in STOP_WORDS and (len(word) > 1 or word.isdigit()) else ()


def stem(word: str) -> str:
    """The part of an English word that its forms share; other words stay as they are."""
    base = BASE_FORMS.get(word)
    if base is not None or len(word) <= 3 or not word.isascii():
        return base or word
    word = _without_ending(word)
    word = word[:-1] if word.endswith("e") and len(word) > 3 else word
    word = word[:-2] if word.endswith(("er", "or")) and len(word) > 4 else word
    word = word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word
    return BASE_FORMS.get(word, word)


def _without_ending(word: str) -> str:
    for ending, instead in _BY_LAST.get(word[-1], ()):
        if not word.endswith(ending) or len(word) - len(ending) < 3:
            continue
        if ending == "s" and word.endswith(("ss", "us", "is")):
            return word
        rest = word[: -len(ending)] + instead
        if ending not in _VERBAL:
            return rest
        if _VOWEL.search(rest):
            doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz"
            return rest[:-1] if doubled else rest
    return word
