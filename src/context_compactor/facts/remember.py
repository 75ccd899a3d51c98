"""What the record must say whatever is chosen: the user's task, and the ledger lines that may not be left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import ledger_lines, merge_lines
from context_compactor.messages.record import SECTIONS, Quote, Record
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn
from context_compactor.plan.options import Line

FAILED = "Failed before, do not repeat"
# Shares of the target: a quoted message of the user, and all ledger lines but the failures.
_QUOTE_SHARE = 0.12
_LEDGER_SHARE = 0.2


class Remembered(Struct, frozen=True):
    """Quotes and lines that stay, and lines that compete with everything else."""

    quotes: tuple[Quote, ...]
    must: tuple[Line, ...]
    optional: tuple[Line, ...]


def remember(
    facts: Iterable[Fact], turns: Sequence[Turn], past: Record | None, target: int, count: Callable[[str], int]
) -> Remembered:
    """Sort what is known of the folded turns. `turns` are those that are folded."""
    gone = {turn.number for turn in turns}
    fresh = ledger_lines(fact for fact in facts if fact.turn in gone or fact.last_turn in gone)
    lines = [*_past_lines(past), *fresh]
    quotes = _quotes(turns, past, int(_QUOTE_SHARE * target), count)
    quoted = {quote.ref for quote in quotes}
    lines = [line for line in lines if not (line.section == "Task" and any(ref in line.text for ref in quoted))]
    must, optional = _within(lines, int(_LEDGER_SHARE * target), count)
    return Remembered(quotes, _merged(must), tuple(optional))


def _past_lines(past: Record | None) -> list[Line]:
    if past is None:
        return []
    return [Line(title, text, 0, title == FAILED) for title in SECTIONS for text in past.sections.get(title, ())]


def _quotes(turns: Sequence[Turn], past: Record | None, most: int, count: Callable[[str], int]) -> tuple[Quote, ...]:
    """The first and the newest request among the folded turns, whole, when they are not too long."""
    spoken = [turn for turn in turns if turn.role == "user" and not turn.exchanges and turn.messages[0].text.strip()]
    fresh = [Quote(reference_id("turn", turn.number), turn.messages[0].text.strip("\n")) for turn in spoken]
    known = [*(past.quotes if past else ()), *fresh]
    kept = dict.fromkeys((*known[:1], *known[-1:]))
    return tuple(quote for quote in kept if count(quote.text) <= most)


def _within(lines: Sequence[Line], most: int, count: Callable[[str], int]) -> tuple[list[Line], list[Line]]:
    """All failures stay; other lines that must stay do so, newest first, within their share."""
    must: list[Line] = []
    optional: list[Line] = []
    room = most
    for line in sorted(lines, key=lambda line: -line.turn):
        cost = count(line.text) if line.must and line.section != FAILED else 0
        if line.must and cost <= room:
            must.append(line)
            room -= cost
        else:
            optional.append(line)
    return must, optional


def _merged(lines: Sequence[Line]) -> tuple[Line, ...]:
    merged: list[Line] = []
    for title in SECTIONS:
        texts = [line.text for line in sorted(lines, key=lambda line: line.turn) if line.section == title]
        merged.extend(Line(title, text, 0, True) for text in merge_lines(texts, ()))
    return tuple(merged)
