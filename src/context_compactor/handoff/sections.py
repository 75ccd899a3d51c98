"""What was asked, ruled, decided, tried and changed: the facts of a history as a few short lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import ceil

from msgspec import Struct

from context_compactor.classify.resolutions import OPEN, RESOLVED
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import section_of
from context_compactor.handoff.worth import short_path
from context_compactor.messages.record import Record

_GAP = "…"
_FOLDER = re.compile(r"^cd \S+ && ")
_ORDINARY = 500
_SHORT = 30


class Section(Struct, frozen=True):
    """A heading with its texts, the dearest first; of 500 tokens, `most` are shown with at most `length` characters."""

    heading: str
    texts: Sequence[str]
    most: int
    length: int


def fact_lines(facts: Sequence[Fact], past: Record | None, tokens: int) -> list[str]:
    """A line for each section that has something to say, in the order in which a reader needs them.

    `past` is what an earlier compaction left of turns that are no longer there.
    """
    scale = tokens / _ORDINARY
    return [_line(section, scale) for section in _sections(facts, past) if section.texts]


def _sections(facts: Sequence[Fact], past: Record | None) -> Iterator[Section]:
    first, *later = _tasks(facts, past) or [""]
    yield Section("Task", [*reversed(later), first] if first else [], 1, 140)
    yield Section("It began with", [first] if later else [], 1, 80)
    yield Section("Rules", [*_rules(facts), *_past_lines(past, "constraint")], 1, 90)
    yield Section("State", [*_state(facts)], 1, 90)
    yield Section(
        "Decided", [fact.content for fact in _newest(facts, "decision")] + _past_lines(past, "decision"), 1, 100
    )
    yield Section("Failed before", [*_failures(facts), *_past_failures(past)], 1, 100)
    yield Section("Changed", [short_path(fact.content) for fact in _changed(facts)], 4, 60)


def _line(section: Section, scale: float) -> str:
    length = int(section.length * min(scale, 1.0))
    shown = section.texts[: ceil(section.most * scale)]
    return f"{section.heading}: {'; '.join(_clip(text, length) for text in shown)}"


def _clip(text: str, length: int) -> str:
    words = " ".join(text.split())
    return words if len(words) <= length else words[:length].rstrip() + _GAP


def _newest(facts: Sequence[Fact], kind: str) -> list[Fact]:
    return sorted((fact for fact in facts if fact.kind == kind), key=lambda fact: -(fact.last_turn or fact.turn))


def _past_lines(past: Record | None, kind: str) -> list[str]:
    return list(reversed(past.lines(section_of(kind)))) if past else []


def _tasks(facts: Sequence[Fact], past: Record | None) -> list[str]:
    """What the user asked for, in the order of the history."""
    before = [f'({quote.ref}) "{quote.text}"' for quote in past.quotes] if past else []
    return [*before, *(f'({fact.ref}) "{_asked(fact)}"' for fact in facts if fact.kind == "task")]


def _asked(fact: Fact) -> str:
    """A request whose first line only leads to what follows goes on with that."""
    leads = fact.content.endswith(":") or len(fact.content) < _SHORT
    return f"{fact.content} {fact.detail}" if leads and fact.detail else fact.content


def _rules(facts: Sequence[Fact]) -> list[str]:
    asked = {fact.content for fact in facts if fact.kind == "task"}
    return [f'"{fact.content}"' for fact in _newest(facts, "constraint") if fact.content not in asked]


def _state(facts: Sequence[Fact]) -> Iterator[str]:
    """What is under way; words as short as "let me check" say nothing."""
    for kind, statuses in (("mode", ("active",)), ("blocker", ()), ("todo", ("active", "blocked")), ("next_step", ())):
        for fact in _newest(facts, kind):
            if (not statuses or fact.status in statuses) and len(fact.content) > _SHORT:
                yield f"{fact.kind.replace('_', ' ')}: {fact.content}"


def _failures(facts: Sequence[Fact]) -> list[str]:
    """What failed and does not work yet, with whether it is open or was given up."""
    return [
        f"{fact.status or OPEN}: `{_clip(_FOLDER.sub('', fact.content), 45)}` → {_clip(fact.detail, 45)}"
        for fact in _newest(facts, "failure")
        if fact.status != RESOLVED
    ]


def _past_failures(past: Record | None) -> list[str]:
    return [line for line in _past_lines(past, "failure") if not line.startswith(f"{RESOLVED}: ")]


def _changed(facts: Sequence[Fact]) -> list[Fact]:
    return [fact for fact in _newest(facts, "file_state") if fact.status != "read"]
