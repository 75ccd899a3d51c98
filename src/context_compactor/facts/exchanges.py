"""Every call of a history with what it says about itself."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from context_compactor.classify.calls import Reading, is_own, read_call
from context_compactor.messages.turn import ToolUse, Turn

Called = tuple[int, ToolUse, Reading]


def calls_of(turns: Iterable[Turn]) -> list[Called]:
    """Turn number, exchange and reading of each call, in order; results without their call are passed over.

    So is what our own server was asked. A result that only stands in for one that was never recorded is none.
    """
    return [
        (
            turn.number,
            structs.replace(exchange, result=None) if exchange.is_lost else exchange,
            read_call(exchange.call),
        )
        for turn in turns
        for exchange in turn.exchanges
        if exchange.call is not None and not is_own(exchange.call)
    ]
