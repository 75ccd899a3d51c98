"""Finding what a provider would reject, where a history may be cut, and the repairs that make it legal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, count

from msgspec import Struct

from context_compactor.dialects.anthropic import find_image_violations
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.legality import (
    Pairing,
    PartPosition,
    dangling_reasoning,
    first_speaker,
    has_blank_block,
    is_blank_message,
    is_reasoning,
    leading_results,
    lone_server_blocks,
    misplaced_systems,
    pair_results,
    pending_from,
    repeated_calls,
    result_owners,
)
from context_compactor.dialects.messages import (
    FURTHER_RESULT,
    LOST_CALL,
    LOST_RESULT,
    MISSING_HISTORY,
    NO_RESULT,
    SERVER_TOOL,
    SYSTEM_MESSAGE,
    Message,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
)
from context_compactor.dialects.turns import split_turns


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
        if is_blank_message(message, dialect, is_last=at == len(steps) - 1):
            log.append(Repair(index, "removed a message without content"))
            continue
        if not has_blank_block(message, dialect):
            kept.append((index, message))
            continue
        filled = [at for at, part in enumerate(message.parts) if not isinstance(part, Text) or part.text]
        kept.append((index, dialect.pick(message, filled)))
        log.append(Repair(index, "removed an empty block"))
    return kept


def server_blocks_to_text(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Turn a server tool's call or result that lost its other half into words."""
    edits: dict[int, dict[int, str | None]] = {}
    for at, number in lone_server_blocks(without_indexes(steps), dialect):
        index, message = steps[at]
        part = message.parts[number]
        edits.setdefault(at, {})[number] = f"{SERVER_TOOL}\n{part.text if isinstance(part, Opaque) else ''}"
        log.append(Repair(index, "turned a server tool's block without its other half into words"))
    return [
        (index, dialect.edit(message, edits[at]) or message if at in edits else message)
        for at, (index, message) in enumerate(steps)
    ]


