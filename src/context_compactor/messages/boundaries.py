"""What makes a history legal for its provider, and where it may be cut.

This is the one home of these rules: the engine cuts where `legal_cuts` allows, and whatever it is given or
makes passes `find_problems` or goes through `repair`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec import Struct

from context_compactor.messages.dialect import Dialect
from context_compactor.messages.media_rules import find_media_problems
from context_compactor.messages.mending import (
    Mend,
    Repair,
    Step,
    drop_blanks,
    drop_reasoning,
    join_assistants,
    place_systems,
    rename_repeated,
    spell_out_server_blocks,
    start_with_user,
)
from context_compactor.messages.message import Message
from context_compactor.messages.pairing import Pairing, leading_results, owners, pair_results, pending_from
from context_compactor.messages.placing import (
    dangling_reasoning,
    first_speaker,
    has_blank_block,
    is_blank,
    lone_server_blocks,
    misplaced_systems,
    repeated_calls,
)
from context_compactor.messages.settling import settle_results
from context_compactor.messages.turn import split_turns

__all__ = ["Problem", "Repair", "find_problems", "legal_cuts", "repair", "repair_steps"]

MENDS: tuple[Mend, ...] = (
    drop_blanks,
    join_assistants,
    spell_out_server_blocks,
    rename_repeated,
    settle_results,
    drop_reasoning,
    drop_blanks,
    place_systems,
    join_assistants,
    start_with_user,
)
"""Moving results may empty a message, and an emptied one may bring two assistants together: so some come twice."""


class Problem(Struct, frozen=True):
    """One thing a provider would reject: the message's index, the rule's name and what is wrong."""

    index: int
    rule: str
    what: str


def find_problems(messages: Sequence[Message], dialect: Dialect) -> list[Problem]:
    """Everything the provider would reject, by index; empty when the history is legal.

    Calls of the last step that have no result yet are no problem: they are still running.
    """
    pairing = pair_results(messages)
    problems = [*_call_problems(messages, dialect, pairing), *_result_problems(messages, dialect, pairing)]
    problems += [*_empty_problems(messages, dialect), *_order_problems(messages, dialect)]
    if dialect.name == "anthropic":
        problems += [Problem(at, "media", what) for at, what in find_media_problems(messages)]
    return sorted(problems, key=lambda problem: problem.index)


def repair(messages: Sequence[Message], dialect: Dialect) -> tuple[list[Message], list[Repair]]:
    """The history made legal with the least change, and what was changed, by index in the history as given.

    Messages that were legal stay the same objects. Media problems are left as they are: only the engine
    knows what it may do without.
    """
    steps, log = repair_steps(messages, dialect)
    return [message for _, message in steps], log


def repair_steps(messages: Sequence[Message], dialect: Dialect) -> tuple[list[Step], list[Repair]]:
    """The same with the index of the message that each one comes from; of several joined, the first."""
    steps = list(enumerate(messages))
    if all(problem.rule == "media" for problem in find_problems(messages, dialect)):
        return steps, []
    log: list[Repair] = []
    for mend in MENDS:
        steps = mend(steps, dialect, log)
    return steps, sorted(log, key=lambda entry: entry.index)


def legal_cuts(messages: Sequence[Message]) -> list[int]:
    """The indexes before which the history may be cut: between two turns, and never between call and result."""
    opened = [0] * (len(messages) + 1)
    for call, result in pair_results(messages).answers.items():
        opened[call.message + 1] += 1
        opened[result.message + 1] -= 1
    crossing = list(accumulate(opened))
    ends = accumulate((len(turn.messages) for turn in split_turns(messages)), initial=0)
    return [at for at in ends if not crossing[at]]


def _call_problems(messages: Sequence[Message], dialect: Dialect, pairing: Pairing) -> Iterator[Problem]:
    pending = pending_from(messages, whole_run=dialect.name == "openai-responses")
    for place, call in pairing.calls.items():
        if place not in pairing.answers and place.message < pending:
            yield Problem(place.message, "missing-result", f"the call {call.id} has no result")
    for place in repeated_calls(pairing, dialect):
        yield Problem(place.message, "repeated-id", f"the id {pairing.calls[place].id} names two calls")


def _result_problems(messages: Sequence[Message], dialect: Dialect, pairing: Pairing) -> Iterator[Problem]:
    for place, repeats in pairing.loose.items():
        if repeats is None:
            yield Problem(place.message, "orphan-result", "a result whose call is not in the history")
        else:
            yield Problem(place.message, "repeated-result", "one result too many for a call")
    behind = owners(messages)
    leading = [leading_results(message) for message in messages]
    for call, result in pairing.answers.items():
        if dialect.name != "openai-responses" and behind[result.message] != call.message:
            yield Problem(result.message, "late-result", "a result that is not directly behind its call")
        elif dialect.name == "anthropic" and result.part >= leading[result.message]:
            yield Problem(result.message, "block-order", "a result behind other blocks of its message")


def _empty_problems(messages: Sequence[Message], dialect: Dialect) -> Iterator[Problem]:
    for at, message in enumerate(messages):
        if is_blank(message, dialect, is_last=at == len(messages) - 1):
            yield Problem(at, "empty", "a message without content")
        elif has_blank_block(message, dialect):
            yield Problem(at, "empty", "an empty block")


def _order_problems(messages: Sequence[Message], dialect: Dialect) -> Iterator[Problem]:
    for at in dangling_reasoning(messages, dialect):
        yield Problem(at, "reasoning", "reasoning without the item it belongs to")
    for at, _ in lone_server_blocks(messages, dialect):
        yield Problem(at, "server-tool", "a server tool's call without its result, or the other way round")
    for at in misplaced_systems(messages, dialect):
        yield Problem(at, "system", "a system message where the provider takes none")
    if dialect.name == "openai-responses":
        return
    for at in range(1, len(messages)):
        if messages[at].role == messages[at - 1].role == "assistant":
            yield Problem(at, "alternation", "two assistant messages in a row")
    first = first_speaker(messages)
    if first < len(messages) and messages[first].role == "assistant":
        yield Problem(first, "first-user", "the conversation does not begin with a user message")
