"""The repairs of everything but results, one function for each rule.

A step is a message with the index it had in the history as given. A mend takes all steps, returns them
changed where it must, and writes down what it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from msgspec import Struct

from context_compactor.messages.dialect import Dialect
from context_compactor.messages.frames import SERVER_TOOL, START, SYSTEM_MESSAGE
from context_compactor.messages.message import Message, Opaque, Text
from context_compactor.messages.pairing import Pairing, Place, pair_results, pending_from
from context_compactor.messages.placing import (
    dangling_reasoning,
    first_speaker,
    has_blank_block,
    is_blank,
    lone_server_blocks,
    misplaced_systems,
    repeated_calls,
)


class Repair(Struct, frozen=True):
    """One change that made a history legal: the message's index in the history as given, and what was done."""

    index: int
    what: str


Step = tuple[int, Message]
Mend = Callable[[list[Step], Dialect, list[Repair]], list[Step]]


def messages_of(steps: list[Step]) -> list[Message]:
    """The messages without their indexes."""
    return [message for _, message in steps]


def drop_blanks(steps: list[Step], dialect: Dialect, log: list[Repair]) -> list[Step]:
    """Remove messages without content, and empty blocks from those that have some."""
    kept: list[Step] = []
    for at, (index, message) in enumerate(steps):
        if is_blank(message, dialect, is_last=at == len(steps) - 1):
            log.append(Repair(index, "removed a message without content"))
            continue
        if not has_blank_block(message, dialect):
            kept.append((index, message))
            continue
        filled = [at for at, part in enumerate(message.parts) if not isinstance(part, Text) or part.text]
        kept.append((index, dialect.pick(message, filled)))
        log.append(Repair(index, "removed an empty block"))
    return kept


def spell_out_server_blocks(steps: list[Step], dialect: Dialect, log: list[Repair]) -> list[Step]:
    """Turn a server tool's call or result that lost its other half into words."""
    edits: dict[int, dict[int, str | None]] = {}
    for at, number in lone_server_blocks(messages_of(steps), dialect):
        index, message = steps[at]
        part = message.parts[number]
        edits.setdefault(at, {})[number] = f"{SERVER_TOOL}\n{part.text if isinstance(part, Opaque) else ''}"
        log.append(Repair(index, "turned a server tool's block without its other half into words"))
    return [
        (index, dialect.edit(message, edits[at]) or message if at in edits else message)
        for at, (index, message) in enumerate(steps)
    ]


def join_assistants(steps: list[Step], dialect: Dialect, log: list[Repair]) -> list[Step]:
    """Make assistant messages in a row one message.

    Two stay apart when the first has calls that nobody answered: their stand-in results will come between.
    """
    if dialect.name == "openai-responses":
        return steps
    messages = messages_of(steps)
    unanswered = _unanswered(pair_results(messages), messages)
    pending = pending_from(messages, whole_run=False)
    groups: list[list[Step]] = []
    for at, (index, message) in enumerate(steps):
        follows = at > 0 and message.role == messages[at - 1].role == "assistant"
        if not follows or (at - 1 in unanswered and at < pending) or not _can_join(messages[at - 1], message):
            groups.append([(index, message)])
        else:
            groups[-1].append((index, message))
            log.append(Repair(index, "joined with the assistant message before it"))
    return [_as_one(group, dialect) for group in groups]


def _can_join(first: Message, second: Message) -> bool:
    """A legacy function call must be the only call of its message."""
    if not first.calls or not second.calls:
        return True
    return not first.raw.get("function_call") and not second.raw.get("function_call")


def _as_one(group: list[Step], dialect: Dialect) -> Step:
    return group[0][0], join_all(messages_of(group), dialect)


def join_all(messages: Sequence[Message], dialect: Dialect) -> Message:
    """Several messages of one role as one; by halves, so that many cost little more than few."""
    if len(messages) == 1:
        return messages[0]
    middle = len(messages) // 2
    return dialect.join(join_all(messages[:middle], dialect), join_all(messages[middle:], dialect))


def _unanswered(pairing: Pairing, messages: list[Message]) -> set[int]:
    """Messages that call, without one result."""
    answered = {call.message for call in pairing.answers}
    return {at for at, message in enumerate(messages) if message.calls and at not in answered}


def rename_repeated(steps: list[Step], dialect: Dialect, log: list[Repair]) -> list[Step]:
    """Give calls that share an id, and their results, ids of their own."""
    pairing = pair_results(messages_of(steps))
    taken = {call.id for call in pairing.calls.values()}
    names: dict[str, Iterator[str]] = {}
    renamed: dict[int, dict[int, str]] = {}
    for place in repeated_calls(pairing, dialect):
        old = pairing.calls[place].id
        new = next(name for name in names.setdefault(old, _suffixed(old)) if name not in taken)
        both: list[Place] = [place, *([pairing.answers[place]] if place in pairing.answers else [])]
        for message, part in both:
            renamed.setdefault(message, {})[part] = new
        log.append(Repair(steps[place.message][0], f"the id {old} named two calls; the later one is now {new}"))
    return [
        (index, dialect.rename(message, renamed[at]) if at in renamed else message)
        for at, (index, message) in enumerate(steps)
    ]


def _suffixed(name: str) -> Iterator[str]:
    return (f"{name}_{number}" for number in count(2))


def drop_reasoning(steps: list[Step], dialect: Dialect, log: list[Repair]) -> list[Step]:
    """Remove reasoning whose reply is gone."""
    dangling = set(dangling_reasoning(messages_of(steps), dialect))
    log += [Repair(steps[at][0], "removed reasoning without the item it belongs to") for at in sorted(dangling)]
    return [step for at, step in enumerate(steps) if at not in dangling]


def place_systems(steps: list[Step], dialect: Dialect, log: list[Repair]) -> list[Step]:
    """Turn system messages where none may be into words of the user, joined to the user's own beside them."""
    misplaced = set(misplaced_systems(messages_of(steps), dialect))
    groups: list[list[Step]] = []
    for at, (index, message) in enumerate(steps):
        spoken = dialect.user_text(f"{SYSTEM_MESSAGE}\n{message.text}") if at in misplaced else message
        if at in misplaced:
            log.append(Repair(index, "turned a system message into a user message: the provider takes none here"))
        beside = at in misplaced or at - 1 in misplaced
        if beside and groups and spoken.role == groups[-1][-1][1].role == "user":
            groups[-1].append((index, spoken))
        else:
            groups.append([(index, spoken)])
    return [_as_one(group, dialect) for group in groups]


def start_with_user(steps: list[Step], dialect: Dialect, log: list[Repair]) -> list[Step]:
    """Put a user message first when the conversation begins with the assistant."""
    first = first_speaker(messages_of(steps))
    if dialect.name == "openai-responses" or first == len(steps) or steps[first][1].role == "user":
        return steps
    log.append(Repair(steps[first][0], "put a user message first: the conversation began with the assistant"))
    return [*steps[:first], (steps[first][0], dialect.user_text(START)), *steps[first:]]
