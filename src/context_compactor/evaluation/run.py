"""Runs methods over the corpus and prints what they keep: `python -m context_compactor.evaluation.run --method
trim`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from context_compactor.evaluation.corpus import AGENT_SOURCES, default_corpus
from context_compactor.evaluation.methods import (
    BASELINES,
    COMPACTOR,
    REAL,
    SUMMARY,
    WITH_MODEL,
    model_use_lines,
    model_use_row,
    read_summarizer,
    suits,
)
from context_compactor.evaluation.output import mean, show
from context_compactor.evaluation.pool import spread
from context_compactor.evaluation.samples import Sample, samples
from context_compactor.evaluation.scoring import COLUMNS, Score, ScoringTask, score
from context_compactor.protocols import Model


def evaluate(
    method: str,
    chosen: list[Sample],
    budgets: Sequence[str],
    jobs: int = 1,
    *,
    search: bool = False,
    summarizer: str | Model | None = None,
) -> Iterator[Score]:
    """Score one method on samples at budgets: `real` takes the real compactions, the others the main samples."""
    tasks = [
        ScoringTask(method, index, budget, search, summarizer)
        for index, sample in enumerate(chosen)
        for budget in budgets
        if suits(sample, budget) and (method != SUMMARY or budget == REAL)
    ]
    return spread(_score_one, chosen, tasks, jobs)


def _score_one(chosen: list[Sample], asked: ScoringTask) -> Score:
    return score(chosen[asked.index], asked)


def table(scores: Sequence[Score], budgets: Sequence[str]) -> Iterator[str]:
    """One row per budget over all samples, then one per source. A mean is over the samples that want something."""
    yield " ".join([f"{'budget':8}{'source':26}{'n':>4} ", *(f"{name:>6}" for name in COLUMNS), " misfit  seconds"])
    for budget in budgets:
        chosen = [item for item in scores if item.budget == budget]
        yield _row(budget, "all", chosen)
        for source in dict.fromkeys(item.source for item in chosen):
            yield _row("", source, [item for item in chosen if item.source == source])


def _row(budget: str, source: str, scores: Sequence[Score]) -> str:
    means = [mean(item.shares[name] for item in scores) for name in COLUMNS]
    cells = ["     -" if value is None else f"{100 * value:6.1f}" for value in means]
    misfits, seconds = sum(not item.fits for item in scores), sum(item.seconds for item in scores)
    return " ".join([f"{budget:8}{source:26}{len(scores):>4} ", *cells, f"{misfits:7d} {seconds:8.1f}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _options(arguments)
    chosen = samples(options.corpus, options.sources.split(","), options.every, options.jobs)
    budgets, everything = options.budget.split(","), {}
    summarizer = read_summarizer(options.summarizer)
    for method in (*options.method.split(","), *([WITH_MODEL] if summarizer else [])):
        began = time.perf_counter()
        scores = list(evaluate(method, chosen, budgets, options.jobs, search=options.search, summarizer=summarizer))
        heading = f"## {method}  ({time.perf_counter() - began:.0f} s)"
        show(heading, *table(scores, budgets), *_told(scores, budgets), *_wrong(scores))
        everything[method] = scores
    if options.json:
        options.json.write_bytes(msgspec.json.encode(everything))
    return 0


def _told(scores: Sequence[Score], budgets: Sequence[str]) -> Iterator[str]:
    for budget in budgets:
        told = [item.told for item in scores if item.budget == budget and item.told]
        yield from model_use_lines(model_use_row(budget, told)) if told else ()


def _wrong(scores: Sequence[Score]) -> Iterator[str]:
    """The first contexts that did not fit or that a provider would refuse."""
    misfits = [f"did not fit: {s.sample} at {s.budget}: {s.tokens:,} of {s.limit:,}" for s in scores if not s.fits]
    illegal = [f"not legal: {s.sample} at {s.budget}: {s.problems[0]}" for s in scores if s.problems]
    yield from misfits[:5]
    yield from illegal[:5]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = ", ".join([COMPACTOR, "summary", *BASELINES])
    parser = argparse.ArgumentParser(prog="quality.run", description=__doc__)
    parser.add_argument("--method", default=COMPACTOR, help=f"{names}, or module:function; several by comma")
    parser.add_argument(
        "--budget",
        default="25,10,5,real",
        help="percent of the history, 5+ with its instructions on top, 500t for tokens, or real",
    )
    parser.add_argument("--sources", default=",".join(AGENT_SOURCES))
    parser.add_argument("--every", type=int, default=1, help="take each N-th conversation")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--summarizer", help=f"measure {WITH_MODEL} too, with this model")
    parser.add_argument("--search", action="store_true", help="1Q and RESTORE too")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--corpus", type=Path, default=default_corpus())
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
