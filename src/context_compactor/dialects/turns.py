"""Turns, the smallest spans of a history that are kept or removed whole, and the ids by which their originals are
recalled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal
from zlib import crc32

from msgspec import Struct

from context_compactor.dialects.messages import NO_RESULT, Message, Part, ToolCall, ToolResult

_ID = r"(?:turn|tool|file|agent)_\d{3,}"
REFERENCE_PATTERN = re.compile(rf"\b{_ID}\b")

# What is archived beside a conversation is numbered from here, far behind any call of it.
FIRST_EXTRA_NUMBER = 1_000_001
_EXTRA_NUMBERS = 900_000

ReferencePrefix = Literal["tool", "file", "agent", "turn"]


def reference_id(prefix: ReferencePrefix, number: int) -> str:
    """The id under which an original is recalled."""
    return f"{prefix}_{number:03d}"


def text_reference(text: str) -> str:
    """The id of a text that is archived beside a conversation, the same whenever it is."""
    return reference_id("agent", FIRST_EXTRA_NUMBER + crc32(text.encode("utf-8", "replace")) % _EXTRA_NUMBERS)


_RECALL = re.compile(rf'(\.|:) recall\("({_ID})"\)(?=[\];])')
_PLAIN_MARK = re.compile(rf"\[(?:archived {_ID}: |… [^\]]* {_ID}[\];])")


def without_recall(text: str) -> str:
    """What stands for originals without the call that returns them, for a reader who cannot make it; the ids stay."""
    return _RECALL.sub(lambda mark: "" if mark[1] == "." else f": {mark[2]}", text)


def names_original(text: str) -> bool:
    """Whether a text holds a mark that stands for an original, with or without the call that returns it."""
    return "recall(" in text or _PLAIN_MARK.search(text) is not None


def says_left_out(text: str, ref: str) -> bool:
    """Whether a text says that something of it was left out which the original of this id has."""
    return f'left out: recall("{ref}")' in text or f"left out: {ref}]" in text or f"left out: {ref};" in text


class ToolUse(Struct, frozen=True):
    """A tool call and its result. `number` counts the calls of a session and names the reference."""

    number: int
    call: ToolCall | None
    result: ToolResult | None

    @property
    def is_lost(self) -> bool:
        """Whether its result only stands in for one that was never recorded: nobody knows how the call ended."""
        return self.result is not None and self.result.text == NO_RESULT


class Turn(Struct, frozen=True):
    """A run of messages that stands or falls together. `number` counts from 1; instructions have none above 0."""

    number: int
    messages: tuple[Message, ...]
    exchanges: tuple[ToolUse, ...] = ()

    @property
    def role(self) -> str:
        """Who opened the turn."""
        return self.messages[0].role

    @property
    def is_instruction(self) -> bool:
        """The system and developer text that a conversation begins with."""
        return self.role in ("system", "developer")

    @property
    def is_fixed(self) -> bool:
        """Instructions, and the summary that a provider wrote: never touched, and in front of everything else."""
        return self.is_instruction or self.messages[0].is_provider_summary

    def parts(self) -> Iterator[tuple[int, int, Message, Part]]:
        """Every part with its message's and its own index."""
        for at, message in enumerate(self.messages):
            for index, part in enumerate(message.parts):
                yield at, index, message, part


def split_turns(
    messages: Sequence[Message],
    first_turn: int = 1,
    first_call: int = 1,
    earlier: Sequence[tuple[int, int]] = (),
    earlier_from: int = 0,
) -> list[Turn]:
    """Group messages into turns and number them and their calls, starting where the session stands.

    The first ones from the message `earlier_from` on may be `earlier` turns, each with the numbers of itself and of
    its first call.
    """
    turns: list[Turn] = []
    next_turn, next_call, next_instruction = first_turn, first_call, 0
    known = iter(earlier)
    at = 0
    for group in _groups(messages):
        is_new, at = at < earlier_from, at + len(group)
        if group[0].role in ("system", "developer") or group[0].is_provider_summary:
            turns.append(Turn(next_instruction, tuple(group)))
            next_instruction -= 1
            continue
        number = None if is_new else next(known, None)
        if number is not None:
            turns.append(Turn(number[0], tuple(group), _pair(group, number[1])))
            continue
        exchanges = _pair(group, next_call)
        turns.append(Turn(next_turn, tuple(group), exchanges))
        next_turn += 1
        next_call += len(exchanges)
    return turns


def _groups(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Runs of messages. A system message in the middle belongs to what it follows; each that leads is a turn."""
    group: list[Message] = []
    answered = _answered(messages)
    end = -1
    for at, message in enumerate(messages):
        if group and at > end and not _continues(group, message):
            yield group
            group = []
        group.append(message)
        end = max(end, answered[at])
    if group:
        yield group


def _answered(messages: Sequence[Message]) -> list[int]:
    """For each message the index of the one that holds the last result of its calls; its own when there is none.

    A provider may let other items stand between a call and its result: they belong to the turn as well.
    """
    results: dict[str, int] = {}
    found = [0] * len(messages)
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        found[at] = max((results.pop(call.id, at) for call in message.calls), default=at)
        results.update((result.call_id, at) for result in message.results)
    return found


def _continues(group: list[Message], message: Message) -> bool:
    first = group[0]
    if message.role in ("system", "developer"):
        return first.role not in ("system", "developer") and not first.is_provider_summary
    if message.role == "tool" or message.results:
        return first.role in ("assistant", "tool") or bool(first.results)
    if message.role == "assistant" and not (message.is_provider_summary or first.is_provider_summary):
        last = group[-1]
        return last.role == "assistant" and first.role == "assistant" and not last.results
    return False


def _pair(group: Sequence[Message], number: int) -> tuple[ToolUse, ...]:
    results = {result.call_id: result for message in group for result in message.results}
    exchanges: list[ToolUse] = []
    for message in group:
        for call in message.calls:
            exchanges.append(ToolUse(number + len(exchanges), call, results.pop(call.id, None)))
    for result in results.values():
        exchanges.append(ToolUse(number + len(exchanges), None, result))
    return tuple(exchanges)


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
