"""Which result answers which call, and which calls are still waiting for theirs."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from context_compactor.messages.frames import NO_RESULT
from context_compactor.messages.message import Message, ToolCall, ToolResult


class Place(NamedTuple):
    """A part of a history: the message's index and the part's index in it."""

    message: int
    part: int


class Pairing(Struct, frozen=True):
    """Calls and results of a history, all by place in the order of the history.

    `answers` leads from a call to its result. `loose` results answer nothing; one that comes after another
    result of the same call, or before the real one, leads to that.
    """

    calls: Mapping[Place, ToolCall]
    results: Mapping[Place, ToolResult]
    answers: Mapping[Place, Place]
    loose: Mapping[Place, Place | None]


class _Calls:
    """The calls of one id while a history is read."""

    def __init__(self) -> None:
        self.open: list[deque[Place]] = []
        self.last: Place | None = None

    def add(self, place: Place) -> None:
        if not self.open or self.open[-1][-1].message != place.message:
            self.open.append(deque())
        self.open[-1].append(place)

    def take(self) -> Place | None:
        """The first open call of the nearest message that has one."""
        if not self.open:
            return None
        self.last = self.open[-1].popleft()
        if not self.open[-1]:
            self.open.pop()
        return self.last


def pair_results(messages: Sequence[Message]) -> Pairing:
    """Give each result to the nearest earlier message with an open call of its id, in the order of the calls.

    A stand-in makes room for the real result when that comes after all.
    """
    calls: dict[Place, ToolCall] = {}
    results: dict[Place, ToolResult] = {}
    answers: dict[Place, Place] = {}
    loose: dict[Place, Place | None] = {}
    by_id: dict[str, _Calls] = {}
    for place, part in _calls_and_results(messages):
        if isinstance(part, ToolCall):
            calls[place] = part
            by_id.setdefault(part.id, _Calls()).add(place)
            continue
        results[place] = part
        known = by_id.get(part.call_id)
        call = known.take() if known else None
        if call:
            answers[call] = place
        elif known is None or known.last is None:
            loose[place] = None
        elif results[answers[known.last]].text == NO_RESULT:
            loose[answers[known.last]] = place
            answers[known.last] = place
        else:
            loose[place] = answers[known.last]
    return Pairing(calls, results, answers, loose)


def pending_from(messages: Sequence[Message], whole_run: bool, words: Container[int] = ()) -> int:
    """The index from which on calls may still be open: the last step, when only results follow it.

    With `whole_run` all assistant messages in a row are one step, as in the Responses format. `words` are
    indexes of results that are about to become a user's words.
    """
    at = len(messages)
    while at and at - 1 not in words and leading_results(messages[at - 1]) == len(messages[at - 1].parts) > 0:
        at -= 1
    start = at
    while start and messages[start - 1].role == "assistant" and (whole_run or start == at):
        start -= 1
    return start if start < at else len(messages)


def owners(messages: Sequence[Message]) -> list[int]:
    """For each message the index of the one its results must answer: the last before a run of tool messages."""
    found: list[int] = []
    for at in range(len(messages)):
        in_run = at > 0 and messages[at - 1].role == "tool"
        found.append(found[at - 1] if in_run else at - 1)
    return found


def leading_results(message: Message) -> int:
    """How many results come before any other part."""
    for count, part in enumerate(message.parts):
        if not isinstance(part, ToolResult):
            return count
    return len(message.parts)


def _calls_and_results(messages: Sequence[Message]) -> Iterator[tuple[Place, ToolCall | ToolResult]]:
    for index, message in enumerate(messages):
        for at, part in enumerate(message.parts):
            if isinstance(part, (ToolCall, ToolResult)):
                yield Place(index, at), part
