"""How full the context is, without counting anything twice: every message is weighed once, when it comes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from context_compactor.classify.calls import file_paths_of, is_read
from context_compactor.measure.calibrate import Calibration, anchored
from context_compactor.measure.count import MessageCounter, is_question, message_bytes
from context_compactor.messages.message import Message, Thinking
from context_compactor.session.values import Gauge, Replaced, State

_MOST_FILES = 100
# An agent has one request under way when its context is replaced, seldom two.
_LATE_REPORTS = 2


def weigh(messages: Sequence[Message], counter: MessageCounter) -> Gauge:
    """The gauge of a context."""
    empty = Gauge(counter=counter.counter.name, tokens=counter.overhead.request)
    return add(empty, messages, counter)


def add(
    gauge: Gauge,
    messages: Sequence[Message],
    counter: MessageCounter,
    weights: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
) -> Gauge:
    """The gauge after some more messages; `weights` and `sizes` are their tokens and bytes, where they are known."""
    weights = counter.count_many(messages) if weights is None else weights
    sizes = [message_bytes(message) for message in messages] if sizes is None else sizes
    tokens, thinking, size = gauge.tokens, gauge.thinking, gauge.bytes
    calls, files = dict.fromkeys(gauge.open_calls), dict.fromkeys(gauge.files)
    for message, weight, length in zip(messages, weights, sizes, strict=True):
        tokens += weight
        size += length
        if counter.overhead.drops_thinking:
            tokens, thinking = _drop_thinking(message, tokens, thinking, counter)
        _follow(calls, message)
        files.update(dict.fromkeys(path for call in message.calls if is_read(call) for path in file_paths_of(call)))
    return replace(
        gauge,
        tokens=tokens,
        thinking=thinking,
        bytes=size,
        tool_results=gauge.tool_results + sum(len(message.results) for message in messages),
        open_calls=tuple(calls),
        files=tuple(files)[-_MOST_FILES:],
    )


def replace_context(state: State, gauge: Gauge) -> State:
    """The state after the context was replaced by another one, with the gauge of that.

    A request with the old context may be under way, and what the provider will report for it says nothing of the new.
    """
    return replace(state, gauge=gauge, replaced=Replaced(state.gauge.tokens, _LATE_REPORTS))


def is_late(state: State, counted: int, reported: int) -> bool:
    """Whether usage was reported for a request with the context that has been replaced since.

    It was when it is nearer to what we expect of the old one. Before the first report there is nothing to expect.
    """
    if not state.replaced.reports:
        return False
    now, before = (state.calibration.estimate(tokens).tokens for tokens in (counted, state.replaced.tokens))
    return not state.calibration.replies or abs(reported - before) < abs(reported - now)


def comes_to_rest(gauge: Gauge, messages: Sequence[Message]) -> bool:
    """Whether behind one of these messages no call waits for its result, so that a request could be sent there."""
    calls = dict.fromkeys(gauge.open_calls)
    for message in messages:
        _follow(calls, message)
        if not calls:
            return True
    return False


def _follow(calls: dict[str, None], message: Message) -> None:
    """Note which calls wait for their results behind a message."""
    calls.update(dict.fromkeys(call.id for call in message.calls))
    for result in message.results:
        calls.pop(result.call_id, None)
    if is_question(message):
        calls.clear()  # whoever speaks now does not wait for them


def _drop_thinking(message: Message, tokens: int, thinking: int, counter: MessageCounter) -> tuple[int, int]:
    if is_question(message):
        return tokens - thinking, 0
    if any(isinstance(part, Thinking) for part in message.parts):
        weights = zip(message.parts, counter.part_tokens(message), strict=True)
        thinking += sum(weight for part, weight in weights if isinstance(part, Thinking))
    return tokens, thinking


def tokens_now(gauge: Gauge, calibration: Calibration, overhead: int) -> int:
    """The tokens of the next request: anchored on what the provider reported last, else as well as we have learned."""
    if gauge.anchor is not None:
        reported, counted = gauge.anchor
        tokens = anchored(reported, gauge.tokens - counted, calibration.ratio)
        if tokens is not None:
            return tokens
    counted = gauge.tokens + overhead
    return calibration.estimate(gauge.tokens).tokens if calibration.replies else counted
