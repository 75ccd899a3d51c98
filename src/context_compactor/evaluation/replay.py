"""COST: what a session costs when it lives in a small window, against never compacting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from context_compactor.evaluation.baselines import mask_old_outputs
from context_compactor.evaluation.corpus import RecordedConversation
from context_compactor.evaluation.messages import RawMessage, count_message
from context_compactor.evaluation.methods import find_method

WINDOW = 32_000
CACHED, WRITTEN = 0.1, 1.25
EVERY_TURN = "masking-every-turn"

Shorten = Callable[[list[RawMessage], int], list[RawMessage]]


class Bill(Struct):
    """What was billed so far, and the last prompt."""

    cost: float = 0.0
    compactions: int = 0
    last: tuple[RawMessage, ...] = ()

    def charge(self, prompt: Sequence[RawMessage], sizes: dict[int, int]) -> None:
        """Bill one prompt."""
        same = 0
        for old, new in zip(self.last, prompt, strict=False):
            if old is not new and old != new:
                break
            same += 1
        cached = sum(_size(message, sizes) for message in prompt[:same])
        total = sum(_size(message, sizes) for message in prompt)
        self.cost += CACHED * cached + WRITTEN * (total - cached)
        self.last = tuple(prompt)


class ReplayResult(Struct, frozen=True):
    """One conversation's cost without and with a method, and how often it was compacted."""

    id: str
    source: str
    plain: float
    cost: float
    compactions: int


def replay(
    conversation: RecordedConversation, method: str, share: int = 25, window: int = WINDOW
) -> ReplayResult | None:
    """Replay a conversation; None when it has less than one and a half windows."""
    sizes: dict[int, int] = {}
    if sum(_size(message, sizes) for message in conversation.messages) < window * 3 // 2:
        return None
    plain = _run_session(conversation, lambda context: context, sizes)
    if method == EVERY_TURN:
        bill = _run_session(conversation, mask_old_outputs, {})
    else:
        bill = _run_in_window(conversation, _shorten(method), window, window * share // 100)
    return ReplayResult(conversation.id, conversation.source, plain.cost, bill.cost, bill.compactions)


def _size(message: RawMessage, sizes: dict[int, int]) -> int:
    """A message's tokens; the messages of a replay live as long as it does, so their ids are keys."""
    key = id(message)
    if key not in sizes:
        sizes[key] = count_message(message)
    return sizes[key]


def _run_session(
    conversation: RecordedConversation, view: Callable[[list[RawMessage]], list[RawMessage]], sizes: dict[int, int]
) -> Bill:
    """Bill every prompt of a conversation as a view of its whole history."""
    bill, alive = Bill(), list[list[RawMessage]]()
    for index, message in enumerate(conversation.messages):
        if message.get("role") == "assistant" and index:
            alive.append(view(conversation.messages[:index]))
            bill.charge(alive[-1], sizes)
    return bill


def _run_in_window(conversation: RecordedConversation, shorten: Shorten, window: int, target: int) -> Bill:
    bill, sizes = Bill(), dict[int, int]()
    context: list[RawMessage] = []
    alive = list[list[RawMessage]]()
    for message in conversation.messages:
        if message.get("role") == "assistant" and context:
            if sum(_size(item, sizes) for item in context) > window:
                context = shorten(context, target)
                alive.append(list(context))
                bill.compactions += 1
            bill.charge(context, sizes)
        context.append(message)
    return bill


def _shorten(method: str) -> Shorten:
    run = find_method(method)

    def shorten(context: list[RawMessage], budget: int) -> list[RawMessage]:
        made = run(context, budget)
        return list(made if isinstance(made, list) else made.messages)

    return shorten
