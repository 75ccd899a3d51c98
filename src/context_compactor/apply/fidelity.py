"""What became of what was removed: counted, not assumed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from context_compactor.classify.names import NameTable
from context_compactor.facts.fact import Fact
from context_compactor.messages.message import Message, Opaque, Text, ToolCall, ToolResult
from context_compactor.messages.references import reference_id
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
    removed: Sequence[tuple[str, set[int]]], standing: set[int], names: NameTable, reachable: set[str]
) -> Fidelity:
    """`removed` are the names of each removed text with the id of its original; `standing` those of the new context."""
    gone: set[int] = set()
    found: set[int] = set()
    home: dict[int, str] = {}
    for ref, ids in removed:
        gone |= ids
        if ref in reachable:
            found |= ids
        else:
            home.update(dict.fromkeys(ids, ref))
    lost = sorted(gone - standing - found)
    missing = tuple(Missing("identifier", names.names[name], home[name]) for name in lost)
    retained = len(gone & standing)
    return Fidelity(retained, len(gone) - retained - len(missing), missing)


_CHECKED = ("failure", "constraint", "decision")
_START = 60


def add_facts(fidelity: Fidelity, facts: Iterable[Fact], text: str, reachable: set[str]) -> Fidelity:
    """The same with the failures, rules and decisions of the folded turns, each looked for by its first words."""
    flat = " ".join(text.split())
    retained, behind, missing = fidelity.retained, fidelity.reachable, list(fidelity.missing)
    for fact in facts:
        if fact.kind in _CHECKED:
            if " ".join(fact.content.split())[:_START] in flat:
                retained += 1
            elif reference_id("turn", fact.turn) in reachable:
                behind += 1
            else:
                missing.append(Missing(fact.kind, fact.content[:200], fact.ref))
    return Fidelity(retained, behind, tuple(missing))
