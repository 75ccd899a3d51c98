"""One conversation in all measures: every method at every budget, the cost replay, the error of the token count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from msgspec import Struct

from context_compactor.errors import CompactorError
from context_compactor.protocols import Model
from context_compactor.quality.gather import Talk
from context_compactor.quality.gauges import Errors, count_errors
from context_compactor.quality.identifiers import identifiers
from context_compactor.quality.losses import Loss, added, losses
from context_compactor.quality.measures import nothing_kept
from context_compactor.quality.methods import (
    HANDOFF_BUDGET,
    REAL,
    SUMMARY,
    WITH_MODEL,
    BadMethod,
    budget_tokens,
    suits,
)
from context_compactor.quality.prepared import Sample, prepare
from context_compactor.quality.reading import is_instruction
from context_compactor.quality.replay import EVERY_TURN, Replay, replay
from context_compactor.quality.scoring import COLUMNS, Asked, Judged, Score, judge
from context_compactor.quality.search import Search, plain_search
from context_compactor.quality.sizes import count_messages
from context_compactor.quality.summing import Scored

# A replay compacts again and again: with a model its bill would be the model's, which is shown by itself.
NOT_REPLAYED = (SUMMARY, WITH_MODEL, "everything", "nothing")


class Plan(Struct, frozen=True):
    """Which methods run at which budgets, and the identifiers that are common to many projects.

    `model` is the one that `compactor+model` asks.
    """

    pairs: tuple[tuple[str, str], ...]
    common: frozenset[str] = frozenset()
    model: str | Model | None = None

    @property
    def replayed(self) -> tuple[str, ...]:
        """The methods whose cost is replayed, and one that is known to be dear."""
        methods = (method for method, budget in self.pairs if budget != HANDOFF_BUDGET and method not in NOT_REPLAYED)
        return (*dict.fromkeys(methods), EVERY_TURN)


class Found(Struct, frozen=True):
    """What one conversation gave."""

    samples: int
    real: int
    scores: list[Scored]
    losses: list[Loss]
    bills: list[tuple[str, Replay]]
    errors: Errors | None


def study(shared: tuple[Sequence[Talk], Plan], index: int) -> Found:
    """Everything about one of the conversations."""
    talks, plan = shared
    talk = talks[index]
    samples = list(_samples(talk, plan.common))
    scores: list[Scored] = []
    lost: list[Loss] = []
    for sample in samples:
        archive = cache(lambda history=sample.history: plain_search(history))
        for method, budget in plan.pairs:
            if suits(sample, budget):
                asked = Asked(method, 0, budget, search=True, model=plan.model)
                scored, judged = _run(sample, asked, archive)
                scores.append(scored)
                lost.extend(losses(method, budget, sample, judged.kept))
    return Found(
        samples=sum(sample.cut.group != REAL for sample in samples),
        real=sum(sample.cut.group == REAL for sample in samples),
        scores=scores,
        losses=added(lost),
        bills=list(_bills(talk, plan.replayed)),
        errors=count_errors(talk.transcript, talk.conversation.source),
    )


def _samples(talk: Talk, common: frozenset[str]) -> Iterator[Sample]:
    barred = common | identifiers(talk.system)
    for cut, wanted in prepare(talk.conversation, barred):
        if cut.group != "short":
            yield Sample(talk.conversation, cut, wanted)


def _run(sample: Sample, asked: Asked, archive: Callable[[], Search]) -> tuple[Scored, Judged]:
    try:
        judged = judge(sample, asked, archive)
    except BadMethod:
        raise
    except CompactorError as error:
        judged = _refused(sample, asked.budget)
        return Scored(asked.method, judged.score, refusal=str(error)), judged
    fits = judged.score.fits
    instructions = 0 if fits else count_messages(filter(is_instruction, sample.history))
    return Scored(asked.method, judged.score, instructions), judged


def _refused(sample: Sample, budget: str) -> Judged:
    """A method that made no context kept nothing."""
    nothing = nothing_kept(sample.wanted)
    shares = dict.fromkeys(COLUMNS, None) | nothing.shares()
    limit = budget_tokens(sample, budget)
    return Judged(Score(sample.id, sample.conversation.source, budget, False, 0.0, 0, limit, shares), nothing)


def _bills(talk: Talk, methods: Sequence[str]) -> Iterator[tuple[str, Replay]]:
    for method in methods:
        try:
            bill = replay(talk.conversation, method)
        except BadMethod:
            raise
        except CompactorError:
            continue
        if bill is None:
            return
        yield method, bill
