"""The planner: weighs every option once and hands them to the chooser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from context_compactor.classify.kinds import Voice
from context_compactor.classify.names import NameTable
from context_compactor.classify.tier import Tier
from context_compactor.plan.choose import Chooser
from context_compactor.plan.options import Option
from context_compactor.plan.view import View
from context_compactor.plan.weigh import names_worth, telling_lines, weigh
from context_compactor.plan.zones import Zone

_ADDING = (Tier.KEEP, Tier.SUMMARIZE)
# What an id in its brackets takes.
_ID_TOKENS = 4.0
# Of a text that is to be told in a few lines, the share that these may take.
_SHORT_SHARE = 1 / 3


class Draft(Struct, frozen=True):
    """Options on the scales: a chooser over those that may be taken, and what replaces a source whole."""

    options: tuple[Option, ...]
    chooser: Chooser
    replaced: dict[int, Option]
    names_of: list[set[int]]
    names: NameTable

    def chosen(self) -> list[Option]:
        """The options taken so far, in the order of the history."""
        picked = [self.options[self.chooser.pieces[at].option] for at in self.chooser.chosen]
        return sorted(picked, key=lambda option: (option.source, option.block))

    def cover(self, texts: Iterable[str]) -> None:
        """These texts stand in the context as well, so that what they name need not be kept again."""
        for text in texts:
            self.chooser.cover(self.names.known(text), map(hash, telling_lines(text)))


def draft_plan(view: View, options: Sequence[Option], kept: Sequence[str]) -> Draft:
    """Weigh the options of all strategies against each other. `kept` are texts that stand in the context anyway."""
    replaced = {option.source: option for option in options if option.tier in (Tier.DROP, Tier.REFERENCE)}
    offers = _best_offers(options, replaced)
    names = [tuple(view.names.ids(option.text)) for option in offers]
    names_of = _names_by_source(view, offers, names)
    standing = [view.names.ids(text) for text in kept]
    worth = names_worth(view, names_of)
    headings = _headings(view)
    chooser = Chooser(weigh(view, offers, names, headings), worth, view.weights, headings, _most(view))
    for found in standing:
        chooser.cover(found)
    for source in view.sources:
        if view.zone_of(source) is Zone.VERBATIM:
            chooser.cover(names_of[source.number], map(hash, telling_lines(source.text)))
    return Draft(offers, chooser, replaced, names_of, view.names)


def _best_offers(options: Sequence[Option], replaced: dict[int, Option]) -> tuple[Option, ...]:
    """Of several offers for one target the dearest; a source that is dropped offers nothing."""
    dropped = {source for source, option in replaced.items() if option.tier is Tier.DROP or option.is_all}
    best: dict[tuple[int, int], Option] = {}
    for option in options:
        if option.tier in _ADDING and option.source not in dropped:
            key = (option.source, option.block)
            known = best.get(key)
            if known is None or option.weight > known.weight:
                best[key] = option
    return tuple(best.values())


def _most(view: View) -> dict[int, float]:
    """What may stay at the most of texts that are to be told in a few lines."""
    short = (source for source in view.sources if view.steers.get(source.turn) is Tier.SUMMARIZE)
    return {source.number: source.tokens * _SHORT_SHARE for source in short if not source.is_loose}


def _headings(view: View) -> dict[int, float]:
    """What it costs to open a source: its heading in the record. A ledger has its own, a shortened part needs none."""
    return {
        source.number: _ID_TOKENS + view.weights.heading * min(len(source.label), view.weights.label)
        for source in view.sources
        if view.zone_of(source) is Zone.FOLDED and source.voice is not Voice.FACT
    }


def _names_by_source(view: View, offers: Sequence[Option], names: Sequence[tuple[int, ...]]) -> list[set[int]]:
    """The names of each source, from its blocks where they were looked at already."""
    found: dict[int, set[int]] = {}
    for option, ids in zip(offers, names, strict=True):
        if option.block >= 0:
            found.setdefault(option.source, set()).update(ids)
    return [
        found[source.number]
        if source.number in found and source.voice is not Voice.CALL
        else view.names.ids(source.text)
        for source in view.sources
    ]
