"""A lesson: a rule, a decision or an error that later sessions should know of, with where it comes from.

In its file it is a list item, and below it a line of provenance:

    - Use SQLite instead of DuckDB, because Bun cannot load it.
      by the user · 2026-01-26 to 2026-02-02 · 2 sessions · run-42 turn_017, run-43 turn_004
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from context_compactor.facts.fact import Fact
from context_compactor.facts.patterns import error_pattern
from context_compactor.measure.tokens import clean

By = Literal["user", "agent", "both", "tool"]
LessonKind = Literal["rules", "decisions", "errors"]

_LONGEST = 400
_MOST_SOURCES = 6
_ALIKE = 88
WHO: dict[By, str] = {"user": "the user", "agent": "the agent", "both": "the agent, then the user", "tool": "a tool"}
_BY: dict[str, By] = {words: by for by, words in WHO.items()}
_ORIGIN = re.compile(
    rf"^ {{2,}}by ({'|'.join(_BY)}) · (\d{{4}}-\d\d-\d\d)(?: to (\d{{4}}-\d\d-\d\d))?"
    r" · (\d{1,6}) sessions? · (.*?)\s*$"
)
_NOT_IN_A_NAME = re.compile(r"[^\w.:@+-]+")
_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\s]+")
_FAILURE = re.compile(r"^`(.*)` → (.*?)(?: · (?:resolved|given up): .*)?$")
# Turns are those of another session.
_TURN = re.compile(r" in (?:the run of )?turn \d+")
_WORD = re.compile(r"[\w.+#'\u2019]*[\w+#]")
# Words by which two wordings of one decision differ. Without them, the same words in the same order decide the same.
_LIGHT = frozenset(
    "a an the we i it is are was were be been being has have had will would shall should do does did that this these "
    "those our my their its and so then now just also to of in on for by at as with because since use using used over "
    "decided decide decision chose choose chosen go going went opted opt opting settled settle let's lets let we'll "
    "i'll we've i've we're i'm instead rather than key".split()
)


class Lesson(Struct, frozen=True):
    """`text` is one line; `others` are further sessions that taught it, of an error."""

    text: str
    by: By
    day: str
    session_id: str
    ref: str
    others: tuple[str, ...] = ()


class Origin(Struct, frozen=True):
    """Where an entry comes from: who said it, its first and last day, in how many sessions, and the newest of them."""

    by: By
    first: str
    last: str
    sessions: int
    sources: tuple[str, ...]

    @property
    def worth(self) -> tuple[bool, int, str]:
        """What sorts the dearest last: the user's word, then how often and how lately it was seen."""
        return self.by in ("user", "both"), self.sessions, self.last


def origin_of(lesson: Lesson) -> Origin:
    """The provenance of a lesson that is new."""
    others = tuple(_name(each) for each in lesson.others)
    sources = (*others, _source(lesson))[-_MOST_SOURCES:]
    return Origin(lesson.by, lesson.day, lesson.day, 1 + len(others), sources)


def seen_again(origin: Origin, lesson: Lesson) -> Origin:
    """The provenance after one more lesson of the same content; nothing changes when its session is known already."""
    by: By = "both" if (origin.by, lesson.by) == ("agent", "user") else origin.by
    known = {source.partition(" ")[0] for source in origin.sources}
    if _name(lesson.session_id) in known:
        return Origin(by, origin.first, origin.last, origin.sessions, origin.sources)
    sources = (*origin.sources, _source(lesson))[-_MOST_SOURCES:]
    sessions = max(origin.sessions + 1, 1 + len(lesson.others))
    return Origin(by, min(origin.first, lesson.day), max(origin.last, lesson.day), sessions, sources)


def origin_line(origin: Origin) -> str:
    """Provenance as it stands in the file."""
    days = origin.first if origin.first == origin.last else f"{origin.first} to {origin.last}"
    sessions = f"{origin.sessions} session{'s' * (origin.sessions > 1)}"
    return f"  by {WHO[origin.by]} · {days} · {sessions} · {', '.join(origin.sources)}"


def read_origin(line: str) -> Origin | None:
    """Provenance read back; None when the line is something else."""
    match = _ORIGIN.match(line)
    if match is None:
        return None
    return Origin(_BY[match[1]], match[2], match[3] or match[2], int(match[4]), tuple(match[5].split(", ")))


def _source(lesson: Lesson) -> str:
    return f"{_name(lesson.session_id)} {lesson.ref}".rstrip()


def _name(session_id: str) -> str:
    return _NOT_IN_A_NAME.sub("_", session_id)[:64] or "_"


def one_line(text: str) -> str:
    """A text as one line within bounds, which UTF-8 can hold: nothing in it can begin a line of its own."""
    line = _BREAKS.sub(" ", clean(text)).strip()
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1].rstrip() + "…"


def error_text(fact: Fact) -> str:
    """An error in one line: what was tried, what it answered, and what came of it."""
    if not fact.detail:
        return one_line(fact.content)
    came = _TURN.sub("", fact.outcome) if fact.status in ("resolved", "given up") else ""
    told = f"`{one_line(fact.content)[: _LONGEST // 2]}` → {one_line(fact.detail)[: _LONGEST // 2]}"
    return one_line(f"{told} · {fact.status}: {came}" if came else told)


def is_same(kind: LessonKind, one: str, other: str) -> bool:
    """Whether two texts are one lesson: an error by its pattern, a decision by its words in their order."""
    if kind == "errors":
        return _pattern(one) == _pattern(other)
    mine, theirs = _words(one), _words(other)
    if not mine or not theirs:
        return one == other
    if "".join(mine) == "".join(theirs):
        return True
    return len(mine) == len(theirs) and all(_alike(*pair) for pair in zip(mine, theirs, strict=True))


@lru_cache(maxsize=2_048)
def _pattern(text: str) -> str:
    tried = _FAILURE.match(text)
    return error_pattern(tried[1], tried[2]) if tried else error_pattern("", text)


@lru_cache(maxsize=2_048)
def _words(text: str) -> tuple[str, ...]:
    words = (word.replace("\u2019", "'") for word in _WORD.findall(text.lower().replace("-", " ")))
    return tuple(_stem(word) for word in words if word not in _LIGHT)


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word.removesuffix(ending)
    return word


def _alike(one: str, other: str) -> bool:
    """Equal, or two spellings of one word; a different first letter or digit makes another word of it."""
    if one == other or one[0] != other[0] or not (one + other).isalpha():
        return one == other
    from rapidfuzz.fuzz import ratio

    return ratio(one, other) >= _ALIKE
