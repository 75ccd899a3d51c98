"""Rules and repairs of the providers that are strict about order: results are the first blocks of the user message
behind their call, instructions come before the conversation, and some want user and assistant to take turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.legality import (
    Pairing,
    PartPosition,
    Violation,
    first_speaker,
    leading_results,
    result_owners,
)
from context_compactor.dialects.messages import SYSTEM_MESSAGE, Message, ToolResult
from context_compactor.dialects.repair import (
    MOVED,
    IndexedMessage,
    Repair,
    ResultPlacement,
    join_all,
    joined_step,
    without_indexes,
)


def results_behind_blocks(messages: Sequence[Message], pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    """Results that are not the first blocks of the message behind their call."""
    owners = result_owners(messages)
    for call, result in pairing.answers.items():
        if owners[result.message] == call.message and result.part >= leading_results(messages[result.message]):
            yield Violation(result.message, "block-order", "a result behind other blocks of its message")


def late_systems(messages: Sequence[Message], _pairing: object, _dialect: Dialect) -> Iterator[Violation]:
    """System messages behind the beginning, where the provider takes none."""
    for at in range(first_speaker(messages), len(messages)):
        if messages[at].role == "system":
            yield Violation(at, "system", "a system message behind the beginning of the conversation")


def users_in_a_row(messages: Sequence[Message], _pairing: object, _dialect: Dialect) -> Iterator[Violation]:
    """User messages that follow one of their own."""
    for at in range(1, len(messages)):
        if messages[at].role == messages[at - 1].role == "user":
            yield Violation(at, "alternation", "two user messages in a row")


def takes_turns(dialect: Dialect) -> bool:
    """Whether the provider rejects two user messages in a row."""
    return users_in_a_row in dialect.rules


def place_results(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Make all results of a message the first blocks of the user message behind it."""
    placement = ResultPlacement(steps, dialect, log)
    settled: list[IndexedMessage] = []
    front: list[PartPosition | Message] = []
    for at, (index, message) in enumerate(steps):
        if front and message.role != "user":
            settled.append((index, _built(placement, dialect.user_text(""), front)))
            front = []
        pieces = front + list(_own_pieces(placement, at))
        if pieces == [PartPosition(at, part) for part in range(len(message.parts))]:
            settled.append((index, message))
        elif pieces:
            settled.append((index, _built(placement, dialect.pick(message, ()), pieces)))
        front = [*placement.results_of(at), *placement.placeholder_results(at)]
        _note_order(placement, at, front)
    if front:
        settled.append((steps[-1][0], _built(placement, dialect.user_text(""), front)))
    return settled


def _own_pieces(placement: ResultPlacement, at: int) -> Iterator[PartPosition | Message]:
    """What stays of a message where it is: everything but results, and loose results as words."""
    for number, part in enumerate(placement.steps[at][1].parts):
        place = PartPosition(at, number)
        said = placement.words.get(place)
        if said:
            yield said
        elif not isinstance(part, ToolResult):
            yield place


def _built(placement: ResultPlacement, host: Message, pieces: Sequence[PartPosition | Message]) -> Message:
    """One message with the host's fields and these pieces; parts that follow each other are taken at once."""
    runs: list[tuple[int, list[int]] | Message] = []
    for piece in pieces:
        last = runs[-1] if runs else host
        if isinstance(piece, Message):
            runs.append(piece)
        elif not isinstance(last, Message) and last[0] == piece.message:
            last[1].append(piece.part)
        else:
            runs.append((piece.message, [piece.part]))
    picked = [
        run if isinstance(run, Message) else placement.dialect.pick(placement.steps[run[0]][1], run[1]) for run in runs
    ]
    return join_all([host, *picked], placement.dialect)


def _note_order(placement: ResultPlacement, call: int, front: Sequence[PartPosition | Message]) -> None:
    leading = leading_results(placement.steps[call + 1][1]) if call + 1 < len(placement.steps) else 0
    for result in front:
        if isinstance(result, PartPosition) and result.message != call + 1:
            placement.note(result.message, MOVED)
        elif isinstance(result, PartPosition) and result.part >= leading:
            placement.note(result.message, "put a result before the other blocks of its message")


def systems_to_words(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Turn system messages behind the beginning into words of the user, joined to the user's own before or after."""
    late = {problem.index for problem in late_systems(without_indexes(steps), None, dialect)}
    groups: list[list[IndexedMessage]] = []
    for at, (index, message) in enumerate(steps):
        spoken = dialect.user_text(f"{SYSTEM_MESSAGE}\n{message.text}") if at in late else message
        if at in late:
            log.append(Repair(index, "turned a system message into a user message: the provider takes none here"))
        is_beside = at in late or at - 1 in late
        if is_beside and groups and spoken.role == groups[-1][-1][1].role == "user":
            groups[-1].append((index, spoken))
        else:
            groups.append([(index, spoken)])
    return [joined_step(group, dialect) for group in groups]


def join_users(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Make user messages in a row one message."""
    groups: list[list[IndexedMessage]] = []
    for index, message in steps:
        if groups and message.role == groups[-1][-1][1].role == "user":
            groups[-1].append((index, message))
            log.append(Repair(index, "joined with the user message before it"))
        else:
            groups.append([(index, message)])
    return [joined_step(group, dialect) for group in groups]
