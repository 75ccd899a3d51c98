"""A layout with the user's steers in it: which turns stay or go whatever the layout says, and what that asks of others.

Two steps of the agent must not meet where what stood between them is folded: no provider takes that, and they would be
read as one turn. So one word of the user stays between them, or the first of the two goes as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from context_compactor.classify.pins import last_words
from context_compactor.classify.steer import REASONS, Steers
from context_compactor.classify.tier import Tier
from context_compactor.messages.turn import Turn
from context_compactor.plan.zones import TurnSize, Zone

_LIVE = (Zone.PLACED, Zone.VERBATIM)
_BETWEEN = "stands between two steps of the agent that cannot follow each other"


class Steered(Struct, frozen=True):
    """The zones, and for each turn that was steered, or had to follow one, the reason."""

    zones: dict[int, Zone]
    why: dict[int, str] = {}


def decided_zones(turns: Sequence[Turn], steers: Steers) -> dict[int, Zone]:
    """The turns about which a layout has nothing to say: those that are kept, and those of which no text stays."""
    unanswered = last_words(turns)
    zones = {Tier.KEEP: Zone.VERBATIM, Tier.REFERENCE: Zone.FOLDED, Tier.DROP: Zone.FOLDED}
    return {
        turn.number: zones[steers[turn.number]]
        for turn in turns
        if turn.number in steers
        and steers[turn.number] in zones
        and not turn.is_instruction
        and turn.number not in unanswered
    }


def follow(zones: dict[int, Zone], turns: Sequence[Turn], sizes: Sequence[TurnSize], steers: Steers) -> Steered:
    """The zones of a layout with the steers in them."""
    if not steers:
        return Steered(zones)
    size_of = {turn.number: size for turn, size in zip(turns, sizes, strict=True)}
    found = Steered(
        {**zones, **decided_zones(turns, steers)}, {number: REASONS[tier] for number, tier in steers.items()}
    )
    for number, tier in steers.items():
        if tier is Tier.SUMMARIZE and found.zones[number] is Zone.VERBATIM:
            is_shorter_in_place = size_of[number].least < size_of[number].whole
            found.zones[number] = Zone.PLACED if is_shorter_in_place else Zone.FOLDED
    while (meeting := next(_meetings(turns, found.zones), None)) is not None:
        _part(*meeting, found, size_of, steers)
    return found


def _meetings(turns: Sequence[Turn], zones: dict[int, Zone]) -> Iterator[tuple[Turn, list[Turn]]]:
    """Each turn that would be followed by another step of the agent, with what the user said between the two."""
    before: Turn | None = None
    between: list[Turn] = []
    for turn in turns:
        if zones[turn.number] in _LIVE:
            if before is not None and between and _ends_open(before) and turn.role == "assistant":
                yield before, between
            before, between = turn, []
        elif turn.role == "user":
            between.append(turn)


def _ends_open(turn: Turn) -> bool:
    last = turn.messages[-1]
    return last.role == "assistant" and not last.results


def _part(first: Turn, between: list[Turn], found: Steered, size_of: dict[int, TurnSize], steers: Steers) -> None:
    """Keep two steps of the agent apart."""
    free = [turn for turn in between if turn.number not in steers]
    if free or steers.get(first.number) is Tier.KEEP:
        stays = min(free or between, key=lambda turn: size_of[turn.number].whole).number
        found.zones[stays] = Zone.VERBATIM
        found.why[stays] = f"{found.why[stays]}, but {_BETWEEN}" if stays in found.why else _BETWEEN
    else:
        found.zones[first.number] = Zone.FOLDED
        found.why[first.number] = f"goes with turn {between[0].number}, {REASONS[steers[between[0].number]]}"
