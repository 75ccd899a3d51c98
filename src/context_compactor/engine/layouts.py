"""Which turns stay verbatim, which are shortened in place and which are folded into the record."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct, structs

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Media, Thinking, ToolResult
from context_compactor.dialects.turns import Turn
from context_compactor.engine.tiers import interjected_turn, unanswered_turns
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
    fixed = sum(size.whole for turn, size in pairs if turn.is_instruction or turn.number in kept)
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

    `decided` are turns whose zone is settled already; what they take is no longer among the tokens.
    """

    turns: Sequence[Turn]
    sizes: Sequence[TurnSize]
    tokens: int
    shares: Shares
    decided: dict[int, Zone] = {}

    @property
    def share(self) -> float:
        """How much of what there is may stay."""
        return self.tokens / max(sum(size.whole for turn, size in self._open()), 1)

    def _open(self) -> list[tuple[Turn, TurnSize]]:
        pairs = zip(self.turns, self.sizes, strict=True)
        return [(turn, size) for turn, size in pairs if turn.number not in self.decided]

    def sized(self) -> list[tuple[Turn, TurnSize]]:
        """The turns that can be moved, with their sizes."""
        return [(turn, size) for turn, size in self._open() if not turn.is_instruction]


def assign_zones(room: Room) -> dict[int, Zone]:
    """The zone of every turn, by its number: the newest within their shares, the rest folded.

    Words that wait for an answer beside results may take half of the room, with the results shortened.
    """
    shares = room.shares
    zones = {turn.number: Zone.FIXED if turn.is_instruction else Zone.FOLDED for turn in room.turns}
    pinned, spoken = unanswered_turns(room.turns), interjected_turn(room.turns)
    recent_room, tail_room, placed_room = (
        room.tokens * share for share in (shares.recent_tail, shares.tail, shares.placed)
    )
    recent = 0
    for turn, size in reversed(room.sized()):
        recent += turn.number not in pinned
        is_recent = recent <= shares.recent
        least_room = room.tokens / 2 if turn.number in spoken else 0.0
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
        spoken = {turn.number for turn, size in room.sized() if size.least <= room.tokens / 2} & interjected_turn(
            room.turns
        )
        return {turn.number: self._zone(turn, pinned, spoken) for turn in room.turns}

    def _zone(self, turn: Turn, pinned: set[int], spoken: set[int]) -> Zone:
        if turn.is_instruction:
            return Zone.FIXED
        if turn.number in spoken:
            return Zone.PLACED
        return Zone.VERBATIM if turn.number in pinned else Zone.FOLDED
