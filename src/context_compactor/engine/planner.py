"""Chooses what stays: weighs every option, then takes the best for their tokens until the target is full."""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Literal

from msgspec import Struct

from context_compactor.engine.layouts import Zone
from context_compactor.engine.options import Offers, Option, TextSource, token_rate
from context_compactor.engine.relevance import NameUse, Weights, name_worth
from context_compactor.engine.tiers import Tier
from context_compactor.engine.view import PlanningView
from context_compactor.facts.calls import REMOVED
from context_compactor.facts.kinds import Kind, Voice
from context_compactor.facts.names import NameTable, shape_worth

# Half of a heading is put on the line that opens its source; the other half on those that will follow.
_HEADING_SHARE = 0.5


# An entry of the chooser's heap is one whole number, which takes a third of a pair's memory. The larger the density,
# the smaller it is; its last bits are the number of the piece.
_PIECE_BITS = 32
_HIGHEST = 1 << 63
_PIECE = (1 << _PIECE_BITS) - 1
_FLOAT, _WHOLE = struct.Struct("d"), struct.Struct("q")
_float_bytes, _whole_of = _FLOAT.pack, _WHOLE.unpack
_whole_bytes, _float_of = _WHOLE.pack, _FLOAT.unpack


def _entry(density: float, at: int) -> int:
    """A density is only told from others above nothing: what adds nothing is never taken."""
    whole: int = _whole_of(_float_bytes(density if density > 0.0 else 0.0))[0]
    return (_HIGHEST - whole << _PIECE_BITS) | at


def _density_of(entry: int) -> float:
    density: float = _float_of(_whole_bytes(_HIGHEST - (entry >> _PIECE_BITS)))[0]
    return density


class NumberLists:
    """Many short lists of whole numbers, one behind the other."""

    __slots__ = ("ends", "numbers")

    def __init__(self, typecode: Literal["I", "q"]) -> None:
        self.numbers = array(typecode)
        self.ends = array("I", (0,))

    def __getitem__(self, at: int) -> array[int]:
        return self.numbers[self.ends[at] : self.ends[at + 1]]

    def append(self, numbers: Iterable[int]) -> None:
        """One more list."""
        self.numbers.extend(numbers)
        self.ends.append(len(self.numbers))


class Candidates:
    """The offers on the scales, in arrays: tens of thousands are weighed in each compaction.

    `lines` tells equal lines apart from others; `boosts` multiply what names are worth.
    """

    def __init__(self, sources: array[int]) -> None:
        self.sources = sources
        self.tokens = array("d")
        self.weights = array("d")
        self.boosts = array("d")
        self.names = NumberLists("I")
        self.lines = NumberLists("q")

    def __len__(self) -> int:
        return len(self.sources)


