"""Where each turn of a history begins, found out piece by piece, so that any few of a hundred thousand can be read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from msgspec import Struct

from context_compactor.messages.message import Message
from context_compactor.messages.turn import Turn, split_turns

# What comes next may belong to one of the last turns: these are looked at again.
_REOPENED = 8


class Span(Struct, frozen=True):
    """Messages that hold some turns whole: from one index up to another, and what to number and skip there."""

    start: int
    end: int
    first_turn: int
    first_call: int
    skip: int
    count: int

    def turns(self, messages: Sequence[Message]) -> list[Turn]:
        """The turns that were asked for, of the messages of this span."""
        found = split_turns(messages, self.first_turn, self.first_call)
        return found[self.skip : self.skip + self.count]


class TurnIndex:
    """Knows the turns of the messages it was shown. It keeps four numbers for each and no text."""

    def __init__(self) -> None:
        self.messages = 0
        """How many messages it was shown."""
        self._before = array("q")
        self._turn = array("q")
        self._call = array("q")
        self._is_clean = array("b")

    def __len__(self) -> int:
        return len(self._before)

    @property
    def wanted(self) -> int:
        """The index of the message from which on to show it more: some that it has seen are needed again."""
        return self._before[self._open()] if self._before else 0

    def _open(self) -> int:
        return self._clean_from(max(len(self) - _REOPENED, 0))

    def _clean_from(self, at: int) -> int:
        while not self._is_clean[at]:
            at -= 1
        return at

    def take(self, messages: Sequence[Message]) -> None:
        """See messages, those from `wanted` on; the new ones behind those that were seen before."""
        at, turn, call = 0, 1, 1
        if self._before:
            at = self._open()
            turn, call = self._turn[at], self._call[at]
        start = self._before[at] if self._before else 0
        for kept in (self._before, self._turn, self._call, self._is_clean):
            del kept[at:]
        places = {id(message): start + index for index, message in enumerate(messages)}
        before = start
        for found in split_turns(messages, turn, call):
            self._before.append(before)
            self._turn.append(turn)
            self._call.append(call)
            # Instructions may stand between a call and its result; the turn around them begins before them.
            self._is_clean.append(min(places[id(each)] for each in found.messages) >= before)
            before += len(found.messages)
            turn += not found.is_instruction
            call += len(found.exchanges)
        self.messages = start + len(messages)

    def span(self, first: int, count: int) -> Span:
        """The messages to read for these turns."""
        first = min(max(first, 0), len(self))
        count = min(max(count, 0), len(self) - first)
        if not count:
            return Span(0, 0, 1, 1, 0, 0)
        start, end = self._clean_from(first), first + count
        while end < len(self) and not self._is_clean[end]:
            end += 1
        until = self._before[end] if end < len(self) else self.messages
        return Span(self._before[start], until, self._turn[start], self._call[start], first - start, count)
