"""Which turns stay verbatim, which are shortened in place and which are folded into the record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msgspec import Struct, structs

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Media, Thinking, ToolResult
from context_compactor.dialects.strict_order import takes_turns
from context_compactor.dialects.turns import Turn
from context_compactor.engine.relevance import share_factor
from context_compactor.engine.tiers import OVERRIDE_REASONS, Tier, TierOverrides, interjected_turn, unanswered_turns
from context_compactor.protocols import Layout
from context_compactor.tokens.counting import MessageCounter


class Zone(StrEnum):
    """What may happen to a turn."""

    FIXED = "fixed"
    FOLDED = "folded"
    PLACED = "placed"
    VERBATIM = "verbatim"


class TurnSize(Struct, frozen=True):
    """A turn's tokens as it is, and the least it can weigh when it is shortened in place."""

    whole: int
    least: int


class Shares(Struct, frozen=True):
    """How much of the room the newest turns may take: verbatim, and shortened in place before them.

    The last `recent` turns may take more of it than others.
    """

    tail: float = 0.08
    placed: float = 0.0
    recent: int = 5
    recent_tail: float = 0.15

    def scaled(self, factor: float) -> Shares:
        """The same shares of a smaller cake: the less may stay, the dearer is what stays as it is."""
        return structs.replace(
            self, tail=self.tail * factor, placed=self.placed * factor, recent_tail=self.recent_tail * factor
        )


# What a result weighs at the least when it is shortened in place: its reference.
REFERENCE_TOKENS = 45


def turn_sizes(turns: Sequence[Turn], counter: MessageCounter) -> list[TurnSize]:
    """The sizes of all turns; the texts are counted in one batch."""
    counter.learn([message for turn in turns for message in turn.messages])
    newest = newest_step(turns)
    return [_turn_size(turn, counter, may_clear_thinking(turn, newest, counter.dialect)) for turn in turns]


def newest_step(turns: Sequence[Turn]) -> int:
    """The number of the agent's newest turn, or 0."""
    return max((turn.number for turn in turns if turn.role == "assistant"), default=0)


def room_for_turns(turns: Sequence[Turn], sizes: Sequence[TurnSize], target: int, kept: Collection[int] = ()) -> int:
    """What the instructions and the turns that are kept in any case leave of a target."""
    pairs = zip(turns, sizes, strict=True)
    fixed = sum(size.whole for turn, size in pairs if turn.is_fixed or turn.number in kept)
    return max(target - fixed, 1)


def _turn_size(turn: Turn, counter: MessageCounter, clears_thinking: bool) -> TurnSize:
    whole = least = 0
    for message in turn.messages:
        tokens = counter.part_tokens(message)
        whole += sum(tokens) + counter.frame_tokens(message)
        least += counter.frame_tokens(message)
        for part, weight in zip(message.parts, tokens, strict=True):
            if isinstance(part, (ToolResult, Media)):
                least += min(weight, REFERENCE_TOKENS)
            elif not (isinstance(part, Thinking) and clears_thinking):
                least += weight
    return TurnSize(whole, least)


def may_clear_thinking(turn: Turn, newest: int, dialect: Dialect) -> bool:
    """The step that is under way needs its reasoning, and so do all steps in some dialects."""
    return turn.number != newest and dialect.can_clear_thinking


class Room(Struct, frozen=True):
    """What a layout has to share out: `tokens` for all turns but the instructions, and how the newest may use them.

    `decided` are turns whose zone is settled already; what they take is no longer among the tokens. With `takes_turns`
    no two messages of the user may follow each other.
    """

    turns: Sequence[Turn]
    sizes: Sequence[TurnSize]
    tokens: int
    shares: Shares
    decided: dict[int, Zone] = {}
    takes_turns: bool = False

    @property
    def share(self) -> float:
        """How much of what there is may stay."""
        return self.tokens / max(sum(size.whole for turn, size in self._open()), 1)

    def share_of_history(self, past: int) -> float:
        """How much may stay of everything there was, with the `past` tokens that an earlier record stands for."""
        return self.tokens / max(past + self.tokens / max(self.share, 1e-6), 1.0)

    def _open(self) -> list[tuple[Turn, TurnSize]]:
        pairs = zip(self.turns, self.sizes, strict=True)
        return [(turn, size) for turn, size in pairs if turn.number not in self.decided]

    def sized(self) -> list[tuple[Turn, TurnSize]]:
        """The turns that can be moved, with their sizes."""
        return [(turn, size) for turn, size in self._open() if not turn.is_fixed]


