"""The prose that a model writes: fixed headings with lines under them, and how it stands in the record.

Prose is never mixed with a ledger: it has one section of the record for itself, so that a reader can tell what was
told by a model from what was copied, and so that a later compaction finds it again and brings it up to date.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, field

from context_compactor.messages.record import STORY, Entry, Record, entry_line, parse_entry

STATE, DECISIONS, FILES = "State", "Decisions", "Files and changes"
ERRORS, NEXT, TALE = "Errors and failed approaches", "Next step", "Story"
HEADINGS = {
    STATE: ("done: what is finished", "active: what is under way", "blocked: what waits, and for whom"),
    DECISIONS: ("what was decided or found out, and why; what was considered and rejected",),
    FILES: ("which file was read, changed or made, and what of it the work needs to know",),
    ERRORS: ("what was tried, and with which error it failed",),
    NEXT: ("what the agent was about to do; when it did not say, the first unfinished point, if any, with (inferred)",),
    TALE: ("how it came to this, in at most five lines",),
}
STATES = ("done", "active", "blocked")
# Behind which word a line of each heading stands in the record; those of the story stand alone.
_LABELS = {STATE: "state", DECISIONS: "decided", FILES: "file", ERRORS: "failed", NEXT: "next"}
_HEADING_OF = {label: heading for heading, label in _LABELS.items()} | dict.fromkeys(STATES, STATE)
# Of two texts on the same the newer one holds; under the other headings both are kept.
_NEWEST = (STATE, NEXT)
# What goes first when there is too much.
_CHEAPEST = (TALE, FILES, STATE, DECISIONS, NEXT, ERRORS)

_TITLE = re.compile(
    r"^(?:#{1,6}\s*|\*\*|__)?(?:\d{1,2}[.)]\s*)?(?P<title>[^:*_#]{4,40}?)(?:\*\*|__)?\s*:?\s*(?:\*\*|__|#+)?$"
)
_BULLET = re.compile(r"^(?:[-*+•]|\d{1,2}[.)])\s+")
_EMPHASIS = re.compile(r"^(?:\*\*|__)(\w+):?(?:\*\*|__):?\s*")
_FENCE = re.compile(r"^```\w*\s*$")
_NONE = re.compile(r"\W*(?:(?:done|active|blocked)\W+)?(?:none|nothing|n/?a)\W*", re.IGNORECASE)
_STATED = re.compile(r"^(done|active|blocked)\s*[:\u2013\u2014\uff1a-]\s*", re.IGNORECASE)
_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_JOINERS = "\u200c\u200d"
_UNSEEN = ("Cc", "Cf", "Co", "Cn")
_LONGEST_TITLE = 60
_LONGEST_NONE = 40


class Prose(Struct, frozen=True):
    """What a model wrote, heading by heading. `strays` are lines that stood under none of ours."""

    sections: dict[str, tuple[str, ...]] = field(default_factory=dict)
    strays: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All lines of all headings."""
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The lines in the order of the headings."""
        return [line for heading in HEADINGS for line in self.sections.get(heading, ())]

    def __bool__(self) -> bool:
        return any(self.sections.values())


def template() -> str:
    """The headings as a model is shown them."""
    return "\n".join(line for heading, hints in HEADINGS.items() for line in (f"## {heading}", *_bullets(hints)))


def render_prose(prose: Prose) -> str:
    """Prose as a model wrote it, so that it can be shown to one again."""
    blocks = (
        f"## {heading}\n" + "\n".join(_bullets(prose.sections.get(heading, ()) or ("none",))) for heading in HEADINGS
    )
    return "\n".join(blocks)


def _bullets(lines: Iterable[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def without_thoughts(text: str) -> str:
    """An answer without the reasoning that some models write into it."""
    return _THOUGHT.sub("", text)


def parse_prose(text: str) -> Prose:
    """Read an answer. A heading that is there without a line has none; one that is not there is not in `sections`."""
    sections: dict[str, list[str]] = {}
    strays: list[str] = []
    home: list[str] = strays
    for raw in without_thoughts(text).split("\n"):
        line = clean(raw)
        heading = _heading(line)
        if heading:
            home = sections.setdefault(heading, [])
        elif line.startswith("#"):
            home = strays
            strays.append(line)
        elif line and not _FENCE.match(line):
            home.append(_point(line))
    return Prose({heading: _said(sections[heading]) for heading in HEADINGS if heading in sections}, tuple(strays))


def clean(line: str) -> str:
    """A line without what cannot be seen: control and format characters, half characters, runs of blanks."""
    whole = " ".join(line.encode("utf-8", "replace").decode().split())
    shown = (sign for sign in whole if sign in _JOINERS or unicodedata.category(sign) not in _UNSEEN)
    return " ".join("".join(shown).split())


def _heading(line: str) -> str:
    found = _TITLE.match(line) if len(line) <= _LONGEST_TITLE else None
    wanted = found["title"].strip().casefold() if found else ""
    return next((heading for heading in HEADINGS if heading.casefold() == wanted), "")


def _point(line: str) -> str:
    bare = _BULLET.sub("", line)
    bare = _EMPHASIS.sub(lambda found: f"{found[1]}: ", bare)
    return _STATED.sub(lambda found: f"{found[1].lower()}: ", bare)


def _said(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line for line in lines if not _is_none(line)))


def _is_none(line: str) -> bool:
    body = _STATED.sub("", line)
    return not any(map(str.isalnum, body)) or (len(line) <= _LONGEST_NONE and bool(_NONE.fullmatch(line)))


def to_entries(prose: Prose) -> tuple[Entry, ...]:
    """The entries of the record's section."""
    return tuple(_labelled(heading, line) for heading in HEADINGS for line in prose.sections.get(heading, ()))


