"""The planner: weighs every option once and hands them to the chooser."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from context_compactor.classify.relevance import name_worth
from context_compactor.classify.tier import Tier
from context_compactor.plan.choose import Chooser, Piece
from context_compactor.plan.options import Option, Source, Voice
from context_compactor.plan.view import View
from context_compactor.plan.zones import Zone


class Draft(Struct, frozen=True):
    """Options on the scales: a chooser over those that may be taken, and what replaces a source whole."""

    options: tuple[Option, ...]
    chooser: Chooser
    replaced: dict[int, Option]

    def chosen(self) -> list[Option]:
        """The options taken so far, in the order of the history."""
        picked = [self.options[self.chooser.pieces[at].option] for at in self.chooser.chosen]
        return sorted(picked, key=lambda option: (option.source, option.block))


def draft_plan(view: View, zones: dict[int, Zone], options: Iterable[Option], kept: Sequence[str]) -> Draft:
    """Weigh the options of all strategies against each other. `kept` are texts that stand in the context anyway."""
    usable = [option for option in options if is_open(view.sources[option.source], zones)]
    replaced = {option.source: option for option in usable if option.tier in (Tier.DROP, Tier.REFERENCE)}
    best: dict[tuple[int, int], Option] = {}
    for option in usable:
        if option.tier in (Tier.KEEP, Tier.SUMMARIZE) and _may_add(option, replaced):
            key = (option.source, option.block)
            known = best.get(key)
            if known is None or option.weight > known.weight:
                best[key] = option
    taken = tuple(best.values())
    covered = [(view.names.ids(text), [hash(text)]) for text in kept]
    for source in view.sources:
        if zone_of(source, zones) is Zone.VERBATIM:
            covered.append((view.names.ids(source.text), [hash(block.text) for block in source.blocks]))
    chooser = _chooser(view, zones, taken)
    for names, keys in covered:
        chooser.cover(names, keys)
    return Draft(taken, chooser, replaced)


def _may_add(option: Option, replaced: dict[int, Option]) -> bool:
    """A source that is dropped offers nothing; one that is referenced may still offer lines and a digest."""
    known = replaced.get(option.source)
    return known is None or known.tier is Tier.REFERENCE


def zone_of(source: Source, zones: dict[int, Zone]) -> Zone:
    """Where the turn of a source ends up; what belongs to no turn goes into the record."""
    return Zone.FOLDED if source.is_loose else zones[source.turn]


def is_open(source: Source, zones: dict[int, Zone]) -> bool:
    """Whether the planner may shorten a source."""
    zone = zone_of(source, zones)
    return zone is Zone.FOLDED or (zone is Zone.PLACED and source.voice in (Voice.RESULT, Voice.THINKING))


def _chooser(view: View, zones: dict[int, Zone], options: Sequence[Option]) -> Chooser:
    weights, names = view.weights, view.names
    found = [tuple(names.ids(option.text)) for option in options]
    worth = names_worth(view)
    written = _written_before(view)
    pieces = []
    for at, option in enumerate(options):
        source = view.sources[option.source]
        rate = source.tokens / max(len(source.text), 1)
        tokens = max(len(option.text) * rate, 1.0) + 1.0
        weight = option.weight
        if source.voice is Voice.CALL:
            weight *= 1.0 + weights.repeated * min(written.get(option.text, 1) - 1, 3)
        pieces.append(Piece(at, option.source, tokens, weight, found[at], hash(option.text), 1.0))
    _lean(pieces, options, view.focus)
    headings = {source.number: weights.heading for source in view.sources if zone_of(source, zones) is Zone.FOLDED and source.voice is not Voice.FACT}
    return Chooser(pieces, worth, weights, headings)


_FOCUS_FACTOR = 4.0


def _lean(pieces: Sequence[Piece], options: Sequence[Option], focus: str) -> None:
    """Text that speaks of what the user wants kept is worth more."""
    words = [re.escape(word) for word in focus.split() if len(word) > 2]
    if not words:
        return
    wanted = re.compile("|".join(words), re.IGNORECASE)
    for piece in pieces:
        if wanted.search(options[piece.option].text):
            piece.weight = piece.weight * _FOCUS_FACTOR + _FOCUS_FACTOR
            piece.boost *= _FOCUS_FACTOR


def _written_before(view: View) -> dict[str, int]:
    written: dict[str, int] = {}
    for source in view.sources:
        if source.voice is Voice.CALL:
            for block in source.blocks:
                written[block.text] = written.get(block.text, 0) + 1
    return written


def names_worth(view: View) -> list[float]:
    """What each name is worth: how often the agent used it or was shown it, and the age of the last time."""
    total = sum(source.tokens for source in view.sources) or 1
    before = 0
    found = [view.names.ids(source.text) for source in view.sources]
    used, shown, ages = [0] * len(view.names), [0] * len(view.names), [1.0] * len(view.names)
    for source, ids in zip(view.sources, found, strict=True):
        before += source.tokens
        if source.voice is Voice.THINKING:
            continue
        counts = shown if source.voice is Voice.RESULT else used
        age = 1.0 - before / total
        for name in ids:
            counts[name] += 1
            ages[name] = age
    return [name_worth(used[at], shown[at], ages[at], view.weights) for at in range(len(view.names))]