class Chooser:
    """Takes pieces in the order of what they add per token, until it is told to stop."""

    def __init__(
        self,
        pieces: Candidates,
        worth: array[float],
        weights: Weights,
        headings: dict[int, float],
        most: dict[int, float] | None = None,
    ) -> None:
        self.pieces = pieces
        self.chosen: list[int] = []
        self.tokens = 0.0
        self._worth = worth
        self._again = weights.name_again
        self._neighbour = weights.neighbour
        self._headings = dict(headings)
        self._most = most or {}
        self._used: dict[int, float] = {}
        self._costs = array("d")
        self._gains = array("d")
        self._final: array[float] | None = None
        self._seen = bytearray(len(worth))
        self._lines: set[int] = set()
        self._first = array("d")
        self._order = array("I")
        self._next = 0
        self._front: int | None = None
        self._reweighed: list[int] = []
        self._taken = bytearray(len(pieces))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is chosen."""
        return not self.chosen

    def cover(self, names: Iterable[int], lines: Iterable[int] = ()) -> None:
        """These names and texts stand in the context already."""
        seen = self._seen
        for name in names:
            if seen[name] < 2:
                seen[name] += 1
        self._lines.update(lines)

    def start(self) -> None:
        """Weigh every piece once."""
        self._first = array("d", map(self._density, range(len(self.pieces))))
        self._order = array("I", sorted(range(len(self.pieces)), key=self._first.__getitem__, reverse=True))
        self._next, self._front = 0, None
        self._reweighed = []

    def fill(self, tokens: float) -> None:
        """Take the best pieces that fit until about this many tokens are used."""
        skipped: list[int] = []
        taken, reweighed, last = self._taken, self._reweighed, len(self._order)
        while self.tokens < tokens and (entry := self._pop()) is not None:
            at = entry & _PIECE
            if taken[at]:
                continue
            now = self._density(at)
            if now < _density_of(entry) - 1e-9 and (reweighed or self._next < last):
                heappush(reweighed, _entry(now, at))
                continue
            if now <= 0.0 or self._is_used_up(at):
                continue
            if self.tokens + self._cost(at) > tokens:
                skipped.append(_entry(now, at))
                if len(skipped) > 40:
                    break
                continue
            self._take(at)
        for entry in skipped:
            heappush(self._reweighed, entry)

    def _pop(self) -> int | None:
        """The best of what is left, by the first weighing or a later one."""
        if self._front is None and self._next < len(self._order):
            at = self._order[self._next]
            self._front = _entry(self._first[at], at)
        if self._reweighed and (self._front is None or self._reweighed[0] < self._front):
            return heappop(self._reweighed)
        first, self._front = self._front, None
        self._next += first is not None
        return first

    def finish(self) -> None:
        """Nothing more is taken or given back: keep what each piece adds, and let go of what it was weighed by."""
        self._final = self.gains()
        self._first, self._order, self._next, self._reweighed = array("d"), array("I"), 0, []
        self._lines, self._seen, self._worth = set(), bytearray(), array("d")
        self.pieces = Candidates(self.pieces.sources)

    def drop_last(self, tokens: float) -> None:
        """Give back the least valuable pieces until about this many tokens are free."""
        free = 0.0
        while self.chosen and free < tokens:
            at = self.chosen.pop()
            self._taken[at] = 0
            self._lines.difference_update(self.pieces.lines[at])
            heappush(self._reweighed, _entry(self._density(at), at))
            cost = self._costs.pop()
            self._gains.pop()
            free += cost
            self.tokens -= cost
            self._use(at, -1)

    def gains(self) -> array[float]:
        """What each piece added for each of its tokens when it was taken, or would add now."""
        if self._final is not None:
            return self._final
        gains = array("d", map(self._density, range(len(self.pieces))))
        for at, gain in zip(self.chosen, self._gains, strict=True):
            gains[at] = gain
        return gains

    def _cost(self, at: int) -> float:
        """What a piece costs now: with the heading of its source when it is the first of it."""
        return self.pieces.tokens[at] + self._headings.get(self.pieces.sources[at], 0.0)

    def _is_used_up(self, at: int) -> bool:
        """Whether a source that may give only some of its text has given it; its first piece it gives anyway."""
        source = self.pieces.sources[at]
        used = self._used.get(source, 0.0)
        return used > 0.0 and used + self.pieces.tokens[at] > self._most[source]

    def _use(self, at: int, sign: int) -> None:
        source = self.pieces.sources[at]
        if source in self._most:
            self._used[source] = max(self._used.get(source, 0.0) + sign * self.pieces.tokens[at], 0.0)

    def _density(self, at: int) -> float:
        pieces, seen = self.pieces, self._seen
        tokens = pieces.tokens[at]
        value = pieces.weights[at] * tokens
        # The loops of a compaction end here, a hundred thousand times: no call that can be spared.
        lists = pieces.lines
        start, end = lists.ends[at], lists.ends[at + 1]
        if end - start == 1:
            if lists.numbers[start] in self._lines:
                value = 0.0
        elif start < end and not self._lines.isdisjoint(lines := lists.numbers[start:end]):
            value *= sum(line not in self._lines for line in lines) / len(lines)
        lists = pieces.names
        start, end = lists.ends[at], lists.ends[at + 1]
        if start < end:
            worth, boost, again = self._worth, pieces.boosts[at], self._again
            for name in lists.numbers[start:end]:
                times = seen[name]
                if times == 0:
                    value += worth[name] * boost
                elif times == 1:
                    value += worth[name] * again
        return value / (tokens + self._headings.get(pieces.sources[at], 0.0) * _HEADING_SHARE)

    def _take(self, at: int) -> None:
        source, cost = self.pieces.sources[at], self._cost(at)
        self._gains.append(self._density(at))
        self.tokens += cost
        self._use(at, 1)
        self._costs.append(cost)
        is_first = self._headings.pop(source, None) is not None
        self.chosen.append(at)
        self._taken[at] = 1
        self.cover(self.pieces.names[at], self.pieces.lines[at])
        if is_first:
            self._reweigh(at)
        self._favour(at - 1, source)
        self._favour(at + 1, source)

    def _reweigh(self, at: int) -> None:
        """Once a source has its heading, what else it holds costs less."""
        sources = self.pieces.sources
        for step in (-1, 1):
            near = at + step
            while 0 <= near < len(sources) and sources[near] == sources[at] and abs(near - at) < 100:
                if not self._taken[near]:
                    heappush(self._reweighed, _entry(self._density(near), near))
                near += step

    def _favour(self, at: int, source: int) -> None:
        """What stands next to a chosen piece reads on from it."""
        if 0 <= at < len(self.pieces) and not self._taken[at] and self.pieces.sources[at] == source:
            self.pieces.weights[at] *= self._neighbour
            heappush(self._reweighed, _entry(self._density(at), at))


# A line that the focus is about is worth more, in its wording and in its names, and each token a share of a name.
_FOCUS_FACTOR = 6.0
_FOCUS_WORTH = 0.3
# Shorter lines, such as a closing bracket, stand everywhere; more repeats say no more.
_TELLING_LINE = 12
_OFTEN = 4
# Wording is compared by runs of five words; a text of fewer carries its own only together with its neighbours.
_RUN = 5
_LEAST_INSIDE = 0.25
# What an edit took out is no longer there to be used.
_GONE = 0.3
_WORD = re.compile(r"\w{2,}")
# A name with more words than this beside it is told as well as it can be.
_FEW = 4
_ALONE = 0.2


def weigh_options(view: PlanningView, offers: Offers) -> Candidates:
    """One piece for each offer."""
    weights = view.weights
    seen = seen_lines(view)
    shares = view.focus.shares([option.text for option in offers]) if view.focus else None
    rates = [token_rate(source) for source in view.sources]
    pieces = Candidates(offers.sources)
    for at, (number, text) in enumerate(zip(offers.sources, offers.texts(), strict=True)):
        source = view.sources[number]
        lines = distinct_lines(text)
        again = weights.shown_again if source.voice is Voice.RESULT else weights.repeated
        weight = (
            offers.weights[at]
            * (1.0 + again * _average_repeats(lines, seen))
            * _own_wording_share(text) ** weights.inside
        )
        boost = weights.ledger_name if source.voice is Voice.FACT else _context_share(text)
        if source.voice is Voice.CALL and source.path and text.startswith(REMOVED):
            weight, boost = weight * _GONE, boost * _GONE
        judged = view.factors.get(source.turn, 1.0)
        weight, boost = weight * judged, boost * judged
        if shares is not None:
            weight += (_FOCUS_FACTOR * weight + _FOCUS_WORTH * weights.name) * shares[at]
            boost += _FOCUS_FACTOR * shares[at]
        pieces.tokens.append(len(text) * rates[number] + 1.0)
        pieces.weights.append(weight)
        pieces.boosts.append(boost)
        pieces.names.append(view.names.ids(text))
        pieces.lines.append(map(hash, lines))
    return pieces


def seen_lines(view: PlanningView) -> dict[str, int]:
    """In how many sources each line stands."""
    seen: dict[str, int] = {}
    for source in view.sources:
        if source.voice is not Voice.THINKING:
            for line in set(distinct_lines(source.text)):
                seen[line] = seen.get(line, 0) + 1
    return seen


def distinct_lines(text: str) -> list[str]:
    """The lines of a text that say something, without their indent."""
    if "\n" not in text:
        line = text.strip()
        return [line] if len(line) >= _TELLING_LINE else []
    return [line for line in map(str.strip, text.split("\n")) if len(line) >= _TELLING_LINE]


def _average_repeats(lines: Sequence[str], seen: dict[str, int]) -> float:
    """How often lines stood in other sources too, on average."""
    if len(lines) == 1:
        return min(seen.get(lines[0], 1) - 1, _OFTEN)
    return sum(min(seen.get(line, 1) - 1, _OFTEN) for line in lines) / len(lines) if lines else 0.0


def _context_share(text: str) -> float:
    """How much of a name's worth a text carries: one that stands nearly alone says little about it."""
    words = len(_WORD.findall(text))
    return 1.0 if words > _FEW else _ALONE + (1.0 - _ALONE) * words / (_FEW + 1)


