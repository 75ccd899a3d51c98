"""The planner: weighs every option once and hands them to the chooser."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from context_compactor.classify.relevance import name_worth
from context_compactor.classify.tier import Tier
from context_compactor.plan.choose import Chooser, Piece
from context_compactor.plan.options import Option, Voice, token_rate
from context_compactor.plan.view import View
from context_compactor.plan.zones import Zone

_FOCUS_FACTOR = 4.0
_ADDING = (Tier.KEEP, Tier.SUMMARIZE)
# The heading of a source is shared by the blocks that are likely to be taken with the first one.
_SHARING = 4


class Draft(Struct, frozen=True):
    """Options on the scales: a chooser over those that may be taken, and what replaces a source whole."""

    options: tuple[Option, ...]
    chooser: Chooser
    replaced: dict[int, Option]
    names_of: list[set[int]]

    def chosen(self) -> list[Option]:
        """The options taken so far, in the order of the history."""
        picked = [self.options[self.chooser.pieces[at].option] for at in self.chooser.chosen]
        return sorted(picked, key=lambda option: (option.source, option.block))


def draft_plan(view: View, options: Sequence[Option], kept: Sequence[str]) -> Draft:
    """Weigh the options of all strategies against each other. `kept` are texts that stand in the context anyway."""
    replaced = {option.source: option for option in options if option.tier in (Tier.DROP, Tier.REFERENCE)}
    offers = _best_offers(options, replaced)
    names = [tuple(view.names.ids(option.text)) for option in offers]
    names_of = _names_by_source(view, offers, names)
    standing = [view.names.ids(text) for text in kept]
    worth = _names_worth(view, names_of)
    headings = _headings(view)
    chooser = Chooser(_pieces(view, offers, names, headings), worth, view.weights, headings)
    for found in standing:
        chooser.cover(found)
    for source in view.sources:
        if view.zone_of(source) is Zone.VERBATIM:
            chooser.cover(names_of[source.number], [hash(block.text) for block in source.blocks])
    return Draft(offers, chooser, replaced, names_of)


def _best_offers(options: Sequence[Option], replaced: dict[int, Option]) -> tuple[Option, ...]:
    """Of several offers for one target the dearest; a source that is dropped offers nothing."""
    dropped = {source for source, option in replaced.items() if option.tier is Tier.DROP}
    best: dict[tuple[int, int], Option] = {}
    for option in options:
        if option.tier in _ADDING and option.source not in dropped:
            key = (option.source, option.block)
            known = best.get(key)
            if known is None or option.weight > known.weight:
                best[key] = option
    return tuple(best.values())


def _pieces(
    view: View, offers: Sequence[Option], names: Sequence[tuple[int, ...]], headings: dict[int, float]
) -> list[Piece]:
    repeated = view.weights.repeated
    written = _written_before(view)
    wanted = _focus(view.focus)
    rates = [token_rate(source) for source in view.sources]
    shares = [headings.get(source.number, 0.0) / min(max(len(source.blocks), 1), _SHARING) for source in view.sources]
    pieces = []
    for at, option in enumerate(offers):
        text, number = option.text, option.source
        weight, boost = option.weight, 1.0
        if view.sources[number].voice is Voice.CALL:
            weight *= 1.0 + repeated * min(written.get(text, 1) - 1, 3)
        if wanted is not None and wanted.search(text):
            weight, boost = weight * _FOCUS_FACTOR + _FOCUS_FACTOR, _FOCUS_FACTOR
        tokens = len(text) * rates[number] + 1.0
        pieces.append(Piece(at, number, tokens, weight, names[at], hash(text), boost, shares[number]))
    return pieces


def _headings(view: View) -> dict[int, float]:
    """What it costs to open a source: its heading in the record. A ledger has its own, a shortened part needs none."""
    return {
        source.number: view.weights.heading
        for source in view.sources
        if view.zone_of(source) is Zone.FOLDED and source.voice is not Voice.FACT
    }


def _focus(focus: str) -> re.Pattern[str] | None:
    words = [re.escape(word) for word in focus.split() if len(word) > 2]
    return re.compile("|".join(words), re.IGNORECASE) if words else None


def _written_before(view: View) -> dict[str, int]:
    """How often the agent has written each block."""
    written: dict[str, int] = {}
    for source in view.sources:
        if source.voice is Voice.CALL:
            for block in source.blocks:
                written[block.text] = written.get(block.text, 0) + 1
    return written


def _names_by_source(view: View, offers: Sequence[Option], names: Sequence[tuple[int, ...]]) -> list[set[int]]:
    """The names of each source, from its blocks where they were looked at already."""
    found: dict[int, set[int]] = {}
    for option, ids in zip(offers, names, strict=True):
        if option.block >= 0:
            found.setdefault(option.source, set()).update(ids)
    return [found[source.number] if source.number in found else view.names.ids(source.text) for source in view.sources]


def _names_worth(view: View, names_of: Sequence[set[int]]) -> list[float]:
    """What each name is worth: how often the agent used it or was shown it, and the age of the last time."""
    total = sum(source.tokens for source in view.sources) or 1
    before = 0
    count = len(view.names)
    used, shown, ages = [0] * count, [0] * count, [1.0] * count
    for source, names in zip(view.sources, names_of, strict=True):
        before += source.tokens
        if source.voice is Voice.THINKING:
            continue
        counts = shown if source.voice is Voice.RESULT else used
        age = 1.0 - before / total
        for name in names:
            counts[name] += 1
            ages[name] = age
    return [name_worth(used[at], shown[at], ages[at], view.weights) for at in range(count)]
