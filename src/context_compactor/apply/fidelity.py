"""What became of what was removed: counted, not assumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from context_compactor.classify.names import NameTable
from context_compactor.messages.message import Message, Opaque, Text, ToolCall, ToolResult
from context_compactor.plan.sources import call_body
from context_compactor.report import Fidelity, Missing


def context_text(messages: Iterable[Message]) -> str:
    """Everything a model reads in a context, as one text."""
    lines: list[str] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                lines.append(f"{part.name} {call_body(part)}")
            elif isinstance(part, (Text, ToolResult, Opaque)):
                lines.append(part.text)
    return "\n".join(lines)


def weigh_fidelity(
    removed: Sequence[tuple[str, set[int]]], standing: set[int], names: NameTable, reachable: Callable[[str], bool]
) -> Fidelity:
    """`removed` are the names of each removed text with the id of its original; `standing` those of the new context."""
    home: dict[int, str] = {}
    for ref, found in removed:
        for name in found:
            if name not in home or not reachable(home[name]):
                home[name] = ref
    retained = sum(1 for name in home if name in standing)
    lost = [name for name, ref in home.items() if name not in standing and not reachable(ref)]
    missing = tuple(Missing("identifier", names.names[name], home[name]) for name in lost)
    return Fidelity(retained, len(home) - retained - len(missing), missing)