def _own_wording_share(text: str) -> float:
    """The share of its wording that a text carries without what stands next to it."""
    words = len(text.split())
    return max((words - _RUN + 1) / words, _LEAST_INSIDE) if words else _LEAST_INSIDE


def names_worth(view: PlanningView, names_of: Sequence[array[int]]) -> array[float]:
    """What each name is worth: how it was met, how long ago, and what kind of name it is."""
    after = sum(source.tokens for source in view.sources)
    uses = [NameUse() for _ in range(len(view.names))]
    for source, names in zip(view.sources, names_of, strict=True):
        after -= source.tokens
        if source.voice is Voice.THINKING:
            continue
        field = _field(source)
        for name in names:
            use = uses[name]
            setattr(use, field, getattr(use, field) + 1)
            if field == "used" or not use.used:
                use.after = after
    alone, part = view.names.alone, view.weights.name_part
    return array(
        "d",
        (
            name_worth(use, view.weights) * shape_worth(name) * (1.0 if is_alone else part)
            for use, name, is_alone in zip(uses, view.names.names, alone, strict=True)
        ),
    )


def _field(source: TextSource) -> str:
    if source.voice is Voice.RESULT:
        return "code" if source.kind is Kind.CODE else "other"
    return "said" if source.voice is Voice.USER else "used"


