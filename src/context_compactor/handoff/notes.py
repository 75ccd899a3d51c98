"""Notes: the names that an agent works with, each beside words it stood with.

A note is a line of the history in its telling words: all of its names, and the rarest of its other words until half
of them are there. So a name keeps its meaning at a fraction of the line's tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import ceil

from msgspec import Struct

from context_compactor.archive.search.pack import best_first
from context_compactor.handoff.worth import handles, short_path
from context_compactor.plan.options import Voice
from context_compactor.plan.sources import strip_numbers
from context_compactor.plan.view import Spoken

_WORD = re.compile(r"[\w./~@$-]*\w[\w./~@$-]*")
_EDGES = "./-~@$"
_SENTENCE = re.compile(r"[^.;!?]{20,160}[.;!?]")
_SHORTEST, _LONGEST = 8, 160
_MOST_LINES = 4_000
_LONGEST_TEXT = 400_000
# The share of a line's words that a note keeps, and the fewest.
_KEPT, _FEWEST = 0.55, 2
# A line of so few words says little of its names, so they count for less there.
_COMPANY, _ALONE = 3, 0.7
_BESIDE = 1
_ESCAPED = re.compile(r"\\[nrt](?=\w)")
_KEY = re.compile(r"^\w+: ", re.MULTILINE)
_NUMBER = re.compile(r"^[^\S\n]*\d+[:-]", re.MULTILINE)


class Note(Struct, frozen=True):
    """The telling words of a line and the names among them. `is_rich`: there was enough around them to tell a tale."""

    text: str
    names: frozenset[str]
    is_rich: bool


def plain_lines(text: Spoken) -> str:
    """A text without the names of a call's arguments, the numbers before the lines of a file, and escaped breaks."""
    content = _ESCAPED.sub(" ", text.text[:_LONGEST_TEXT])
    if text.voice is Voice.CALL:
        return _KEY.sub("", content)
    return _NUMBER.sub("", strip_numbers(content)) if text.voice is Voice.RESULT else content


def take_notes(spoken: Sequence[Spoken]) -> list[Note]:
    """One note for each line with a name in it, in the order of the history; reasoning is not noted."""
    heard = [text for text in spoken if text.voice is not Voice.THINKING]
    lines = dict.fromkeys(line for text in heard for line in _lines(text))
    common = Counter(word.lower() for line in lines for word in set(_WORD.findall(line)))
    notes = (_note(line, common) for line in lines)
    return list({note.text: note for note in notes if note}.values())


def _lines(text: Spoken) -> Iterator[str]:
    for line in text.text.split("\n")[:_MOST_LINES]:
        words = " ".join(line.split())
        if len(words) > _LONGEST:
            yield from (sentence.strip() for sentence in _SENTENCE.findall(words[: 25 * _LONGEST]))
        elif len(words) >= _SHORTEST:
            yield words


def _note(line: str, common: Counter[str]) -> Note | None:
    names = handles(line)
    if not names:
        return None
    words = dict.fromkeys(_WORD.findall(line))
    telling = {word for word in words if handles(word)}
    others = sorted(words.keys() - telling, key=lambda word: (common[word.lower()], word))
    needed = max(_FEWEST, ceil(len(words) * _KEPT)) - len(telling)
    kept = telling.union(word for word in others[: max(needed, 0)] if len(word) > 1)
    text = " ".join(dict.fromkeys(short_path(word.strip(_EDGES)) for word in words if word in kept))
    return Note(text, frozenset(names), len(words) > _COMPANY)


def choose_notes(
    notes: Sequence[Note], worth: dict[str, float], covered: Iterable[str], costs: Sequence[int], tokens: int
) -> list[int]:
    """The notes that add most to what is covered, per token, as many as fit."""
    seen = set(covered)

    def gain(at: int) -> float:
        note = notes[at]
        value = sum(worth.get(name, 0.0) for name in note.names if name not in seen)
        return value * (1 if note.is_rich else _ALONE) / (costs[at] + _BESIDE)

    chosen: list[int] = []
    for at in best_first(range(len(notes)), gain):
        if costs[at] <= tokens:
            chosen.append(at)
            seen |= notes[at].names
            tokens -= costs[at]
    return chosen
