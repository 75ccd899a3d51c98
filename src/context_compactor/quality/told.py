"""What a model had to do with a compaction: whether its story stands in the context, or why not, and what it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from context_compactor.report import ModelCall, Report

ACCEPTED = "accepted"
NOT_ASKED = "not asked"
AS_A_WHOLE = "refused as a whole"


class Told(Struct, frozen=True):
    """One compaction for which a model was at hand.

    `why` says in a word or two why its story is not used; it is empty where it is. `outcomes` counts what became of
    the single calls. `cost` is in US dollars, or None where it is not known.
    """

    why: str
    calls: int
    shown: int
    written: int
    cost: float | None
    outcomes: dict[str, int]


class ToldRow(Struct, frozen=True):
    """All compactions of one budget for which a model was at hand: how many were told by it, and why not the others."""

    budget: str
    compactions: int
    used: int
    refused: dict[str, int]
    calls: int
    outcomes: dict[str, int]
    shown: int
    written: int
    cost: float | None


def told_of(report: Report) -> Told:
    """What a report says of its model."""
    calls = report.model_calls
    return Told(
        why="" if report.told_by else _why(calls),
        calls=len(calls),
        shown=sum(call.tokens_shown for call in calls),
        written=sum(call.tokens_written for call in calls),
        cost=_total(call.cost for call in calls),
        outcomes=dict(Counter(code for call in calls for code in _codes(call))),
    )


def _why(calls: Sequence[ModelCall]) -> str:
    """The objections to the last answer; where it was accepted, the story as a whole was not."""
    if not calls:
        return NOT_ASKED
    return AS_A_WHOLE if calls[-1].outcome.startswith(ACCEPTED) else calls[-1].outcome


def _codes(call: ModelCall) -> list[str]:
    return [ACCEPTED] if call.outcome.startswith(ACCEPTED) else call.outcome.split(", ")


def told_row(budget: str, told: Sequence[Told]) -> ToldRow:
    """The sums of these compactions; what is commonest comes first."""
    whys = Counter(code for one in told if one.why for code in one.why.split(", "))
    outcomes: Counter[str] = Counter()
    for one in told:
        outcomes.update(one.outcomes)
    return ToldRow(
        budget=budget,
        compactions=len(told),
        used=sum(not one.why for one in told),
        refused=dict(whys.most_common()),
        calls=sum(one.calls for one in told),
        outcomes=dict(outcomes.most_common()),
        shown=sum(one.shown for one in told),
        written=sum(one.written for one in told),
        cost=_total(one.cost for one in told if one.calls),
    )


def told_lines(row: ToldRow) -> Iterator[str]:
    """The same for people: one line on the stories, one on the calls."""
    others = f"; not used: {counted(row.refused)}" if row.refused else ""
    yield f"{row.used:,} of {row.compactions:,} told by the model{others}"
    price = "cost unknown" if row.cost is None else f"${row.cost:.4f}"
    tokens = f"{row.shown:,} tokens shown, {row.written:,} written, {price}"
    calls = f": {counted(row.outcomes)}" if row.outcomes else ""
    yield f"{row.calls:,} calls{calls}; {tokens}"


def counted(counts: dict[str, int]) -> str:
    """What there was, each with how often."""
    return ", ".join(f"{what.replace('_', ' ')} {number:,}" for what, number in counts.items())


def _total(costs: Iterable[float | None]) -> float | None:
    """The sum; None when there is none or one is not known."""
    known = list(costs)
    return None if not known or None in known else sum(cost for cost in known if cost is not None)
