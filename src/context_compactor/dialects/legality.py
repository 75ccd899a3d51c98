"""What makes a history legal for its provider: which result answers which call, the rules that several providers have,
what of a history breaks the rules of its dialect, and where it may be cut. `repair` makes a history legal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import NO_RESULT, Message, ToolCall, ToolResult
from context_compactor.dialects.turns import split_turns


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


def pending_from(messages: Sequence[Message], dialect: Dialect, words: Container[int] = ()) -> int:
    """The index from which on calls may still be open: the last step, when only results follow it.

    `words` are indexes of results that are about to become a user's words.
    """
    at = len(messages)
    while at and at - 1 not in words and leading_results(messages[at - 1]) == len(messages[at - 1].parts) > 0:
        at -= 1
    start = at
    while start and messages[start - 1].role == "assistant" and (start == at or not dialect.reply_is_one_message):
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


class Violation(Struct, frozen=True):
    """One thing a provider would reject: the message's index, the rule's name and what is wrong."""

    index: int
    rule: str
    what: str


Rule = Callable[[Sequence[Message], Pairing, Dialect], Iterator[Violation]]


def find_violations(
    messages: Sequence[Message], dialect: Dialect, before: Sequence[Message] | None = None
) -> list[Violation]:
    """Everything the provider would reject, by index; empty when the history is legal.

    Calls of the last step that have no result yet are no problem: they are still running. `before` is the history as
    it was when the reasoning in `messages` was produced, where that is known.
    """
    pairing = pair_results(messages)
    rules = (missing_results, repeated_ids, loose_results, *dialect.rules)
    found = [problem for rule in rules for problem in rule(messages, pairing, dialect)]
    if before is not None:
        found.extend(_outdated(before, messages, dialect))
    return sorted(found, key=lambda problem: problem.index)


def _outdated(before: Sequence[Message], after: Sequence[Message], dialect: Dialect) -> Iterator[Violation]:
    """Reasoning, and items that need it, which came with other messages in front of them."""
    for at, (message, kept) in enumerate(zip(after, dialect.detach(before, after), strict=True)):
        if kept is not message and (kept is None or kept.raw != message.raw):
            yield Violation(at, "thinking", "reasoning, or an id that needs it, though something before it has changed")


def missing_results(messages: Sequence[Message], pairing: Pairing, dialect: Dialect) -> Iterator[Violation]:
    """Calls without a result, but for those of the last step."""
    pending = pending_from(messages, dialect)
    for place, call in pairing.calls.items():
        if place not in pairing.answers and place.message < pending:
            yield Violation(place.message, "missing-result", f"the call {call.id} has no result")


def repeated_ids(_messages: Sequence[Message], pairing: Pairing, dialect: Dialect) -> Iterator[Violation]:
    """Calls whose id was used before."""
    for place in repeated_calls(pairing, dialect):
        yield Violation(place.message, "repeated-id", f"the id {pairing.calls[place].id} names two calls")


def loose_results(_messages: Sequence[Message], pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    """Results that answer nothing."""
    for place, repeats in pairing.loose.items():
        if repeats is None:
            yield Violation(place.message, "orphan-result", "a result whose call is not in the history")
        else:
            yield Violation(place.message, "repeated-result", "one result too many for a call")


def late_results(messages: Sequence[Message], pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    """Results that are not directly behind the message which calls."""
    owners = result_owners(messages)
    for call, result in pairing.answers.items():
        if owners[result.message] != call.message:
            yield Violation(result.message, "late-result", "a result that is not directly behind its call")


def blank_messages(messages: Sequence[Message], _pairing: Pairing, dialect: Dialect) -> Iterator[Violation]:
    """Messages and blocks without content."""
    for at, message in enumerate(messages):
        if dialect.is_blank(message, is_last=at == len(messages) - 1):
            yield Violation(at, "empty", "a message without content")
        elif dialect.has_blank_block(message):
            yield Violation(at, "empty", "an empty block")


def assistants_in_a_row(messages: Sequence[Message], _pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    """Assistant messages that follow one of their own."""
    for at in range(1, len(messages)):
        if messages[at].role == messages[at - 1].role == "assistant":
            yield Violation(at, "alternation", "two assistant messages in a row")


def assistant_first(messages: Sequence[Message], _pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    """A conversation that the assistant begins."""
    first = first_speaker(messages)
    if first < len(messages) and messages[first].role == "assistant":
        yield Violation(first, "first-user", "the conversation does not begin with a user message")


def repeated_calls(pairing: Pairing, dialect: Dialect) -> Iterator[PartPosition]:
    """Calls whose id was used before, in the history or in their message."""
    seen: set[tuple[int, str]] = set()
    for place, call in pairing.calls.items():
        scope = -1 if dialect.has_unique_call_ids else place.message
        if (scope, call.id) in seen:
            yield place
        seen.add((scope, call.id))


def legal_cuts(messages: Sequence[Message]) -> list[int]:
    """The indexes before which the history may be cut: between two turns, and never between call and result."""
    opened = [0] * (len(messages) + 1)
    for call, result in pair_results(messages).answers.items():
        opened[call.message + 1] += 1
        opened[result.message + 1] -= 1
    crossing = list(accumulate(opened))
    ends = accumulate((len(turn.messages) for turn in split_turns(messages)), initial=0)
    return [at for at in ends if not crossing[at]]
