"""One method on one sample at one budget: what it kept, whether it fits, whether a provider would take it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from context_compactor.protocols import Model
from context_compactor.quality.legality import problems
from context_compactor.quality.measures import MEASURES, Kept, kept, nothing_kept
from context_compactor.quality.methods import Made, budget_tokens, make
from context_compactor.quality.prepared import Sample
from context_compactor.quality.question import found_with_search
from context_compactor.quality.reading import RawMessage
from context_compactor.quality.restore import restored
from context_compactor.quality.search import Search, plain_search
from context_compactor.quality.sizes import count_message, count_messages
from context_compactor.quality.told import Told

COLUMNS = (*MEASURES, "1Q", "LEGAL", "RESTOR", "CACHE", "size")


class Score(Struct, frozen=True):
    """What one method did to one sample at one budget.

    `problems` says why a context is not legal, `told` what a model had to do with it.
    """

    sample: str
    source: str
    budget: str
    fits: bool
    seconds: float
    tokens: int
    limit: int
    shares: dict[str, float | None]
    problems: tuple[str, ...] = ()
    told: Told | None = None


class Asked(Struct, frozen=True):
    """What to run: a method on a sample at a budget, with or without searching and recalling, perhaps with a model."""

    method: str
    index: int
    budget: str
    search: bool
    model: str | Model | None = None


class Judged(Struct, frozen=True):
    """A score, and which of the wanted things were kept; nothing counts as kept where the context does not fit."""

    score: Score
    kept: Kept


def score(sample: Sample, asked: Asked) -> Score:
    """Run a method on one sample and look up what it kept; a context over its budget keeps nothing."""
    return judge(sample, asked).score


def judge(sample: Sample, asked: Asked, archive: Callable[[], Search] | None = None) -> Judged:
    """The score of a method with what it kept. `archive` gives the search for methods that have none of their own."""
    made = make(asked.method, sample, asked.budget, asked.model)
    limit, size = budget_tokens(sample, asked.budget), count_messages(made.messages)
    fits = size <= limit or asked.method == "everything"
    found = kept(sample.wanted, made.messages) if fits else nothing_kept(sample.wanted)
    wrong = problems(made.messages, sample.conversation.provider)
    shares = found.shares()
    shares["1Q"] = _one_question(sample, made, found.names, archive) if asked.search else None
    shares["LEGAL"] = float(not wrong)
    shares["RESTOR"] = restored(sample.history, made.messages, made.recall) if asked.search and made.recall else None
    shares["CACHE"] = prefix_share(sample.history, made.messages)
    shares["size"] = size / limit if limit else 1.0
    source = sample.conversation.source
    done = Score(sample.id, source, asked.budget, fits, made.seconds, size, limit, shares, tuple(wrong[:3]), made.told)
    return Judged(done, found)


def _one_question(
    sample: Sample, made: Made, names: Sequence[bool], archive: Callable[[], Search] | None
) -> float | None:
    search = made.search or (archive() if archive else plain_search(sample.history))
    texts = [name.text for name in sample.wanted.names]
    return found_with_search(texts, names, sample.wanted.questions, search)


def prefix_share(history: Sequence[RawMessage], context: Sequence[RawMessage]) -> float:
    """The share of the old prompt's tokens that stands unchanged at the start of the new one."""
    same = 0
    for old, new in zip(history, context, strict=False):
        if old != new:
            break
        same += 1
    total = count_messages(history) if same else 0
    return sum(map(count_message, history[:same])) / total if total else 0.0
