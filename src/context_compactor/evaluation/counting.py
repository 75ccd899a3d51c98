"""COUNT: how far our token count is from what the provider reported, anchored on the last reply and blind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.messages import Message, Thinking
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.errors import BadInput
from context_compactor.tokens.calibration import Calibration
from context_compactor.tokens.counting import MessageCounter, is_question, message_counter_for

BLIND_AFTER = 5


class CountedReply(Struct, frozen=True):
    """What was counted for a request, and what the provider reported for it."""

    counted: int
    reported: int


def anchored_errors(replies: Sequence[CountedReply]) -> Iterator[float]:
    """The error of what the last reply reported plus the count since."""
    for before, now in pairwise(replies):
        yield abs(before.reported + now.counted - before.counted - now.reported) / now.reported


def blind_errors(replies: Sequence[CountedReply], calibration: Calibration) -> Iterator[float]:
    """The error of a calibration that learns from the first five replies alone."""
    for reply in replies[:BLIND_AFTER]:
        calibration = calibration.learn(reply.counted, reply.reported)
    for reply in replies[BLIND_AFTER:]:
        yield abs(calibration.estimate(reply.counted).tokens - reply.reported) / reply.reported


FEWEST_REPLIES = 2 * BLIND_AFTER


class CountErrors(Struct, frozen=True):
    """The errors of one conversation as shares of the reported prompt, reply by reply."""

    source: str
    replies: int
    anchored: tuple[float, ...]
    blind: tuple[float, ...]


def count_errors(transcript: Transcript, source: str) -> CountErrors | None:
    """How far the calibration was off; None where no usage was logged or the messages cannot be read."""
    try:
        runs = list(_runs(transcript))
    except BadInput:
        return None
    if not runs:
        return None
    anchored = [error for replies in runs for error in anchored_errors(replies)]
    first = runs[0] if len(runs[0]) >= FEWEST_REPLIES else []
    blind = blind_errors(first, Calibration(transcript.model))
    return CountErrors(source, sum(map(len, runs)), tuple(anchored), tuple(blind))


def _runs(transcript: Transcript) -> Iterator[list[CountedReply]]:
    """For each stretch between two compactions: our count and the provider's for each reply."""
    messages = find_dialect(transcript.dialect, transcript.messages).parse(transcript.messages)
    counter = message_counter_for(transcript.model, transcript.dialect)
    counter.learn(messages)
    borders = sorted({0, len(messages), *(past.at for past in transcript.compactions)})
    for start, end in pairwise(borders):
        counts = sent_before_each(messages[start:end], counter)
        usages = sorted((index, usage) for index, usage in transcript.usages.items() if start <= index < end)
        replies = [
            CountedReply(counts[_first(messages, start, index) - start], usage.prompt) for index, usage in usages
        ]
        if replies:
            yield replies


def _first(messages: Sequence[Message], start: int, last: int) -> int:
    """The first message of the reply that ends with `last`: all of it was written to the same request."""
    while last > start and messages[last - 1].role == "assistant":
        last -= 1
    return last


def sent_before_each(messages: Sequence[Message], counter: MessageCounter) -> list[int]:
    """Our count of the request that each message would answer: all before it, without the thinking left out."""
    counts: list[int] = []
    sent, thinking = counter.overhead.request, 0
    for message in messages:
        if counter.overhead.drops_thinking and is_question(message):
            sent, thinking = sent - thinking, 0
        counts.append(sent)
        parts = zip(counter.part_tokens(message), message.parts, strict=True)
        thinking += sum(tokens for tokens, part in parts if isinstance(part, Thinking))
        sent += counter.count(message)
    return counts
