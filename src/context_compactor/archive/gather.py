"""Gather the originals of everything a plan takes out of the context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from context_compactor.archive.archive import Original
from context_compactor.classify.calls import target_of
from context_compactor.classify.kinds import Voice, restore_hint
from context_compactor.classify.references import reference_of
from context_compactor.classify.rules import Verdict, Verdicts
from context_compactor.messages.client_text import is_client_text, without_client_blocks
from context_compactor.messages.copying import copy_containers
from context_compactor.messages.message import Message, ToolCall, ToolResult
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import ToolUse, Turn
from context_compactor.plan.zones import Zone
from context_compactor.tracing import traced

_SUMMARY = 80


@traced("archive")
def gather_originals(
    turns: Sequence[Turn],
    zones: dict[int, Zone],
    edits: dict[tuple[int, int], dict[int, str | None]],
    verdicts: Verdicts,
    tokens: dict[int, int],
    cited: set[str],
) -> Iterator[Original]:
    """Every turn that is folded, edited or cited by the record, whole, and every result in it by itself."""
    edited = {number for (number, _), changes in edits.items() if changes}
    for turn in turns:
        leaves = zones[turn.number] is Zone.FOLDED or turn.number in edited or not cited.isdisjoint(ids_of(turn))
        if leaves:
            yield turn_original(turn, tokens[turn.number])
            changed = None if zones[turn.number] is Zone.FOLDED else _changed_results(turn, edits)
            for exchange in turn.exchanges:
                result = exchange.result
                is_gone = result is not None and (changed is None or result.call_id in changed)
                if is_gone or (result is not None and reference_of(exchange) in cited):
                    yield result_original(exchange, verdicts.exchanges[exchange.number])


def _changed_results(turn: Turn, edits: dict[tuple[int, int], dict[int, str | None]]) -> set[str]:
    """The calls whose results are shortened where they stand."""
    return {
        part.call_id
        for at, index, _, part in turn.parts()
        if isinstance(part, ToolResult) and index in edits.get((turn.number, at), {})
    }


def ids_of(turn: Turn) -> list[str]:
    """Every id under which a turn or one of its results is archived."""
    return [reference_id("turn", turn.number), *(reference_of(exchange) for exchange in turn.exchanges)]


def turn_original(turn: Turn, tokens: int) -> Original:
    """The original of one turn."""
    value = [copy_containers(message.raw) for message in turn.messages]
    ref = reference_id("turn", turn.number)
    return Original(ref, "turn", turn_summary(turn.messages), tokens, value, f'recall("{ref}")')


def turn_summary(messages: Sequence[Message]) -> str:
    """Who speaks in a turn, and its first words; the calls of a turn without words, in brackets."""
    text = messages[0].text
    words = " ".join((without_client_blocks(text).strip() or text).split())
    if not words:
        words = f"[{'; '.join(_call_line(call) for message in messages for call in message.calls)}]"
    return f"{messages[0].role}: {words[:_SUMMARY]}"


def _call_line(call: ToolCall) -> str:
    return " ".join(f"{call.name} {target_of(call)}".split())[:_SUMMARY]


def voice_told(summary: str) -> str:
    """Whose words a turn's summary says it holds: the user's, the agent's, or nobody's."""
    role, _, words = summary.partition(": ")
    if role == "user":
        return "" if is_client_text(words) or words.startswith("<") else Voice.USER.value
    return Voice.AGENT.value if role == "assistant" and words and not words.startswith("[") else ""


def result_original(exchange: ToolUse, verdict: Verdict) -> Original:
    """The original of one result."""
    result = exchange.result
    content = result.content if result is not None and result.content is not None else result.text if result else ""
    tokens = len(result.text) // 4 if result else 0
    hint = restore_hint(verdict.kind)
    target = verdict.path or (target_of(exchange.call) if exchange.call else "") or verdict.label
    recovery = f'recall("{verdict.ref}")' + (f", or {hint}: {verdict.path or verdict.label}" if hint else "")
    value = copy_containers(content)
    return Original(
        verdict.ref, verdict.kind.value, verdict.label, tokens, value, recovery, hint, target if hint else ""
    )