# What an id in its brackets takes.
_ID_TOKENS = 4.0
# Of a text that is to be told in a few lines, the share that these may take.
_SHORT_SHARE = 1 / 3


class PlanSelection(Struct, frozen=True):
    """Options on the scales: a chooser over those that may be taken, and what replaces a source whole."""

    options: Offers
    chooser: Chooser
    replaced: dict[int, Option]
    names_of: list[array[int]]
    """The names of each source."""
    names: NameTable

    def chosen(self) -> list[Option]:
        """The options taken so far, in the order of the history."""
        options = self.options
        in_order = sorted(self.chooser.chosen, key=lambda at: (options.sources[at], options.blocks[at]))
        return list(map(options.__getitem__, in_order))

    def cover(self, texts: Iterable[str]) -> None:
        """These texts stand in the context as well, so that what they name need not be kept again."""
        for text in texts:
            self.chooser.cover(self.names.known(text), map(hash, distinct_lines(text)))


def draft_plan(view: PlanningView, options: Iterable[Option], kept: Sequence[str]) -> PlanSelection:
    """Weigh the options of all strategies against each other. `kept` are texts that stand in the context anyway."""
    offers, replaced = _sort_options(view, options)
    pieces = weigh_options(view, offers)
    names_of = _names_by_source(view, offers, pieces.names)
    standing = [view.names.ids(text) for text in kept]
    worth = names_worth(view, names_of)
    chooser = Chooser(pieces, worth, view.weights, _headings(view), _most(view))
    for found in standing:
        chooser.cover(found)
    for source in view.sources:
        if view.zone_of(source) is Zone.VERBATIM:
            chooser.cover(names_of[source.number], map(hash, distinct_lines(source.text)))
    return PlanSelection(offers, chooser, replaced, names_of, view.names)


def _sort_options(view: PlanningView, options: Iterable[Option]) -> tuple[Offers, dict[int, Option]]:
    """The options to choose from, and those that replace a source whole; a source that is dropped offers nothing."""
    replaced: dict[int, Option] = {}
    offers = Offers(view.sources)
    for option in options:
        if option.tier in (Tier.DROP, Tier.REFERENCE):
            replaced[option.source] = option
        else:
            offers.add(option)
    dropped = {source for source, option in replaced.items() if option.tier is Tier.DROP or option.is_all}
    return offers.without(dropped), replaced


def _most(view: PlanningView) -> dict[int, float]:
    """What may stay at the most of texts that are to be told in a few lines."""
    short = (source for source in view.sources if view.tier_overrides.get(source.turn) is Tier.SUMMARIZE)
    return {source.number: source.tokens * _SHORT_SHARE for source in short if not source.is_loose}


def _headings(view: PlanningView) -> dict[int, float]:
    """What it costs to open a source: its heading in the record. A ledger has its own, a shortened part needs none."""
    return {
        source.number: _ID_TOKENS + view.weights.heading * min(len(source.label), view.weights.label)
        for source in view.sources
        if view.zone_of(source) is Zone.FOLDED and source.voice is not Voice.FACT
    }


def _names_by_source(view: PlanningView, offers: Offers, names: NumberLists) -> list[array[int]]:
    """The names of each source, from its blocks where they were looked at already."""
    found: dict[int, set[int]] = {}
    for at, source in enumerate(offers.sources):
        if offers.blocks[at] >= 0 and view.sources[source].voice is not Voice.CALL:
            found.setdefault(source, set()).update(names[at])
    return [
        array("I", found.pop(source.number) if source.number in found else view.names.ids(source.text))
        for source in view.sources
    ]