def join_assistants(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Make assistant messages in a row one message.

    Two stay apart when the first has calls that nobody answered: their stand-in results will come between.
    """
    if dialect.name == "openai-responses":
        return steps
    messages = without_indexes(steps)
    unanswered = _unanswered(pair_results(messages), messages)
    pending = pending_from(messages, whole_run=False)
    groups: list[list[IndexedMessage]] = []
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


def _as_one(group: list[IndexedMessage], dialect: Dialect) -> IndexedMessage:
    return group[0][0], join_all(without_indexes(group), dialect)


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


def rename_repeated(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Give calls that share an id, and their results, ids of their own."""
    pairing = pair_results(without_indexes(steps))
    taken = {call.id for call in pairing.calls.values()}
    names: dict[str, Iterator[str]] = {}
    renamed: dict[int, dict[int, str]] = {}
    for place in repeated_calls(pairing, dialect):
        old = pairing.calls[place].id
        new = next(name for name in names.setdefault(old, _suffixed(old)) if name not in taken)
        both: list[PartPosition] = [place, *([pairing.answers[place]] if place in pairing.answers else [])]
        for message, part in both:
            renamed.setdefault(message, {})[part] = new
        log.append(Repair(steps[place.message][0], f"the id {old} named two calls; the later one is now {new}"))
    return [
        (index, dialect.rename(message, renamed[at]) if at in renamed else message)
        for at, (index, message) in enumerate(steps)
    ]


def _suffixed(name: str) -> Iterator[str]:
    return (f"{name}_{number}" for number in count(2))


def drop_reasoning(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Remove reasoning whose reply is gone."""
    dangling = set(dangling_reasoning(without_indexes(steps), dialect))
    log += [Repair(steps[at][0], "removed reasoning without the item it belongs to") for at in sorted(dangling)]
    return [step for at, step in enumerate(steps) if at not in dangling]


def place_systems(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Turn system messages where none may be into words of the user, joined to the user's own beside them."""
    misplaced = set(misplaced_systems(without_indexes(steps), dialect))
    groups: list[list[IndexedMessage]] = []
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


def start_with_user(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Put a user message first when the conversation begins with the assistant."""
    first = first_speaker(without_indexes(steps))
    if dialect.name == "openai-responses" or first == len(steps) or steps[first][1].role == "user":
        return steps
    log.append(Repair(steps[first][0], "put a user message first: the conversation began with the assistant"))
    return [*steps[:first], (steps[first][0], dialect.user_text(MISSING_HISTORY)), *steps[first:]]


MOVED = "moved a result to directly behind its call"


def place_results(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Move late results to their calls, turn loose ones into words, and stand in for missing ones."""
    settle = {"anthropic": _place_anthropic_results, "openai-chat": _place_chat_results}.get(
        dialect.name, _place_responses_results
    )
    return settle(_ResultPlacement(steps, dialect, log))


class _ResultPlacement:
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
        self.pending = pending_from(messages, dialect.name == "openai-responses", spoken)

    def note(self, at: int, what: str) -> None:
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


def _place_chat_results(service_store: _ResultPlacement) -> list[IndexedMessage]:
    """Chat: a tool message for each result, in a row behind the message that calls."""
    behind = result_owners(without_indexes(service_store.steps))
    settled: list[IndexedMessage] = []
    for at, (index, message) in enumerate(service_store.steps):
        if message.role == "tool":
            said = service_store.words.get(PartPosition(at, 0))
            settled += [(index, said)] if said else []
            continue
        settled.append((index, message))
        for result in service_store.results_of(at):
            settled.append(service_store.steps[result.message])
            if behind[result.message] != at:
                service_store.note(result.message, MOVED)
        settled += [(index, answer) for answer in service_store.placeholder_results(at)]
    return settled


def _place_responses_results(service_store: _ResultPlacement) -> list[IndexedMessage]:
    """Responses: outputs stay where they are, a stand-in waits for the end of the reply it would split.

    Reasoning stays with the item it belongs to: words that came between the two go before both.
    """
    settled: list[IndexedMessage] = []
    held: list[IndexedMessage] = []
    thoughts: list[IndexedMessage] = []
    for at, (index, message) in enumerate(service_store.steps):
        words = (
            service_store.words.get(PartPosition(at, 0)) if message.role == "tool" else _unanswerable(service_store, at)
        )
        if words or message.role != "assistant":
            settled += held
            held = []
        if words:
            settled.append((index, words))
        elif is_reasoning(message):
            thoughts.append((index, message))
        elif PartPosition(at, 0) not in service_store.words:
            settled += [*thoughts, (index, message)]
            thoughts = []
            held += [(index, answer) for answer in service_store.placeholder_results(at)]
    return settled + held + thoughts


def _unanswerable(service_store: _ResultPlacement, at: int) -> Message | None:
    """The words for a call that misses a result which only the tool itself could give."""
    for call in service_store.missing(at):
        if service_store.dialect.answer(service_store.steps[at][1], call, NO_RESULT) is None:
            service_store.note(at, "turned a call whose result cannot be stood in for into a user message")
            return service_store.dialect.user_text(f"{LOST_RESULT}\n{call.arguments}")
    return None


def _place_anthropic_results(service_store: _ResultPlacement) -> list[IndexedMessage]:
    """Anthropic: all results of a message are the first blocks of the user message behind it."""
    settled: list[IndexedMessage] = []
    front: list[PartPosition | Message] = []
    for at, (index, message) in enumerate(service_store.steps):
        if front and message.role != "user":
            settled.append((index, _built(service_store, service_store.dialect.user_text(""), front)))
            front = []
        pieces = front + list(_own_pieces(service_store, at))
        if pieces == [PartPosition(at, part) for part in range(len(message.parts))]:
            settled.append((index, message))
        elif pieces:
            settled.append((index, _built(service_store, service_store.dialect.pick(message, ()), pieces)))
        front = [*service_store.results_of(at), *service_store.placeholder_results(at)]
        _note_order(service_store, at, front)
    if front:
        settled.append((service_store.steps[-1][0], _built(service_store, service_store.dialect.user_text(""), front)))
    return settled


def _own_pieces(service_store: _ResultPlacement, at: int) -> Iterator[PartPosition | Message]:
    """What stays of a message where it is: everything but results, and loose results as words."""
    for number, part in enumerate(service_store.steps[at][1].parts):
        place = PartPosition(at, number)
        said = service_store.words.get(place)
        if said:
            yield said
        elif not isinstance(part, ToolResult):
            yield place


def _built(service_store: _ResultPlacement, host: Message, pieces: Sequence[PartPosition | Message]) -> Message:
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
        run if isinstance(run, Message) else service_store.dialect.pick(service_store.steps[run[0]][1], run[1])
        for run in runs
    ]
    return join_all([host, *picked], service_store.dialect)


def _note_order(service_store: _ResultPlacement, call: int, front: Sequence[PartPosition | Message]) -> None:
    leading = leading_results(service_store.steps[call + 1][1]) if call + 1 < len(service_store.steps) else 0
    for result in front:
        if isinstance(result, PartPosition) and result.message != call + 1:
            service_store.note(result.message, MOVED)
        elif isinstance(result, PartPosition) and result.part >= leading:
            service_store.note(result.message, "put a result before the other blocks of its message")


REPAIR_RULES: tuple[RepairRule, ...] = (
    drop_blanks,
    join_assistants,
    server_blocks_to_text,
    rename_repeated,
    place_results,
    drop_reasoning,
    drop_blanks,
    place_systems,
    join_assistants,
    start_with_user,
)
"""Moving results may empty a message, and an emptied one may bring two assistants together: so some come twice."""


class Violation(Struct, frozen=True):
    """One thing a provider would reject: the message's index, the rule's name and what is wrong."""

    index: int
    rule: str
    what: str


def find_violations(messages: Sequence[Message], dialect: Dialect) -> list[Violation]:
    """Everything the provider would reject, by index; empty when the history is legal.

    Calls of the last step that have no result yet are no problem: they are still running.
    """
    pairing = pair_results(messages)
    problems = [*_call_violations(messages, dialect, pairing), *_result_violations(messages, dialect, pairing)]
    problems += [*_empty_violations(messages, dialect), *_order_violations(messages, dialect)]
    if dialect.name == "anthropic":
        problems += [Violation(at, "media", what) for at, what in find_image_violations(messages)]
    return sorted(problems, key=lambda problem: problem.index)


def repair(messages: Sequence[Message], dialect: Dialect) -> tuple[list[Message], list[Repair]]:
    """The history made legal with the least change, and what was changed, by index in the history as given.

    Messages that were legal stay the same objects. Media problems are left as they are: only the engine
    knows what it may do without.
    """
    steps, log = repair_with_indexes(messages, dialect)
    return [message for _, message in steps], log


def repair_with_indexes(messages: Sequence[Message], dialect: Dialect) -> tuple[list[IndexedMessage], list[Repair]]:
    """The same with the index of the message that each one comes from; of several joined, the first."""
    steps = list(enumerate(messages))
    if all(problem.rule == "media" for problem in find_violations(messages, dialect)):
        return steps, []
    log: list[Repair] = []
    for mend in REPAIR_RULES:
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


def _call_violations(messages: Sequence[Message], dialect: Dialect, pairing: Pairing) -> Iterator[Violation]:
    pending = pending_from(messages, whole_run=dialect.name == "openai-responses")
    for place, call in pairing.calls.items():
        if place not in pairing.answers and place.message < pending:
            yield Violation(place.message, "missing-result", f"the call {call.id} has no result")
    for place in repeated_calls(pairing, dialect):
        yield Violation(place.message, "repeated-id", f"the id {pairing.calls[place].id} names two calls")


def _result_violations(messages: Sequence[Message], dialect: Dialect, pairing: Pairing) -> Iterator[Violation]:
    for place, repeats in pairing.loose.items():
        if repeats is None:
            yield Violation(place.message, "orphan-result", "a result whose call is not in the history")
        else:
            yield Violation(place.message, "repeated-result", "one result too many for a call")
    behind = result_owners(messages)
    leading = [leading_results(message) for message in messages]
    for call, result in pairing.answers.items():
        if dialect.name != "openai-responses" and behind[result.message] != call.message:
            yield Violation(result.message, "late-result", "a result that is not directly behind its call")
        elif dialect.name == "anthropic" and result.part >= leading[result.message]:
            yield Violation(result.message, "block-order", "a result behind other blocks of its message")


def _empty_violations(messages: Sequence[Message], dialect: Dialect) -> Iterator[Violation]:
    for at, message in enumerate(messages):
        if is_blank_message(message, dialect, is_last=at == len(messages) - 1):
            yield Violation(at, "empty", "a message without content")
        elif has_blank_block(message, dialect):
            yield Violation(at, "empty", "an empty block")


def _order_violations(messages: Sequence[Message], dialect: Dialect) -> Iterator[Violation]:
    for at in dangling_reasoning(messages, dialect):
        yield Violation(at, "reasoning", "reasoning without the item it belongs to")
    for at, _ in lone_server_blocks(messages, dialect):
        yield Violation(at, "server-tool", "a server tool's call without its result, or the other way round")
    for at in misplaced_systems(messages, dialect):
        yield Violation(at, "system", "a system message where the provider takes none")
    if dialect.name == "openai-responses":
        return
    for at in range(1, len(messages)):
        if messages[at].role == messages[at - 1].role == "assistant":
            yield Violation(at, "alternation", "two assistant messages in a row")
    first = first_speaker(messages)
    if first < len(messages) and messages[first].role == "assistant":
        yield Violation(first, "first-user", "the conversation does not begin with a user message")
