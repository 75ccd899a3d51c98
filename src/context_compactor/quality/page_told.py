"""The part of the page that tells what became of a model's summaries."""

from __future__ import annotations

from collections.abc import Iterator

from context_compactor.markup import Markup, element, table
from context_compactor.quality.methods import COMPACTOR, WITH_MODEL
from context_compactor.quality.outcome import Evaluation
from context_compactor.quality.told import ToldRow, counted
from context_compactor.quality.words import budget_words

_HEADS = (
    "budget",
    "compactions",
    "told by the model",
    "why not the others",
    "calls",
    "tokens shown",
    "written",
    "cost",
)


def told_section(found: Evaluation) -> Iterator[Markup]:
    """How many summaries of a model were used, why not the others, and what they took."""
    if not found.told:
        return
    yield element("h2", f"Summaries by {found.model}")
    yield element(
        "p",
        f"{WITH_MODEL} is {COMPACTOR} with a model that tells the story of what is folded. A summary that is refused "
        "leaves the context as it is without a model.",
    )
    yield table("What became of the summaries", _HEADS, [_cells(row) for row in found.told])
    rows = [
        (budget_words(row.budget), what, f"{times:,}") for row in found.told for what, times in row.outcomes.items()
    ]
    yield table("What became of the single calls", ("budget", "outcome", "calls"), rows)


def _cells(row: ToldRow) -> tuple[str, ...]:
    cost = "unknown" if row.cost is None else f"${row.cost:.4f}"
    numbers = (f"{number:,}" for number in (row.calls, row.shown, row.written))
    return (budget_words(row.budget), f"{row.compactions:,}", f"{row.used:,}", counted(row.refused), *numbers, cost)