def _labelled(heading: str, line: str) -> Entry:
    if heading == TALE or (heading == STATE and state_of(line)):
        return parse_entry(STORY, line)
    return Entry(line, _LABELS[heading])


def state_of(line: str) -> str:
    """Which of `done`, `active` and `blocked` a line of the state says."""
    label = line.partition(": ")[0]
    return label if label in STATES else ""


def from_record(record: Record | None) -> Prose:
    """The prose that an earlier record carries."""
    sections: dict[str, list[str]] = {}
    for entry in record.sections.get(STORY, ()) if record else ():
        heading = _HEADING_OF.get(entry.status, TALE)
        is_labelled = bool(entry.status) and (entry.status in STATES or heading == TALE)
        line = f"{entry.status}: {entry.text}" if is_labelled else entry.text
        sections.setdefault(heading, []).append(line)
    return Prose({heading: tuple(sections[heading]) for heading in HEADINGS if heading in sections})


def merge_prose(old: Prose, new: Prose) -> Prose:
    """Both in one, line by line: of how the work stands the newer, of all else first the old and then what is new."""
    merged = {}
    for heading in HEADINGS:
        before, after = old.sections.get(heading, ()), new.sections.get(heading, ())
        newest = heading in _NEWEST and after
        merged[heading] = after if newest else tuple({_words(line): line for line in (*before, *after)}.values())
    return Prose(merged)


def _words(line: str) -> str:
    return " ".join(line.casefold().split()).rstrip(".")


def fit_prose(prose: Prose, most: int, count: Callable[[str], int]) -> tuple[Prose, int]:
    """The prose within a number of tokens, and how many lines had to go: the story's first, failures last."""
    sections = {heading: list(lines) for heading, lines in prose.sections.items()}
    costs = {entry: count(f"- {entry_line(STORY, entry)}\n") for entry in to_entries(prose)}
    room = most - sum(costs.values())
    gone = 0
    for heading in _CHEAPEST:
        while room < 0 and sections.get(heading):
            room += costs[_labelled(heading, sections[heading].pop(0))]
            gone += 1
    return Prose({heading: tuple(lines) for heading, lines in sections.items()}), gone
