"""Putting results where they belong: directly behind their calls, each call with exactly one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from context_compactor.messages.dialect import Dialect
from context_compactor.messages.frames import FURTHER_RESULT, LOST_CALL, LOST_RESULT, NO_RESULT
from context_compactor.messages.mending import Repair, Step, join_all, messages_of
from context_compactor.messages.message import Message, ToolCall, ToolResult
from context_compactor.messages.pairing import (
    Pairing,
    Place,
    leading_results,
    owners,
    pair_results,
    pending_from,
)
from context_compactor.messages.placing import is_reasoning

MOVED = "moved a result to directly behind its call"


def settle_results(steps: list[Step], dialect: Dialect, log: list[Repair]) -> list[Step]:
    """Move late results to their calls, turn loose ones into words, and stand in for missing ones."""
    settle = {"anthropic": _settle_blocks, "openai-chat": _settle_messages}.get(dialect.name, _settle_items)
    return settle(_Desk(steps, dialect, log))


class _Desk:
    """The steps at hand with what belongs to what.

    `words` is what is left of each loose result: a user message, or None when it says nothing new.
    """

    def __init__(self, steps: list[Step], dialect: Dialect, log: list[Repair]) -> None:
        messages = messages_of(steps)
        self.steps = steps
        self.dialect = dialect
        self.log = log
        self.pairing: Pairing = pair_results(messages)
        self.words = {place: self._words(place) for place in self.pairing.loose}
        spoken = {place.message for place, said in self.words.items() if said}
        self.pending = pending_from(messages, dialect.name == "openai-responses", spoken)

    def note(self, at: int, what: str) -> None:
        self.log.append(Repair(self.steps[at][0], what))

    def results_of(self, at: int) -> list[Place]:
        """Where the results of a message's calls are, in the order of the history."""
        calls = [Place(at, part) for part in range(len(self.steps[at][1].parts))]
        return sorted(self.pairing.answers[call] for call in calls if call in self.pairing.answers)

    def missing(self, at: int) -> list[ToolCall]:
        """The calls of a message that never got a result, unless it may still come."""
        places = [Place(at, part) for part in range(len(self.steps[at][1].parts))] if at < self.pending else []
        calls, answers = self.pairing.calls, self.pairing.answers
        return [calls[place] for place in places if place in calls and place not in answers]

    def stand_ins(self, at: int) -> Iterator[Message]:
        """Results for the calls that miss one."""
        for call in self.missing(at):
            answer = self.dialect.answer(self.steps[at][1], call, NO_RESULT)
            if answer:
                self.note(at, f"the call {call.id} had no result; it now has one that says so")
                yield answer

    def _words(self, place: Place) -> Message | None:
        result, other = self.pairing.results[place], self.pairing.loose[place]
        if other is None:
            what, said = "a result whose call is not in the history", self.dialect.as_words(result, LOST_CALL)
        else:
            what = "one result too many for a call"
            repeats = not result.media and result.text in (NO_RESULT, self.pairing.results[other].text)
            said = None if repeats else self.dialect.as_words(result, FURTHER_RESULT)
        self.note(place.message, f"turned {what} into a user message" if said else f"removed {what}")
        return said


def _settle_messages(desk: _Desk) -> list[Step]:
    """Chat: a tool message for each result, in a row behind the message that calls."""
    behind = owners(messages_of(desk.steps))
    settled: list[Step] = []
    for at, (index, message) in enumerate(desk.steps):
        if message.role == "tool":
            said = desk.words.get(Place(at, 0))
            settled += [(index, said)] if said else []
            continue
        settled.append((index, message))
        for result in desk.results_of(at):
            settled.append(desk.steps[result.message])
            if behind[result.message] != at:
                desk.note(result.message, MOVED)
        settled += [(index, answer) for answer in desk.stand_ins(at)]
    return settled


def _settle_items(desk: _Desk) -> list[Step]:
    """Responses: outputs stay where they are, a stand-in waits for the end of the reply it would split.

    Reasoning stays with the item it belongs to: words that came between the two go before both.
    """
    settled: list[Step] = []
    held: list[Step] = []
    thoughts: list[Step] = []
    for at, (index, message) in enumerate(desk.steps):
        words = desk.words.get(Place(at, 0)) if message.role == "tool" else _unanswerable(desk, at)
        if words or message.role != "assistant":
            settled += held
            held = []
        if words:
            settled.append((index, words))
        elif is_reasoning(message):
            thoughts.append((index, message))
        elif Place(at, 0) not in desk.words:
            settled += [*thoughts, (index, message)]
            thoughts = []
            held += [(index, answer) for answer in desk.stand_ins(at)]
    return settled + held + thoughts


def _unanswerable(desk: _Desk, at: int) -> Message | None:
    """The words for a call that misses a result which only the tool itself could give."""
    for call in desk.missing(at):
        if desk.dialect.answer(desk.steps[at][1], call, NO_RESULT) is None:
            desk.note(at, "turned a call whose result cannot be stood in for into a user message")
            return desk.dialect.user_text(f"{LOST_RESULT}\n{call.arguments}")
    return None


def _settle_blocks(desk: _Desk) -> list[Step]:
    """Anthropic: all results of a message are the first blocks of the user message behind it."""
    settled: list[Step] = []
    front: list[Place | Message] = []
    for at, (index, message) in enumerate(desk.steps):
        if front and message.role != "user":
            settled.append((index, _built(desk, desk.dialect.user_text(""), front)))
            front = []
        pieces = front + list(_own_pieces(desk, at))
        if pieces == [Place(at, part) for part in range(len(message.parts))]:
            settled.append((index, message))
        elif pieces:
            settled.append((index, _built(desk, desk.dialect.pick(message, ()), pieces)))
        front = [*desk.results_of(at), *desk.stand_ins(at)]
        _note_order(desk, at, front)
    if front:
        settled.append((desk.steps[-1][0], _built(desk, desk.dialect.user_text(""), front)))
    return settled


def _own_pieces(desk: _Desk, at: int) -> Iterator[Place | Message]:
    """What stays of a message where it is: everything but results, and loose results as words."""
    for number, part in enumerate(desk.steps[at][1].parts):
        place = Place(at, number)
        said = desk.words.get(place)
        if said:
            yield said
        elif not isinstance(part, ToolResult):
            yield place


def _built(desk: _Desk, host: Message, pieces: Sequence[Place | Message]) -> Message:
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
    picked = [run if isinstance(run, Message) else desk.dialect.pick(desk.steps[run[0]][1], run[1]) for run in runs]
    return join_all([host, *picked], desk.dialect)


def _note_order(desk: _Desk, call: int, front: Sequence[Place | Message]) -> None:
    leading = leading_results(desk.steps[call + 1][1]) if call + 1 < len(desk.steps) else 0
    for result in front:
        if isinstance(result, Place) and result.message != call + 1:
            desk.note(result.message, MOVED)
        elif isinstance(result, Place) and result.part >= leading:
            desk.note(result.message, "put a result before the other blocks of its message")
