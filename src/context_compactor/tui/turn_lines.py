"""Turns as lines of a list: in a few words, with what they weigh, what they are, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from context_compactor.archive.gather import ids_of
from context_compactor.classify.calls import describe, file_path_of
from context_compactor.classify.kinds import Kind, kind_of
from context_compactor.classify.tier import Tier
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.message import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn
from context_compactor.report import Report
from context_compactor.tui.values import Piece, TurnLine

_WORDS = 300
_IN_CONTEXT = "in the context, word for word"


class Verdict(Struct, frozen=True):
    """What a compaction said of a target. `order` counts the compactions."""

    order: int
    tier: Tier
    tokens: int
    reason: str


class Decided:
    """What became of every turn, as the reports of the compactions that count say. The last word counts."""

    def __init__(self, reports: Iterable[Report]) -> None:
        self._turns: dict[int, list[Verdict]] = {}
        self._refs: dict[str, Verdict] = {}
        self.archived: set[str] = set()
        for order, report in enumerate(reports):
            self._take(order, report)

    def _take(self, order: int, report: Report) -> None:
        for kept in report.preserved:
            known = self._turns.setdefault(kept.turn, [])
            if known and known[-1].order < order:
                known.clear()
            known.append(Verdict(order, Tier.KEEP, kept.tokens, kept.reason))
        for original in report.archived:
            self.archived.add(original.id)
            why = f"its original is archived: {original.recovery}"
            self._refs[original.id] = Verdict(order, Tier.REFERENCE, original.tokens, why)
        for short in report.summarized:
            self._refs[short.id] = Verdict(order, Tier.SUMMARIZE, short.tokens, short.reason)
        for gone in report.discarded:
            self._refs[gone.id] = Verdict(order, Tier.DROP, gone.tokens, gone.reason)

    def of(self, number: int, refs: Iterable[str]) -> tuple[Tier, str]:
        """The tier of a turn and why: what most of its tokens have become. Of what nobody spoke of, all is kept."""
        own = {ref: self._refs[ref] for ref in refs if ref in self._refs}
        kept = self._turns.get(number, [])
        last = max((verdict.order for verdict in (*own.values(), *kept)), default=-1)
        found = [verdict for verdict in (*own.values(), *kept) if verdict.order == last]
        # A turn is archived whole whatever became of its parts, so that alone says least.
        whole = own.get(reference_id("turn", number))
        telling = [verdict for verdict in found if verdict is not whole or verdict.tier is not Tier.REFERENCE] or found
        if not telling:
            return Tier.KEEP, _IN_CONTEXT
        weights: Counter[Tier] = Counter()
        for verdict in telling:
            # A result that the record cites is archived although it stays.
            weights[verdict.tier] += max(verdict.tokens, 1) * (2 if verdict.tier is Tier.KEEP else 1)
        tier = weights.most_common(1)[0][0]
        return tier, max((each for each in telling if each.tier is tier), key=lambda each: each.tokens).reason


def line_of(at: int, turn: Turn, counter: MessageCounter, decided: Decided) -> TurnLine:
    """A turn as a line."""
    refs = [] if turn.is_instruction else ids_of(turn)
    tier, reason = (
        (Tier.KEEP, "instructions are never touched") if turn.is_instruction else decided.of(turn.number, refs)
    )
    return TurnLine(
        at=at,
        number=turn.number,
        role=turn.role,
        words=_words(turn),
        kind=_kind(turn),
        tokens=sum(counter.count_many(turn.messages)),
        tier=tier,
        reason=reason,
        refs=tuple(ref for ref in refs if ref in decided.archived),
    )


def _words(turn: Turn) -> str:
    said = next((message.text for message in turn.messages if message.text.strip()), "")[:_WORDS]
    calls = ", ".join(describe(exchange.call) for exchange in turn.exchanges[:5] if exchange.call)
    return " · ".join(part for part in (said, calls) if part)


def _kind(turn: Turn) -> str:
    results = [exchange for exchange in turn.exchanges if exchange.result is not None]
    if not results:
        return Kind.TALK.value
    largest = max(results, key=lambda exchange: len(exchange.result.text) if exchange.result else 0)
    return kind_of(largest.call, largest.result.text if largest.result else "").value


def pieces_of(turn: Turn) -> list[Piece]:
    """A turn in full, part by part."""
    calls = {exchange.call.id: exchange.call for exchange in turn.exchanges if exchange.call}
    return [piece for message in turn.messages for piece in _pieces(message, calls)]


def _pieces(message: Message, calls: dict[str, ToolCall]) -> Iterator[Piece]:
    for part in message.parts:
        match part:
            case Text(text=text):
                yield Piece(message.role, text, role=message.role)
            case Thinking(text=text):
                yield Piece("thinking", text or "(sealed)", role="thinking")
            case ToolCall(name=name, arguments=arguments):
                yield Piece(f"call of {name}", _indented(arguments), "arguments.json", "call")
            case ToolResult(call_id=call_id, text=text, is_error=failed):
                call = calls.get(call_id)
                title = f"{'failed' if failed else 'result of'} {describe(call) if call else call_id}"
                yield Piece(title, text, (file_path_of(call) if call else None) or "", "result")
            case Media(kind=kind, media_type=media_type, byte_size=size):
                yield Piece(kind, f"{media_type or kind}, {size:,} bytes", role=message.role)
            case Opaque(type=kind, text=text):
                yield Piece(kind, text, role=message.role)


def _indented(arguments: str) -> str:
    """JSON over several lines; anything else as it is."""
    try:
        return msgspec.json.format(arguments, indent=2)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return arguments
