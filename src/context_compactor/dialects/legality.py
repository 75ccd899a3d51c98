"""What makes a history legal for its provider: which result answers which call, and where a message may stand."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from context_compactor.dialects.dialect import Dialect, Raw
from context_compactor.dialects.messages import NO_RESULT, Message, Opaque, Text, Thinking, ToolCall, ToolResult


class PartPosition(NamedTuple):
    """A part of a history: the message's index and the part's index in it."""

    message: int
    part: int


class Pairing(Struct, frozen=True):
    """Calls and results of a history, all by place in the order of the history.

    `answers` leads from a call to its result. `loose` results answer nothing; one that comes after another
    result of the same call, or before the real one, leads to that.
    """

    calls: Mapping[PartPosition, ToolCall]
    results: Mapping[PartPosition, ToolResult]
    answers: Mapping[PartPosition, PartPosition]
    loose: Mapping[PartPosition, PartPosition | None]


class _OpenCalls:
    """The calls of one id while a history is read."""

    def __init__(self) -> None:
        self.open: list[deque[PartPosition]] = []
        self.last: PartPosition | None = None

    def add(self, place: PartPosition) -> None:
        if not self.open or self.open[-1][-1].message != place.message:
            self.open.append(deque())
        self.open[-1].append(place)

    def take(self) -> PartPosition | None:
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
    calls: dict[PartPosition, ToolCall] = {}
    results: dict[PartPosition, ToolResult] = {}
    answers: dict[PartPosition, PartPosition] = {}
    loose: dict[PartPosition, PartPosition | None] = {}
    by_id: dict[str, _OpenCalls] = {}
    for place, part in _calls_and_results(messages):
        if isinstance(part, ToolCall):
            calls[place] = part
            by_id.setdefault(part.id, _OpenCalls()).add(place)
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


def result_owners(messages: Sequence[Message]) -> list[int]:
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


def _calls_and_results(messages: Sequence[Message]) -> Iterator[tuple[PartPosition, ToolCall | ToolResult]]:
    for index, message in enumerate(messages):
        for at, part in enumerate(message.parts):
            if isinstance(part, (ToolCall, ToolResult)):
                yield PartPosition(index, at), part


def first_speaker(messages: Sequence[Message]) -> int:
    """The index of the first message that is neither system nor developer text."""
    for at, message in enumerate(messages):
        if message.role not in ("system", "developer"):
            return at
    return len(messages)


def misplaced_systems(messages: Sequence[Message], dialect: Dialect) -> Iterator[int]:
    """System messages where the provider takes none.

    OpenAI takes them anywhere. For Anthropic one may lead the list (clients move it into the `system` field),
    or follow a user message and be the last or followed by the assistant.
    """
    if dialect.name != "anthropic":
        return
    for at in range(first_speaker(messages), len(messages)):
        if messages[at].role == "system":
            next_role = messages[at + 1].role if at + 1 < len(messages) else "assistant"
            if messages[at - 1].role != "user" or next_role != "assistant":
                yield at


def is_blank_message(message: Message, dialect: Dialect, is_last: bool) -> bool:
    """Whether a message holds nothing its provider would take as content."""
    if dialect.name == "openai-chat":
        return not message.parts and not isinstance(message.raw.get("content"), str)
    if dialect.name != "anthropic" or (is_last and message.role == "assistant"):
        return False
    return all(isinstance(part, Text) and (not part.text or part.text.isspace()) for part in message.parts)


def has_blank_block(message: Message, dialect: Dialect) -> bool:
    """Whether a message has an empty block or list that its provider rejects."""
    if dialect.name == "openai-chat":
        return bool(message.raw.get("tool_calls") == [])
    return dialect.name == "anthropic" and any(isinstance(part, Text) and not part.text for part in message.parts)


def lone_server_blocks(messages: Sequence[Message], dialect: Dialect) -> Iterator[PartPosition]:
    """Calls of Anthropic's own tools without their result, and the other way round.

    In the last message a call may still be without: the provider goes on with it when asked again.
    """
    if dialect.name != "anthropic":
        return
    open_calls: dict[str, PartPosition] = {}
    for place, block in _server_blocks(messages):
        if "tool_use_id" in block:
            if open_calls.pop(str(block["tool_use_id"]), None) is None:
                yield place
            continue
        if str(block.get("id")) in open_calls:
            yield open_calls[str(block.get("id"))]
        open_calls[str(block.get("id"))] = place
    yield from (place for place in open_calls.values() if place.message != len(messages) - 1)


def _server_blocks(messages: Sequence[Message]) -> Iterator[tuple[PartPosition, Raw]]:
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, Opaque) and part.type.endswith(("_tool_use", "_tool_result")):
                yield PartPosition(at, number), message.raw["content"][number]


def repeated_calls(pairing: Pairing, dialect: Dialect) -> Iterator[PartPosition]:
    """Calls whose id was used before. Chat pairs by position, so there only one message's ids must differ."""
    seen: set[tuple[int, str]] = set()
    for place, call in pairing.calls.items():
        scope = place.message if dialect.name == "openai-chat" else -1
        if (scope, call.id) in seen:
            yield place
        seen.add((scope, call.id))


def dangling_reasoning(messages: Sequence[Message], dialect: Dialect) -> Iterator[int]:
    """Responses reasoning that no item of the same reply follows. At the very end the reply is under way."""
    if dialect.name != "openai-responses":
        return
    follower = "assistant"
    for at in range(len(messages) - 1, -1, -1):
        if not is_reasoning(messages[at]):
            follower = messages[at].role
        elif follower != "assistant":
            yield at


def is_reasoning(message: Message) -> bool:
    """Whether a message is thinking and nothing else."""
    return bool(message.parts) and all(isinstance(part, Thinking) for part in message.parts)