def assign_zones(room: Room) -> dict[int, Zone]:
    """The zone of every turn, by its number: the newest within their shares, the rest folded.

    Words that wait for an answer beside results may take half of the room, with the results shortened.
    """
    shares = room.shares
    zones = {turn.number: Zone.FIXED if turn.is_fixed else Zone.FOLDED for turn in room.turns}
    pinned, interjected = unanswered_turns(room.turns), interjected_turn(room.turns)
    recent_room, tail_room, placed_room = (
        room.tokens * share for share in (shares.recent_tail, shares.tail, shares.placed)
    )
    recent = 0
    for turn, size in reversed(room.sized()):
        recent += turn.number not in pinned
        is_recent = recent <= shares.recent
        least_room = room.tokens / 2 if turn.number in interjected else 0.0
        if turn.number in pinned or size.whole <= (recent_room if is_recent else tail_room):
            zone, taken = Zone.VERBATIM, size.whole
        elif size.least < size.whole and size.least <= max(recent_room if is_recent else placed_room, least_room):
            zone, taken = Zone.PLACED, size.least
            placed_room -= 0 if is_recent else taken
        else:
            break
        zones[turn.number] = zone
        recent_room -= taken
        tail_room -= taken
    return zones


@dataclass(frozen=True)
class ShortenInPlace:
    """Folds nothing. For when what cannot be shortened takes no more than `most` of the room."""

    most: float = 0.4
    least_share: float = 0.35
    name: str = "shorten in place"

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """Every turn that would be folded is shortened instead."""
        zones = assign_zones(room)
        zones.update((number, Zone.PLACED) for number, zone in list(zones.items()) if zone is Zone.FOLDED)
        least = sum(size.whole if zones[turn.number] is Zone.VERBATIM else size.least for turn, size in room.sized())
        share = room.tokens / max(sum(size.whole for _, size in room.sized()), 1)
        return zones if share >= self.least_share and least <= self.most * room.tokens else None


@dataclass(frozen=True)
class FoldOldest:
    """Keeps the newest turns within their share and folds the rest; `tail_factor` makes that share smaller."""

    tail_factor: float = 1.0
    name: str = "fold the oldest turns"

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """Cut between two turns, where the newest ones have used up their share."""
        shares, factor = room.shares, self.tail_factor
        scaled = structs.replace(shares, tail=shares.tail * factor, recent_tail=shares.recent_tail * factor)
        return assign_zones(structs.replace(room, shares=scaled))


@dataclass(frozen=True)
class StartFresh:
    """Folds everything but what nobody has answered yet: a new window from ledgers and references."""

    name: str = "start fresh"

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """Only the unanswered words stay."""
        pinned = unanswered_turns(room.turns)
        interjected = {turn.number for turn, size in room.sized() if size.least <= room.tokens / 2} & interjected_turn(
            room.turns
        )
        return {turn.number: self._zone(turn, pinned, interjected) for turn in room.turns}

    def _zone(self, turn: Turn, pinned: set[int], interjected: set[int]) -> Zone:
        if turn.is_fixed:
            return Zone.FIXED
        if turn.number in interjected:
            return Zone.PLACED
        return Zone.VERBATIM if turn.number in pinned else Zone.FOLDED


_LIVE = (Zone.PLACED, Zone.VERBATIM)
_BETWEEN = {
    "user": "stands between two steps of the agent that cannot follow each other",
    "assistant": "stands between two messages of the user that cannot follow each other",
}


class ZonedTurns(Struct, frozen=True):
    """The zones, and for each turn that the user decided about, or that had to follow one, the reason."""

    zones: dict[int, Zone]
    why: dict[int, str] = {}
    refused: tuple[str, ...] = ()
    """What was wrong with the caller's own layouts."""
    is_last: bool = False
    """Whether nothing has fitted, so that no more than what must stay is to stay."""


def measure_room(
    turns: Sequence[Turn], counter: MessageCounter, target: int, shares: Shares, overrides: TierOverrides
) -> Room:
    """What the layouts may share out of a target."""
    sizes = turn_sizes(turns, counter)
    decided = override_zones(turns, overrides)
    kept = [number for number, zone in decided.items() if zone is Zone.VERBATIM]
    tokens = room_for_turns(turns, sizes, target, kept)
    room = Room(turns, sizes, tokens, shares, decided, takes_turns(counter.dialect))
    return structs.replace(room, shares=shares.scaled(share_factor(room.share)))


def zones_to_try(
    room: Room, layouts: Sequence[Layout], custom: Sequence[Layout], overrides: TierOverrides
) -> Iterator[ZonedTurns]:
    """What to try until a context fits: the caller's own layouts, ours, and then the last one with the least in it."""
    refused: list[str] = []
    zoned = ZonedTurns({})
    for layout in (*custom, *layouts):
        zones = _custom_zones(layout, room, refused) if layout in custom else layout.zones(room)
        if zones is not None:
            zoned = apply_overrides(zones, room, overrides)
            yield structs.replace(zoned, refused=tuple(refused))
    yield structs.replace(zoned, refused=tuple(refused), is_last=True)


def _custom_zones(layout: Layout, room: Room, refused: list[str]) -> dict[int, Zone] | None:
    """The zones of a layout that is not ours; None, with the reason among the refused, when they may not be used."""
    name = getattr(layout, "name", type(layout).__name__)
    try:
        zones = layout.zones(room)
        wrong = "" if zones is None else zones_objection(zones, room)
    except Exception as error:  # noqa: BLE001 - somebody else's code; our layouts do without it
        zones, wrong = None, f"{type(error).__name__}: {error}"
    if wrong:
        refused.append(f"layout {name!r} was left out: {wrong}")
    return None if wrong else zones


