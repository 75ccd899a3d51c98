"""COST: what a session costs when it lives in a small window, against never compacting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec import Struct

from context_compactor.evaluation.baselines import mask_old_outputs
from context_compactor.evaluation.corpus import RecordedConversation
from context_compactor.evaluation.messages import RawMessage, count_message
from context_compactor.evaluation.methods import find_method
from context_compactor.tokens.models import PromptCache, cache_seconds_for
from context_compactor.tokens.prices import ModelUsage, call_cost

WINDOW = 32_000
_MILLION = 1_000_000
EVERY_TURN = "masking-every-turn"

Shorten = Callable[[list[RawMessage], int], list[RawMessage]]


class Rates(Struct, frozen=True):
    """What a token costs that is read from a cache, and one that is written to it; one that is neither costs 1.

    After `cache_seconds` without a request there is nothing left to read; None where that is not known.
    """

    read: float = 0.1
    write: float = 1.25
    cache_seconds: int | None = None


_USUAL = Rates()


def rates_of(model: str) -> Rates:
    """The rates of a model's own price; those that most models have when it is not known."""
    usages = (ModelUsage(input=_MILLION), ModelUsage(cache_read=_MILLION), ModelUsage(cache_write=_MILLION))
    fresh, read, write = (call_cost(usage, model) for usage in usages)
    if not fresh or read is None or write is None:
        return _USUAL
    return Rates(read / fresh, write / fresh, cache_seconds_for(model))


class Bill(Struct):
    """What was billed so far at these rates, and the last prompt."""

    rates: Rates = Rates()
    cost: float = 0.0
    compactions: int = 0
    last: tuple[RawMessage, ...] = ()
    last_at: str = ""

    def charge(self, prompt: Sequence[RawMessage], sizes: dict[int, int], at: str = "") -> None:
        """Bill one prompt that was sent at a time; empty where that is not known."""
        if self._is_cold(at):
            self.last = ()
        self.last_at = at or self.last_at
        same = 0
        for old, new in zip(self.last, prompt, strict=False):
            if old is not new and old != new:
                break
            same += 1
        cached = sum(_size(message, sizes) for message in prompt[:same])
        total = sum(_size(message, sizes) for message in prompt)
        self.cost += self.rates.read * cached + self.rates.write * (total - cached)
        self.last = tuple(prompt)

    def _is_cold(self, at: str) -> bool:
        if not at or not self.last_at:
            return False
        idle = (datetime.fromisoformat(at) - datetime.fromisoformat(self.last_at)).total_seconds()
        return PromptCache(idle, self.rates.cache_seconds).is_cold


class ReplayResult(Struct, frozen=True):
    """One conversation's cost without and with a method, and how often it was compacted."""

    id: str
    source: str
    plain: float
    cost: float
    compactions: int


def replay(
    conversation: RecordedConversation, method: str, share: int = 25, window: int = WINDOW, rates: Rates = _USUAL
) -> ReplayResult | None:
    """Replay a conversation; None when it has less than one and a half windows."""
    sizes: dict[int, int] = {}
    if sum(_size(message, sizes) for message in conversation.messages) < window * 3 // 2:
        return None
    plain = _run_session(conversation, lambda context: context, sizes, Bill(rates))
    if method == EVERY_TURN:
        bill = _run_session(conversation, mask_old_outputs, {}, Bill(rates))
    else:
        bill = _run_in_window(conversation, _shorten(method), window, window * share // 100, Bill(rates))
    return ReplayResult(conversation.id, conversation.source, plain.cost, bill.cost, bill.compactions)


def _size(message: RawMessage, sizes: dict[int, int]) -> int:
    """A message's tokens; the messages of a replay live as long as it does, so their ids are keys."""
    key = id(message)
    if key not in sizes:
        sizes[key] = count_message(message)
    return sizes[key]


def _run_session(
    conversation: RecordedConversation,
    view: Callable[[list[RawMessage]], list[RawMessage]],
    sizes: dict[int, int],
    bill: Bill,
) -> Bill:
    """Bill every prompt of a conversation as a view of its whole history."""
    alive = list[list[RawMessage]]()
    for index, message in enumerate(conversation.messages):
        if message.get("role") == "assistant" and index:
            alive.append(view(conversation.messages[:index]))
            bill.charge(alive[-1], sizes, conversation.times.get(index, ""))
    return bill


def _run_in_window(conversation: RecordedConversation, shorten: Shorten, window: int, target: int, bill: Bill) -> Bill:
    sizes = dict[int, int]()
    context: list[RawMessage] = []
    alive = list[list[RawMessage]]()
    for index, message in enumerate(conversation.messages):
        if message.get("role") == "assistant" and context:
            if sum(_size(item, sizes) for item in context) > window:
                context = shorten(context, target)
                alive.append(list(context))
                bill.compactions += 1
            bill.charge(context, sizes, conversation.times.get(index, ""))
        context.append(message)
    return bill


def _shorten(method: str) -> Shorten:
    run = find_method(method)

    def shorten(context: list[RawMessage], budget: int) -> list[RawMessage]:
        made = run(context, budget)
        return list(made if isinstance(made, list) else made.messages)

    return shorten
