"""The turns of a history: where each begins, and each as a line of a list with what became of it."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from context_compactor.archive.originals import ids_of
from context_compactor.dialects.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from context_compactor.dialects.turns import Turn, reference_id, split_turns
from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier
from context_compactor.facts.calls import describe_call, file_path_of
from context_compactor.facts.kinds import Kind, kind_of
from context_compactor.tokens.counting import MessageCounter
from context_compactor.tui.sources.base import TextPiece, TurnLine

# What comes next may belong to one of the last turns: these are looked at again.
_REOPENED_TURNS = 8


class TurnSpan(Struct, frozen=True):
    """Messages that hold some turns whole: from one index up to another, and what to number and skip there."""

    start: int
    end: int
    first_turn: int
    first_call: int
    skip: int
    count: int

    def turns(self, messages: Sequence[Message]) -> list[Turn]:
        """The turns that were asked for, of the messages of this span."""
        found = split_turns(messages, self.first_turn, self.first_call)
        return found[self.skip : self.skip + self.count]


class TurnIndex:
    """Knows the turns of the messages it was shown. It keeps four numbers for each and no text."""

    def __init__(self) -> None:
        self.messages = 0
        """How many messages it was shown."""
        self._before = array("q")
        self._turn = array("q")
        self._call = array("q")
        self._is_clean = array("b")

    def __len__(self) -> int:
        return len(self._before)

    @property
    def wanted(self) -> int:
        """The index of the message from which on to show it more: some that it has seen are needed again."""
        return self._before[self._open()] if self._before else 0

    def _open(self) -> int:
        return self._clean_from(max(len(self) - _REOPENED_TURNS, 0))

    def _clean_from(self, at: int) -> int:
        while not self._is_clean[at]:
            at -= 1
        return at

    def take(self, messages: Sequence[Message]) -> None:
        """See messages, those from `wanted` on; the new ones behind those that were seen before."""
        at, turn, call = 0, 1, 1
        if self._before:
            at = self._open()
            turn, call = self._turn[at], self._call[at]
        start = self._before[at] if self._before else 0
        for kept in (self._before, self._turn, self._call, self._is_clean):
            del kept[at:]
        places = {id(message): start + index for index, message in enumerate(messages)}
        before = start
        for found in split_turns(messages, turn, call):
            self._before.append(before)
            self._turn.append(turn)
            self._call.append(call)
            # Instructions may stand between a call and its result; the turn around them begins before them.
            self._is_clean.append(min(places[id(each)] for each in found.messages) >= before)
            before += len(found.messages)
            turn += not found.is_fixed
            call += len(found.exchanges)
        self.messages = start + len(messages)

    def span(self, first: int, count: int) -> TurnSpan:
        """The messages to read for these turns."""
        first = min(max(first, 0), len(self))
        count = min(max(count, 0), len(self) - first)
        if not count:
            return TurnSpan(0, 0, 1, 1, 0, 0)
        start, end = self._clean_from(first), first + count
        while end < len(self) and not self._is_clean[end]:
            end += 1
        until = self._before[end] if end < len(self) else self.messages
        return TurnSpan(self._before[start], until, self._turn[start], self._call[start], first - start, count)


_MAX_TEXT = 300
_IN_CONTEXT = "in the context, word for word"


class TurnVerdict(Struct, frozen=True):
    """What a compaction said of a target. `order` counts the compactions."""

    order: int
    tier: Tier
    tokens: int
    reason: str


class TurnDecisions:
    """What became of every turn, as the reports of the compactions that count say. The last word counts."""

    def __init__(self, reports: Iterable[Report]) -> None:
        self._turns: dict[int, list[TurnVerdict]] = {}
        self._refs: dict[str, TurnVerdict] = {}
        self.archived: set[str] = set()
        for order, report in enumerate(reports):
            self._take(order, report)

    def _take(self, order: int, report: Report) -> None:
        for kept in report.preserved:
            known = self._turns.setdefault(kept.turn, [])
            if known and known[-1].order < order:
                known.clear()
            known.append(TurnVerdict(order, Tier.KEEP, kept.tokens, kept.reason))
        for original in report.archived:
            self.archived.add(original.id)
            why = f"its original is archived: {original.recovery}"
            self._refs[original.id] = TurnVerdict(order, Tier.REFERENCE, original.tokens, why)
        for short in report.summarized:
            self._refs[short.id] = TurnVerdict(order, Tier.SUMMARIZE, short.tokens, short.reason)
        for gone in report.discarded:
            self._refs[gone.id] = TurnVerdict(order, Tier.DROP, gone.tokens, gone.reason)

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


def turn_line(at: int, turn: Turn, counter: MessageCounter, decided: TurnDecisions) -> TurnLine:
    """A turn as a line."""
    refs = [] if turn.is_fixed else ids_of(turn)
    tier, reason = (Tier.KEEP, "instructions are never touched") if turn.is_fixed else decided.of(turn.number, refs)
    return TurnLine(
        at=at,
        number=turn.number,
        role=turn.role,
        words=_turn_text(turn),
        kind=_turn_kind(turn),
        tokens=sum(counter.count_many(turn.messages)),
        tier=tier,
        reason=reason,
        refs=tuple(ref for ref in refs if ref in decided.archived),
    )


def _turn_text(turn: Turn) -> str:
    said = next((message.text for message in turn.messages if message.text.strip()), "")[:_MAX_TEXT]
    calls = ", ".join(describe_call(exchange.call) for exchange in turn.exchanges[:5] if exchange.call)
    return " · ".join(part for part in (said, calls) if part)


def _turn_kind(turn: Turn) -> str:
    results = [exchange for exchange in turn.exchanges if exchange.result is not None]
    if not results:
        return Kind.TALK.value
    largest = max(results, key=lambda exchange: len(exchange.result.text) if exchange.result else 0)
    return kind_of(largest.call, largest.result.text if largest.result else "").value


def turn_pieces(turn: Turn) -> list[TextPiece]:
    """A turn in full, part by part."""
    calls = {exchange.call.id: exchange.call for exchange in turn.exchanges if exchange.call}
    return [piece for message in turn.messages for piece in _message_pieces(message, calls)]


def _message_pieces(message: Message, calls: dict[str, ToolCall]) -> Iterator[TextPiece]:
    for part in message.parts:
        match part:
            case Text(text=text):
                yield TextPiece(message.role, text, role=message.role)
            case Thinking(text=text):
                yield TextPiece("thinking", text or "(sealed)", role="thinking")
            case ToolCall(name=name, arguments=arguments):
                yield TextPiece(f"call of {name}", _indented(arguments), "arguments.json", "call")
            case ToolResult(call_id=call_id, text=text, is_error=failed):
                call = calls.get(call_id)
                title = f"{'failed' if failed else 'result of'} {describe_call(call) if call else call_id}"
                yield TextPiece(title, text, (file_path_of(call) if call else None) or "", "result")
            case Media(kind=kind, media_type=media_type, byte_size=size):
                yield TextPiece(kind, f"{media_type or kind}, {size:,} bytes", role=message.role)
            case Opaque(type=kind, text=text):
                yield TextPiece(kind, text, role=message.role)


def _indented(arguments: str) -> str:
    """JSON over several lines; anything else as it is."""
    try:
        return msgspec.json.format(arguments, indent=2)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return arguments
