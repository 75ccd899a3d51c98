"""The tiers that a user has set for turns: how a layout follows them, and what they leave of a turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from context_compactor.dialects.turns import Turn
from context_compactor.engine.layouts import TurnSize, Zone
from context_compactor.engine.options import Option, TextSource
from context_compactor.engine.tiers import OVERRIDE_REASONS, Tier, TierOverrides, unanswered_turns
from context_compactor.engine.view import PlanningView
from context_compactor.facts.kinds import Voice

_LIVE = (Zone.PLACED, Zone.VERBATIM)
_BETWEEN = "stands between two steps of the agent that cannot follow each other"


class ZonedTurns(Struct, frozen=True):
    """The zones, and for each turn that was steered, or had to follow one, the reason."""

    zones: dict[int, Zone]
    why: dict[int, str] = {}


def override_zones(turns: Sequence[Turn], steers: TierOverrides) -> dict[int, Zone]:
    """The turns about which a layout has nothing to say: those that are kept, and those of which no text stays."""
    unanswered = unanswered_turns(turns)
    zones = {Tier.KEEP: Zone.VERBATIM, Tier.REFERENCE: Zone.FOLDED, Tier.DROP: Zone.FOLDED}
    return {
        turn.number: zones[steers[turn.number]]
        for turn in turns
        if turn.number in steers
        and steers[turn.number] in zones
        and not turn.is_instruction
        and turn.number not in unanswered
    }


def apply_overrides(
    zones: dict[int, Zone], turns: Sequence[Turn], sizes: Sequence[TurnSize], steers: TierOverrides
) -> ZonedTurns:
    """The zones of a layout with the steers in them."""
    if not steers:
        return ZonedTurns(zones)
    size_of = {turn.number: size for turn, size in zip(turns, sizes, strict=True)}
    found = ZonedTurns(
        {**zones, **override_zones(turns, steers)}, {number: OVERRIDE_REASONS[tier] for number, tier in steers.items()}
    )
    for number, tier in steers.items():
        if tier is Tier.SUMMARIZE and found.zones[number] is Zone.VERBATIM:
            is_shorter_in_place = size_of[number].least < size_of[number].whole
            found.zones[number] = Zone.PLACED if is_shorter_in_place else Zone.FOLDED
    while (meeting := next(_adjacent_steps(turns, found.zones), None)) is not None:
        _keep_apart(*meeting, found, size_of, steers)
    return found


def _adjacent_steps(turns: Sequence[Turn], zones: dict[int, Zone]) -> Iterator[tuple[Turn, list[Turn]]]:
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


def _keep_apart(
    first: Turn, between: list[Turn], found: ZonedTurns, size_of: dict[int, TurnSize], steers: TierOverrides
) -> None:
    """Keep two steps of the agent apart."""
    free = [turn for turn in between if turn.number not in steers]
    if free or steers.get(first.number) is Tier.KEEP:
        stays = min(free or between, key=lambda turn: size_of[turn.number].whole).number
        found.zones[stays] = Zone.VERBATIM
        found.why[stays] = f"{found.why[stays]}, but {_BETWEEN}" if stays in found.why else _BETWEEN
    else:
        found.zones[first.number] = Zone.FOLDED
        found.why[first.number] = f"goes with turn {between[0].number}, {OVERRIDE_REASONS[steers[between[0].number]]}"


# More than any line is worth by itself: the first line of what is to be told in a few lines comes before all others.
_FIRST = 1e6


@dataclass(frozen=True)
class FollowTierOverrides:
    """Leaves one line or nothing of a turn that was lowered, and of one to be shortened at least how it begins."""

    steers: TierOverrides = field(default_factory=dict)
    name: str = "steer"

    def propose(self, view: PlanningView) -> Iterator[Option]:
        """One option for each text of a steered turn."""
        named: set[int] = set()
        for source in view.open_sources():
            tier = self.steers.get(source.turn) if not source.is_loose else None
            if tier in (Tier.REFERENCE, Tier.DROP):
                is_first = source.turn not in named
                named.add(source.turn)
                text = self._line(view, source) if tier is Tier.REFERENCE and is_first else ""
                yield Option(self.name, source.number, tier, text, OVERRIDE_REASONS[tier], is_all=True)
            elif tier is Tier.SUMMARIZE and source.blocks and source.voice is not Voice.THINKING:
                yield Option(
                    self.name, source.number, Tier.KEEP, source.blocks[0].text, OVERRIDE_REASONS[tier], _FIRST, 0
                )

    def _line(self, view: PlanningView, source: TextSource) -> str:
        """What stands for a turn: who spoke, and how it begins or what it called."""
        turn = next(turn for turn in view.turns if turn.number == source.turn)
        labels = [view.verdicts.exchanges[each.number].label for each in turn.exchanges]
        words = " ".join(turn.messages[0].text.split())[:60]
        return f"{'agent' if turn.role == 'assistant' else turn.role}: {', '.join(labels[:3]) or words}"
