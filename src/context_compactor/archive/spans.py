"""Which of the messages that went in make up which turn, whatever a repair or an earlier record did to them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from context_compactor.messages.message import Message
from context_compactor.messages.turn import Turn


def turn_spans(turns: Sequence[Turn], steps: Sequence[tuple[int, Message]], given: int) -> dict[int, tuple[int, int]]:
    """For each turn the index of its first message and the one behind its last, among so many that were given.

    Empty when there is no turn, or messages had to change places: then no turn is a run of what was given.
    """
    places = {id(message): place for place, message in steps}
    starts = [(_start(turn, places), turn.number) for turn in turns]
    known = [(start, number) for start, number in starts if start is not None]
    if not known or any(before >= after for (before, _), (after, _) in pairwise(known)):
        return {}
    ends = [start for start, _ in known[1:]] + [given]
    return {number: (start, end) for (start, number), end in zip(known, ends, strict=True)}


def _start(turn: Turn, places: dict[int, int]) -> int | None:
    found = [places[id(message)] for message in turn.messages if id(message) in places]
    return min(found, default=None)
