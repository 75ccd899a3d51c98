"""Which reference an exchange gets: a file that was read, a sub-agent that ran, or any other tool."""

from __future__ import annotations

from context_compactor.classify.calls import read_call
from context_compactor.classify.kinds import Kind, kind_of
from context_compactor.messages.message import ToolCall
from context_compactor.messages.references import Prefix, reference_id
from context_compactor.messages.turn import ToolUse


def prefix_for(call: ToolCall | None) -> Prefix:
    """The first word of a call's reference; it depends on the call alone, so it never changes."""
    if call is None:
        return "tool"
    reading = read_call(call)
    if reading.reads and reading.paths:
        return "file"
    return "agent" if reading.command is None and kind_of(call, "") is Kind.SUBAGENT else "tool"


def reference_of(exchange: ToolUse) -> str:
    """The id under which an exchange is recalled."""
    return reference_id(prefix_for(exchange.call), exchange.number)
