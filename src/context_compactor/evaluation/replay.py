"""COST: what a session costs when it lives in a small window, against never compacting."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from context_compactor.evaluation.baselines import mask_old_outputs
from context_compactor.evaluation.corpus import AGENT_SOURCES, RecordedConversation, default_corpus, load
from context_compactor.evaluation.messages import RawMessage, count_message
from context_compactor.evaluation.methods import COMPACTOR, find_method
from context_compactor.evaluation.output import mean, show
from context_compactor.evaluation.pool import spread

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


def _replay_one(shared: tuple[list[RecordedConversation], str, int], index: int) -> ReplayResult | None:
    conversations, method, share = shared
    return replay(conversations[index], method, share)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _options(arguments)
    loaded = [item for source in options.sources.split(",") for item in load(options.corpus, source)[:: options.every]]
    for method in options.method.split(","):
        done = spread(_replay_one, (loaded, method, options.share), range(len(loaded)), options.jobs)
        bills = [bill for bill in done if bill]
        show(_row(method, bills))
        sources = dict.fromkeys(bill.source for bill in bills)
        show(*(_row(f"  {source}", [bill for bill in bills if bill.source == source]) for source in sources))
    return 0


def _row(name: str, bills: Sequence[ReplayResult]) -> str:
    """The mean over conversations, and all that was billed with the method against all without."""
    average = mean(bill.cost / bill.plain for bill in bills) or 0.0
    whole = sum(bill.cost for bill in bills) / (sum(bill.plain for bill in bills) or 1.0)
    compactions = mean(bill.compactions for bill in bills) or 0.0
    return f"{name:28}{len(bills):4} {average:6.3f} (all together {whole:.3f}), {compactions:.1f} compactions each"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quality.replay", description=__doc__)
    parser.add_argument("--method", default=COMPACTOR, help=f"methods of quality.run, or {EVERY_TURN}")
    parser.add_argument("--share", type=int, default=25, help="bring the context down to this percentage of the window")
    parser.add_argument("--sources", default=",".join(AGENT_SOURCES))
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--corpus", type=Path, default=default_corpus())
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