def zones_objection(zones: Any, room: Room) -> str:
    """Why turns may not be placed so; empty when they may."""
    if not isinstance(zones, dict):
        return f"zones() returned a {type(zones).__name__}; it must be a dictionary from turn numbers to zones"
    unanswered = unanswered_turns(room.turns)
    for turn in room.turns:
        zone = zones.get(turn.number)
        if not isinstance(zone, Zone):
            return f"turn {turn.number} has no zone, but {zone!r}; use one of {', '.join(map(str, Zone))}"
        if (zone is Zone.FIXED) != turn.is_fixed:
            return f"turn {turn.number} ({turn.role}) is {zone}; instructions are fixed, and nothing else is"
        if zone is Zone.FOLDED and turn.number in unanswered:
            return f"turn {turn.number} is folded, but waits for an answer"
    if (meeting := next(_meetings(room, zones), None)) is not None:
        return f"turn {meeting[1][0].number} is folded, but {_BETWEEN[meeting[1][0].role]}"
    return ""


def override_zones(turns: Sequence[Turn], overrides: TierOverrides) -> dict[int, Zone]:
    """The turns about which a layout has nothing to say: those that are kept, those of which no text stays, and those
    that the provider has summarized."""
    unanswered = unanswered_turns(turns)
    zones = {Tier.KEEP: Zone.VERBATIM, Tier.REFERENCE: Zone.FOLDED, Tier.DROP: Zone.FOLDED}
    decided = {
        turn.number: zones[overrides[turn.number]]
        for turn in turns
        if turn.number in overrides
        and overrides[turn.number] in zones
        and not turn.is_fixed
        and turn.number not in unanswered
    }
    return decided | dict.fromkeys(_summarized_turns(turns), Zone.FOLDED)


def _summarized_turns(turns: Sequence[Turn]) -> list[int]:
    """The turns before the provider's own summary, which it no longer reads."""
    at = next((at for at, turn in enumerate(turns) if turn.messages[0].is_provider_summary), 0)
    return [turn.number for turn in turns[:at] if not turn.is_fixed]


def apply_overrides(zones: dict[int, Zone], room: Room, overrides: TierOverrides) -> ZonedTurns:
    """The zones of a layout with the overrides in them."""
    decided = override_zones(room.turns, overrides)
    if not decided and not overrides:
        return ZonedTurns(zones)
    size_of = {turn.number: size for turn, size in zip(room.turns, room.sizes, strict=True)}
    why = {number: OVERRIDE_REASONS[tier] for number, tier in overrides.items()}
    found = ZonedTurns({**zones, **decided}, why)
    for number, tier in overrides.items():
        if tier is Tier.SUMMARIZE and found.zones[number] is Zone.VERBATIM:
            is_shorter_in_place = size_of[number].least < size_of[number].whole
            found.zones[number] = Zone.PLACED if is_shorter_in_place else Zone.FOLDED
    stay = {number for number, tier in overrides.items() if tier is Tier.KEEP}
    while (meeting := next(_meetings(room, found.zones), None)) is not None:
        _keep_apart(*meeting, found, size_of, overrides, stay)
    return found


def _meetings(room: Room, zones: dict[int, Zone]) -> Iterator[tuple[Turn, list[Turn]]]:
    """Each turn that would be followed by one it must not be followed by, with what the other side said in between.

    Two steps of the agent never follow each other; two messages of the user do where the provider lets them.
    """
    before: Turn | None = None
    between: list[Turn] = []
    for turn in room.turns:
        if zones[turn.number] in _LIVE:
            other = {"assistant": "user", "user": "assistant" if room.takes_turns else ""}.get(turn.role)
            said = [each for each in between if each.role == other]
            if before is not None and said and before.messages[-1].role == turn.role:
                yield before, said
            before, between = turn, []
        else:
            between.append(turn)


def _keep_apart(
    first: Turn,
    between: list[Turn],
    found: ZonedTurns,
    size_of: dict[int, TurnSize],
    overrides: TierOverrides,
    stay: set[int],
) -> None:
    """Keep two steps of the agent, or two messages of the user, apart.

    What is in `stay` is never folded, and what is kept here joins it: else two meetings could undo each other for ever.
    """
    reason = _BETWEEN[between[0].role]
    free = [turn for turn in between if turn.number not in overrides]
    if free or first.number in stay:
        stays = min(free or between, key=lambda turn: size_of[turn.number].whole).number
        stay.add(stays)
        found.zones[stays] = Zone.VERBATIM
        found.why[stays] = f"{found.why[stays]}, but {reason}" if stays in found.why else reason
    else:
        found.zones[first.number] = Zone.FOLDED
        number = between[0].number
        found.why[first.number] = f"goes with turn {number}, {OVERRIDE_REASONS[overrides[number]]}"
