"""Making a history legal for its provider: the repairs that several dialects have, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from msgspec import Struct

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.legality import (
    Pairing,
    PartPosition,
    find_violations,
    first_speaker,
    pair_results,
    pending_from,
    repeated_calls,
    result_owners,
)
from context_compactor.dialects.messages import (
    FURTHER_RESULT,
    LOST_CALL,
    MISSING_HISTORY,
    NO_RESULT,
    Message,
    Text,
    Thinking,
    ToolCall,
)


class Repair(Struct, frozen=True):
    """One change that made a history legal: the message's index in the history as given, and what was done."""

    index: int
    what: str


IndexedMessage = tuple[int, Message]
RepairRule = Callable[[list[IndexedMessage], Dialect, list[Repair]], list[IndexedMessage]]


def without_indexes(steps: list[IndexedMessage]) -> list[Message]:
    """The messages without their indexes."""
    return [message for _, message in steps]


def drop_blanks(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Remove messages without content, and empty blocks from those that have some."""
    kept: list[IndexedMessage] = []
    for at, (index, message) in enumerate(steps):
        if dialect.is_blank(message, is_last=at == len(steps) - 1):
            log.append(Repair(index, "removed a message without content"))
            continue
        if not dialect.has_blank_block(message):
            kept.append((index, message))
            continue
        filled = [at for at, part in enumerate(message.parts) if not isinstance(part, Text) or part.text.strip()]
        kept.append((index, dialect.pick(message, filled)))
        log.append(Repair(index, "removed an empty block"))
    return kept


def _drop_known_ids(steps: list[IndexedMessage], log: list[Repair]) -> list[IndexedMessage]:
    """Remove messages that came again: with the id that the provider gave an earlier one, and the same content.

    Thinking alone stays, since its reply may be the later one; without a reply its dialect removes it.
    """
    known: dict[str, list[Message]] = {}
    kept: list[IndexedMessage] = []
    for index, message in steps:
        given = message.raw.get("id") if isinstance(message.raw, dict) else None
        same = known.setdefault(given, []) if isinstance(given, str) and given else []
        is_thought = all(isinstance(part, Thinking) for part in message.parts)
        if not is_thought and any(message.role == each.role and message.parts == each.parts for each in same):
            log.append(Repair(index, f"removed a message that came twice: {given!r:.80}"))
            continue
        same.append(message)
        kept.append((index, message))
    return kept


def _drop_repeated_replies(steps: list[IndexedMessage], log: list[Repair]) -> list[IndexedMessage]:
    """Remove assistant messages that equal the one directly before: joined, they would say everything twice."""
    kept: list[IndexedMessage] = []
    for index, message in steps:
        if kept and message.role == "assistant" and message.raw == kept[-1][1].raw:
            log.append(Repair(index, "removed an assistant message that equals the one before it"))
        else:
            kept.append((index, message))
    return kept


def join_assistants(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Make assistant messages in a row one message.

    Two stay apart when the first has calls that nobody answered: their stand-in results will come between.
    """
    messages = without_indexes(steps)
    answered = {call.message for call in pair_results(messages).answers}
    unanswered = {at for at, message in enumerate(messages) if message.calls and at not in answered}
    pending = pending_from(messages, dialect)
    groups: list[list[IndexedMessage]] = []
    for at, (index, message) in enumerate(steps):
        follows = at > 0 and message.role == messages[at - 1].role == "assistant"
        if not follows or (at - 1 in unanswered and at < pending) or not dialect.can_join(messages[at - 1], message):
            groups.append([(index, message)])
        else:
            groups[-1].append((index, message))
            log.append(Repair(index, "joined with the assistant message before it"))
    return [joined_step(group, dialect) for group in groups]


def joined_step(group: list[IndexedMessage], dialect: Dialect) -> IndexedMessage:
    """Several messages of one role as one, with the index of the first."""
    return group[0][0], join_all(without_indexes(group), dialect)


def join_all(messages: Sequence[Message], dialect: Dialect) -> Message:
    """Several messages of one role as one; by halves, so that many cost little more than few."""
    if len(messages) == 1:
        return messages[0]
    middle = len(messages) // 2
    return dialect.join(join_all(messages[:middle], dialect), join_all(messages[middle:], dialect))


def rename_repeated(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Give calls that share an id, and their results, ids of their own."""
    pairing = pair_results(without_indexes(steps))
    taken = {call.id for call in pairing.calls.values()}
    numbers: dict[str, Iterator[int]] = {}
    renamed: dict[int, dict[int, str]] = {}
    for place in repeated_calls(pairing, dialect):
        old = pairing.calls[place].id
        new = next(name for number in numbers.setdefault(old, count(2)) if (name := f"{old}_{number}") not in taken)
        both: list[PartPosition] = [place, *([pairing.answers[place]] if place in pairing.answers else [])]
        for message, part in both:
            renamed.setdefault(message, {})[part] = new
        log.append(Repair(steps[place.message][0], f"the id {old} named two calls; the later one is now {new}"))
    return [
        (index, dialect.rename(message, renamed[at]) if at in renamed else message)
        for at, (index, message) in enumerate(steps)
    ]


def start_with_user(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Put a user message first when the conversation begins with the assistant."""
    first = first_speaker(without_indexes(steps))
    if first == len(steps) or steps[first][1].role == "user" or steps[first][1].begins_with_summary:
        return steps
    log.append(Repair(steps[first][0], "put a user message first: the conversation began with the assistant"))
    return [*steps[:first], (steps[first][0], dialect.user_text(MISSING_HISTORY)), *steps[first:]]


MOVED = "moved a result to directly behind its call"


class ResultPlacement:
    """The steps at hand with what belongs to what.

    `words` is what is left of each loose result: a user message, or None when it says nothing new.
    """

    def __init__(self, steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> None:
        messages = without_indexes(steps)
        self.steps = steps
        self.dialect = dialect
        self.log = log
        self.pairing: Pairing = pair_results(messages)
        self.words = {place: self._words(place) for place in self.pairing.loose}
        spoken = {place.message for place, said in self.words.items() if said}
        self.pending = pending_from(messages, dialect, spoken)

    def note(self, at: int, what: str) -> None:
        """Log what was done to the message at this place."""
        self.log.append(Repair(self.steps[at][0], what))

    def results_of(self, at: int) -> list[PartPosition]:
        """Where the results of a message's calls are, in the order of the history."""
        calls = [PartPosition(at, part) for part in range(len(self.steps[at][1].parts))]
        return sorted(self.pairing.answers[call] for call in calls if call in self.pairing.answers)

    def missing(self, at: int) -> list[ToolCall]:
        """The calls of a message that never got a result, unless it may still come."""
        places = [PartPosition(at, part) for part in range(len(self.steps[at][1].parts))] if at < self.pending else []
        calls, answers = self.pairing.calls, self.pairing.answers
        return [calls[place] for place in places if place in calls and place not in answers]

    def placeholder_results(self, at: int) -> Iterator[Message]:
        """Results for the calls that miss one."""
        for call in self.missing(at):
            answer = self.dialect.answer(self.steps[at][1], call, NO_RESULT)
            if answer:
                self.note(at, f"the call {call.id} had no result; it now has one that says so")
                yield answer

    def _words(self, place: PartPosition) -> Message | None:
        result, other = self.pairing.results[place], self.pairing.loose[place]
        if other is None:
            what, said = "a result whose call is not in the history", self.dialect.as_user_message(result, LOST_CALL)
        else:
            what = "one result too many for a call"
            repeats = not result.media and result.text in (NO_RESULT, self.pairing.results[other].text)
            said = None if repeats else self.dialect.as_user_message(result, FURTHER_RESULT)
        self.note(place.message, f"turned {what} into a user message" if said else f"removed {what}")
        return said


def results_behind_calls(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Put results, of which each is a tool message of its own, in a row behind the message that calls.

    Loose ones become words of the user, missing ones are stood in for.
    """
    placement = ResultPlacement(steps, dialect, log)
    behind = result_owners(without_indexes(steps))
    settled: list[IndexedMessage] = []
    for at, (index, message) in enumerate(steps):
        if message.role == "tool":
            said = placement.words.get(PartPosition(at, 0))
            settled += [(index, said)] if said else []
            continue
        settled.append((index, message))
        for result in placement.results_of(at):
            settled.append(steps[result.message])
            if behind[result.message] != at:
                placement.note(result.message, MOVED)
        settled += [(index, answer) for answer in placement.placeholder_results(at)]
    return settled


def repair(messages: Sequence[Message], dialect: Dialect) -> tuple[list[Message], list[Repair]]:
    """The history made legal with the least change, and what was changed, by index in the history as given.

    Messages that were legal stay the same objects. Media problems are left as they are: only the engine
    knows what it may do without.
    """
    steps, log = repair_with_indexes(messages, dialect)
    return [message for _, message in steps], log


def repair_with_indexes(messages: Sequence[Message], dialect: Dialect) -> tuple[list[IndexedMessage], list[Repair]]:
    """The same with the index of the message that each one comes from; of several joined, the first."""
    log: list[Repair] = []
    steps = _drop_known_ids(list(enumerate(messages)), log)
    if all(problem.rule == "media" for problem in find_violations(without_indexes(steps), dialect)):
        return steps, log
    steps = _drop_repeated_replies(steps, log)
    for mend in dialect.repairs:
        steps = mend(steps, dialect, log)
    detached = dialect.detach(messages, without_indexes(steps))
    for (index, message), kept in zip(steps, detached, strict=True):
        if kept is None or len(kept.parts) < len(message.parts):
            log.append(Repair(index, "removed reasoning that is bound to messages which were repaired"))
    steps = [(index, kept) for (index, _), kept in zip(steps, detached, strict=True) if kept is not None]
    if None in detached:
        for mend in dialect.repairs:
            steps = mend(steps, dialect, log)
    return steps, sorted(log, key=lambda entry: entry.index)
