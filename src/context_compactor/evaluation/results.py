"""What an evaluation found, as one value, and the means over samples that it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from context_compactor.evaluation.counting import CountErrors
from context_compactor.evaluation.inputs import Skipped
from context_compactor.evaluation.losses import Loss
from context_compactor.evaluation.methods import ModelUseRow, model_use_row
from context_compactor.evaluation.output import mean
from context_compactor.evaluation.replay import ReplayResult
from context_compactor.evaluation.scoring import COLUMNS, Score

ALL = "all"


class Inputs(Struct, frozen=True):
    """What was read. `every` is the step with which conversations were taken, `samples` the places they were cut at."""

    files: int
    conversations: int
    too_short: int
    every: int
    taken: int
    samples: int
    real: int
    projects: int
    common_names: int
    skipped: tuple[Skipped, ...] = ()


class ScoreRow(Struct, frozen=True):
    """The means of one method at one budget, over all samples or those of one source. Shares are from 0 to 1."""

    method: str
    budget: str
    source: str
    samples: int
    misfits: int
    shares: dict[str, float | None]


class RejectedContext(Struct, frozen=True):
    """A context that did not fit or that a provider would refuse."""

    method: str
    budget: str
    sample: str
    reason: str


class ReplayCost(Struct, frozen=True):
    """What sessions cost with a method against never compacting: the mean ratio, and that of all bills together."""

    method: str
    source: str
    conversations: int
    mean: float
    together: float
    compactions: float


class CountError(Struct, frozen=True):
    """The mean error of the token gauge over the replies of one source, as a share of what the provider reported."""

    source: str
    conversations: int
    replies: int
    anchored: float | None
    blind: float | None


class DialogueScore(Struct, frozen=True):
    """The share of questions whose evidence was all retrieved, over all and by kind."""

    search: str
    tokens: int
    questions: int
    share: float
    kinds: dict[str, float]


class SampleScore(Struct, frozen=True):
    """One method on one sample at one budget."""

    sample: str
    source: str
    method: str
    budget: str
    tokens: int
    limit: int
    fits: bool
    shares: dict[str, float | None]


class Evaluation(Struct, frozen=True, kw_only=True):
    """Everything that was measured."""

    version: str
    budgets: tuple[str, ...]
    methods: tuple[str, ...]
    inputs: Inputs
    model: str = ""
    """The model that `compactor+model` asked; empty when none was."""
    rows: tuple[ScoreRow, ...] = ()
    model_use: tuple[ModelUseRow, ...] = ()
    losses: tuple[Loss, ...] = ()
    costs: tuple[ReplayCost, ...] = ()
    counts: tuple[CountError, ...] = ()
    dialogues: tuple[DialogueScore, ...] = ()
    misfits: tuple[RejectedContext, ...] = ()
    illegal: tuple[RejectedContext, ...] = ()
    samples: tuple[SampleScore, ...] = ()

    def row(self, method: str, budget: str, source: str = ALL) -> ScoreRow | None:
        """The means of a method at a budget."""
        same = (row for row in self.rows if (row.method, row.budget, row.source) == (method, budget, source))
        return next(same, None)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that have samples."""
        return tuple(dict.fromkeys(row.source for row in self.rows if row.source != ALL))

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as plain JSON values, with what each measure means."""
        from context_compactor.evaluation.descriptions import MEASURE_DESCRIPTIONS

        meanings = {name: words.meaning for name, words in MEASURE_DESCRIPTIONS.items()}
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {**fields, "measures": meanings}


NAMES = {"RESTOR": "RESTORE", "size": "SIZE"}
SHOWN = tuple(NAMES.get(name, name) for name in COLUMNS)


class _OfSource(Protocol):
    @property
    def source(self) -> str: ...


_Sourced = TypeVar("_Sourced", bound=_OfSource)


class MethodScore(Struct, frozen=True):
    """A method's score.

    `instructions` are the tokens of the system prompt, where the context did not fit; `refusal` says why a method made
    no context at all.
    """

    method: str
    score: Score
    instructions: int = 0
    refusal: str = ""


def score_rows(scored: Sequence[MethodScore], pairs: Iterable[tuple[str, str]]) -> Iterator[ScoreRow]:
    """For each method and budget the means over all samples, then those of each source."""
    for method, budget in pairs:
        same = [item.score for item in scored if (item.method, item.score.budget) == (method, budget)]
        yield from (_row(method, budget, source, group) for source, group in _grouped(same))


def model_use_rows(scored: Sequence[MethodScore], budgets: Iterable[str]) -> Iterator[ModelUseRow]:
    """For each budget what a model had to do with the contexts, where there was one."""
    for budget in budgets:
        uses = [item.score.model_use for item in scored if item.score.budget == budget and item.score.model_use]
        if uses:
            yield model_use_row(budget, uses)


def _grouped(items: Sequence[_Sourced]) -> Iterator[tuple[str, Sequence[_Sourced]]]:
    """All items, then those of each source."""
    if items:
        yield ALL, items
    for source in sorted({item.source for item in items}):
        yield source, [item for item in items if item.source == source]


def _row(method: str, budget: str, source: str, scores: Sequence[Score]) -> ScoreRow:
    shares = {NAMES.get(name, name): mean(score.shares[name] for score in scores) for name in COLUMNS}
    return ScoreRow(method, budget, source, len(scores), sum(not score.fits for score in scores), shares)


def sample_rows(scored: Iterable[MethodScore]) -> Iterator[SampleScore]:
    """Every single score, for programs."""
    for item in scored:
        score = item.score
        shares = {NAMES.get(name, name): score.shares[name] for name in COLUMNS}
        yield SampleScore(
            score.sample, score.source, item.method, score.budget, score.tokens, score.limit, score.fits, shares
        )


def misfits(scored: Iterable[MethodScore]) -> Iterator[RejectedContext]:
    """The contexts over their budget; they count as nothing kept."""
    for item in scored:
        score = item.score
        if not score.fits:
            size = f"{score.tokens:,} tokens for a budget of {score.limit:,}"
            why = f"; its instructions alone have {item.instructions:,}" if item.instructions > score.limit else ""
            yield RejectedContext(item.method, score.budget, score.sample, item.refusal or size + why)


def illegal(scored: Iterable[MethodScore]) -> Iterator[RejectedContext]:
    """The contexts that a provider would refuse."""
    for item in scored:
        if item.score.problems:
            yield RejectedContext(item.method, item.score.budget, item.score.sample, item.score.problems[0])


def cost_rows(bills: Sequence[tuple[str, ReplayResult]]) -> Iterator[ReplayCost]:
    """For each method what was billed against never compacting, over all and by source."""
    for method in dict.fromkeys(name for name, _ in bills):
        own = [bill for name, bill in bills if name == method]
        yield from (_cost(method, source, group) for source, group in _grouped(own))


def _cost(method: str, source: str, bills: Sequence[ReplayResult]) -> ReplayCost:
    average = mean(bill.cost / bill.plain for bill in bills) or 0.0
    together = sum(bill.cost for bill in bills) / (sum(bill.plain for bill in bills) or 1.0)
    return ReplayCost(method, source, len(bills), average, together, mean(bill.compactions for bill in bills) or 0.0)


def count_rows(errors: Sequence[CountErrors]) -> Iterator[CountError]:
    """The mean errors of the gauge over all replies, and over those of each source."""
    yield from (_count(source, group) for source, group in _grouped(errors))


def _count(source: str, errors: Sequence[CountErrors]) -> CountError:
    anchored = mean(error for item in errors for error in item.anchored)
    blind = mean(error for item in errors for error in item.blind)
    return CountError(source, len(errors), sum(item.replies for item in errors), anchored, blind)
