"""COUNT on real logs: what the product counts for each request beside what the provider reported for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from context_compactor.errors import BadInput
from context_compactor.measure.calibrate import Calibration
from context_compactor.measure.count import MessageCounter, is_question, message_counter_for
from context_compactor.messages.detect import find_dialect
from context_compactor.messages.message import Message, Thinking
from context_compactor.messages.transcripts import Transcript
from context_compactor.quality.counting import BLIND_AFTER, Reply, anchored_errors, blind_errors

FEWEST_REPLIES = 2 * BLIND_AFTER


class Errors(Struct, frozen=True):
    """The errors of one conversation as shares of the reported prompt, reply by reply."""

    source: str
    replies: int
    anchored: tuple[float, ...]
    blind: tuple[float, ...]


def count_errors(transcript: Transcript, source: str) -> Errors | None:
    """How far the gauge was off; None where no usage was logged or the messages cannot be read."""
    try:
        runs = list(_runs(transcript))
    except BadInput:
        return None
    if not runs:
        return None
    anchored = [error for replies in runs for error in anchored_errors(replies)]
    first = runs[0] if len(runs[0]) >= FEWEST_REPLIES else []
    blind = blind_errors(first, Calibration(transcript.model))
    return Errors(source, sum(map(len, runs)), tuple(anchored), tuple(blind))


def _runs(transcript: Transcript) -> Iterator[list[Reply]]:
    """For each stretch between two compactions: our count and the provider's for each reply."""
    messages = find_dialect(transcript.dialect, transcript.messages).parse(transcript.messages)
    counter = message_counter_for(transcript.model, transcript.dialect)
    counter.learn(messages)
    borders = sorted({0, len(messages), *(past.at for past in transcript.compactions)})
    for start, end in pairwise(borders):
        counts = sent_before_each(messages[start:end], counter)
        usages = sorted((index, usage) for index, usage in transcript.usages.items() if start <= index < end)
        replies = [Reply(counts[_first(messages, start, index) - start], usage.prompt) for index, usage in usages]
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
