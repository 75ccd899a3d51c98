"""What became of what was removed: counted, not assumed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from context_compactor.archive.archive import Archive
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
    removed: Sequence[tuple[str, str]], text: str, names: NameTable, archive: Archive, visible: set[str]
) -> Fidelity:
    """`removed` are texts with the id of their original; `visible` are the ids that the new context shows."""
    standing = names.ids(text)
    gone: dict[int, str] = {}
    for ref, words in removed:
        for name in names.ids(words):
            if name not in standing or gone.get(name, "") not in visible:
                gone[name] = ref
    retained = sum(1 for name in gone if name in standing)
    lost = [name for name, ref in gone.items() if name not in standing and not (ref in visible and ref in archive)]
    missing = tuple(Missing("identifier", name, gone[at]) for at, name in zip(lost, names.text_of(lost), strict=True))
    return Fidelity(retained, len(gone) - retained - len(missing), missing)
