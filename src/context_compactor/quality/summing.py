"""From single scores to the rows that are shown: means over samples, by method, budget and source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from context_compactor.quality.gauges import Errors
from context_compactor.quality.outcome import ALL, Cost, CountError, Row, SampleScore, Trouble
from context_compactor.quality.replay import Replay
from context_compactor.quality.scoring import COLUMNS, Score
from context_compactor.quality.tables import mean
from context_compactor.quality.told import ToldRow, told_row

NAMES = {"RESTOR": "RESTORE", "size": "SIZE"}
SHOWN = tuple(NAMES.get(name, name) for name in COLUMNS)


class _OfSource(Protocol):
    @property
    def source(self) -> str: ...


Item = TypeVar("Item", bound=_OfSource)


class Scored(Struct, frozen=True):
    """A method's score.

    `instructions` are the tokens of the system prompt, where the context did not fit; `refusal` says why a method made
    no context at all.
    """

    method: str
    score: Score
    instructions: int = 0
    refusal: str = ""


def score_rows(scored: Sequence[Scored], pairs: Iterable[tuple[str, str]]) -> Iterator[Row]:
    """For each method and budget the means over all samples, then those of each source."""
    for method, budget in pairs:
        same = [item.score for item in scored if (item.method, item.score.budget) == (method, budget)]
        yield from (_row(method, budget, source, group) for source, group in _grouped(same))


def told_rows(scored: Sequence[Scored], budgets: Iterable[str]) -> Iterator[ToldRow]:
    """For each budget what a model had to do with the contexts, where there was one."""
    for budget in budgets:
        told = [item.score.told for item in scored if item.score.budget == budget and item.score.told]
        if told:
            yield told_row(budget, told)


def _grouped(items: Sequence[Item]) -> Iterator[tuple[str, Sequence[Item]]]:
    """All items, then those of each source."""
    if items:
        yield ALL, items
    for source in sorted({item.source for item in items}):
        yield source, [item for item in items if item.source == source]


def _row(method: str, budget: str, source: str, scores: Sequence[Score]) -> Row:
    shares = {NAMES.get(name, name): mean(score.shares[name] for score in scores) for name in COLUMNS}
    return Row(method, budget, source, len(scores), sum(not score.fits for score in scores), shares)


def sample_rows(scored: Iterable[Scored]) -> Iterator[SampleScore]:
    """Every single score, for programs."""
    for item in scored:
        score = item.score
        shares = {NAMES.get(name, name): score.shares[name] for name in COLUMNS}
        yield SampleScore(
            score.sample, score.source, item.method, score.budget, score.tokens, score.limit, score.fits, shares
        )


def misfits(scored: Iterable[Scored]) -> Iterator[Trouble]:
    """The contexts over their budget; they count as nothing kept."""
    for item in scored:
        score = item.score
        if not score.fits:
            size = f"{score.tokens:,} tokens for a budget of {score.limit:,}"
            why = f"; its instructions alone have {item.instructions:,}" if item.instructions > score.limit else ""
            yield Trouble(item.method, score.budget, score.sample, item.refusal or size + why)


def illegal(scored: Iterable[Scored]) -> Iterator[Trouble]:
    """The contexts that a provider would refuse."""
    for item in scored:
        if item.score.problems:
            yield Trouble(item.method, item.score.budget, item.score.sample, item.score.problems[0])


def cost_rows(bills: Sequence[tuple[str, Replay]]) -> Iterator[Cost]:
    """For each method what was billed against never compacting, over all and by source."""
    for method in dict.fromkeys(name for name, _ in bills):
        own = [bill for name, bill in bills if name == method]
        yield from (_cost(method, source, group) for source, group in _grouped(own))


def _cost(method: str, source: str, bills: Sequence[Replay]) -> Cost:
    average = mean(bill.cost / bill.plain for bill in bills) or 0.0
    together = sum(bill.cost for bill in bills) / (sum(bill.plain for bill in bills) or 1.0)
    return Cost(method, source, len(bills), average, together, mean(bill.compactions for bill in bills) or 0.0)


def count_rows(errors: Sequence[Errors]) -> Iterator[CountError]:
    """The mean errors of the gauge over all replies, and over those of each source."""
    yield from (_count(source, group) for source, group in _grouped(errors))


def _count(source: str, errors: Sequence[Errors]) -> CountError:
    anchored = mean(error for item in errors for error in item.anchored)
    blind = mean(error for item in errors for error in item.blind)
    return CountError(source, len(errors), sum(item.replies for item in errors), anchored, blind)
