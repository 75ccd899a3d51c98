"""Summaries of parts made one: by the model, a few at a time, and line by line where it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from context_compactor.errors import ModelError
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import fact_line
from context_compactor.summary.caller import Caller
from context_compactor.summary.evidence import Objection
from context_compactor.summary.losses import HOME
from context_compactor.summary.quoting import quoted
from context_compactor.summary.shape import Prose, merge_prose, render_prose
from context_compactor.summary.spans import Count

UNMERGED = "unmerged"
_HEADING_TOKENS = 20


def merge_parts(parts: Sequence[Prose], room: int, caller: Caller, ask: Callable[[str], Prose | None]) -> Prose:
    """One prose of all parts. `ask` has a model make one of a text with several; each text has `room` at the most.

    What was told already is not given up when the model fails: from then on parts are joined without it.
    """
    while len(parts) > 1:
        merged: list[Prose] = []
        for group in grouped(parts, room, caller.count):
            try:
                merged.append(_joined(group, room, caller.count, ask))
            except ModelError as error:
                if caller.control.cancel.is_set():
                    raise
                caller.object_to(Objection(UNMERGED, f"parts were joined without the model: {error}"))
                ask = _nobody
                merged.append(reduce(merge_prose, group))
        parts = merged
    return parts[0]


def _nobody(_text: str) -> None:
    """Who is asked once the model has failed."""


def _joined(group: Sequence[Prose], room: int, count: Count, ask: Callable[[str], Prose | None]) -> Prose:
    if len(group) == 1:
        return group[0]
    text = "\n".join(f"[part {at}]\n" + "\n".join(quoted(render_prose(part))) for at, part in enumerate(group, 1))
    prose = ask(text) if count(text) <= room else None
    return prose or reduce(merge_prose, group)


def grouped(parts: Sequence[Prose], room: int, count: Count) -> list[list[Prose]]:
    """Parts in order, as many together as fit; two at least, so that there are fewer after each round."""
    groups: list[list[Prose]] = []
    tokens = 0
    for part in parts:
        cost = count(render_prose(part)) + _HEADING_TOKENS
        if not groups or (tokens + cost > room and len(groups[-1]) > 1):
            groups.append([])
            tokens = 0
        groups[-1].append(part)
        tokens += cost
    return groups


def ledger_prose(facts: Iterable[Fact]) -> Prose:
    """What is known without a model, under the headings of prose."""
    sections: dict[str, tuple[str, ...]] = {}
    for fact in facts:
        heading = HOME.get(fact.kind)
        if heading:
            sections[heading] = (*sections.get(heading, ()), fact_line(fact))
    return Prose(sections)
