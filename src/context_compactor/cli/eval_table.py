"""An evaluation for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from context_compactor.cli.output import LineOutput
from context_compactor.evaluation.descriptions import MEASURE_DESCRIPTIONS, describe_budget
from context_compactor.evaluation.methods import COMPACTOR, HANDOFF_BUDGET, model_use_lines
from context_compactor.evaluation.output import count, ordinal
from context_compactor.evaluation.results import ALL
from context_compactor.text import one_line

if TYPE_CHECKING:
    from context_compactor.evaluation.results import Evaluation, Inputs, RejectedContext, ScoreRow

COLUMNS = ("FRR", "BND", "NAS", "CSR", "EDT", "FAIL", "1Q", "LEGAL", "RESTORE", "CACHE")
MOST_LISTED = 5
_NAME = 17


def print_evaluation(found: Evaluation, out: LineOutput, html: str | None = None) -> None:
    """What was read, one table for each budget, the other measures, what did not go well, and what it all means."""
    for line in _read_lines(found.inputs):
        out.print(line)
    for budget in dict.fromkeys((*found.budgets, HANDOFF_BUDGET)):
        _print_table(found, budget, out)
    _print_model_use(found, out)
    for line in (*_cost_lines(found), *_count_lines(found), *_dialogue_lines(found)):
        out.print(line)
    _print_troubles("did not fit", found.misfits, out, "they count as keeping nothing")
    _print_troubles("not legal", found.illegal, out, "a provider would refuse them")
    out.print()
    for name in _measures(found):
        out.print(f"{name:<9}{MEASURE_DESCRIPTIONS[name].short}", style="dim")
    out.print(
        f"\nThe page is {html}" if html else "\nWith --html FILE there is a page that explains all this, with plots.",
        style="dim",
    )


def _read_lines(inputs: Inputs) -> Iterator[str]:
    if not inputs.conversations:
        return
    where = f"{count(inputs.projects, 'project')} in {count(inputs.files, 'file')}"
    yield f"{count(inputs.conversations, 'conversation')} of {where}"
    if inputs.too_short:
        yield f"  {inputs.too_short:,} too short: under 4,000 tokens at every point where they could be cut"
    if inputs.every > 1:
        yield f"  each {ordinal(inputs.every)} of the others was taken: {inputs.taken:,} (--every 1 takes all)"
    for skipped in inputs.skipped[:MOST_LISTED]:
        yield f"  skipped {one_line(skipped.path, 120)}: {one_line(skipped.reason, 200)}"
    if len(inputs.skipped) > MOST_LISTED:
        yield f"  … and {len(inputs.skipped) - MOST_LISTED:,} more files skipped (all in --json)"
    really = (
        f"and where {count(inputs.real, 'compaction')} really happened"
        if inputs.real
        else ("no compaction happened, so there is no model's summary to compare with")
    )
    yield f"  cut at {count(inputs.samples, 'point')}, {really}"


def _print_table(found: Evaluation, budget: str, out: LineOutput) -> None:
    rows = [row for row in found.rows if row.budget == budget and row.source == ALL]
    if not rows:
        return
    done = "Compacted to" if budget in found.budgets else "Handed over in"
    out.print(f"\n{done} {describe_budget(budget)}: kept, in percent (n = {rows[0].samples:,})", style="bold")
    out.print(" " * _NAME + "".join(f"{name:>{_width(name)}}" for name in COLUMNS), style="dim")
    for row in rows:
        out.print(_line(row), style="green" if row.method == COMPACTOR else None)


def _width(name: str) -> int:
    return max(6, len(name) + 1)


def _line(row: ScoreRow) -> str:
    shares = ((name, row.shares[name]) for name in COLUMNS)
    cells = (f"{'-' if share is None else f'{100 * share:.1f}':>{_width(name)}}" for name, share in shares)
    misfits = f"  {row.misfits:,} did not fit" if row.misfits else ""
    return f"{_short(row.method):<{_NAME}}" + "".join(cells) + misfits


def _short(method: str) -> str:
    return method if len(method) < _NAME + 2 else f"…{method[2 - _NAME :]}"


def _print_model_use(found: Evaluation, out: LineOutput) -> None:
    """What became of the model's summaries at each budget, and what they took."""
    if found.model_use:
        out.print(f"\nSummaries by {one_line(found.model, 80)}: what is not used leaves the context as without a model")
    for row in found.model_use:
        for at, line in enumerate(model_use_lines(row)):
            out.print(f"{'' if at else describe_budget(row.budget):<{_NAME}}{line}")


def _cost_lines(found: Evaluation) -> Iterator[str]:
    rows = [row for row in found.costs if row.source == ALL]
    if rows:
        yield f"\nCost in a window of 32,000 tokens, against never compacting (n = {rows[0].conversations:,})"
    elif found.inputs.taken:
        yield "\nCost: no conversation has the 48,000 tokens that a replay needs"
    for row in rows:
        yield f"{_short(row.method):<{_NAME + 2}}{row.mean:>6.2f}  {row.compactions:.1f} compactions in each"


def _count_lines(found: Evaluation) -> Iterator[str]:
    if found.inputs.taken and not found.counts:
        yield "Token count: no usage was logged to compare with"
    for row in found.counts:
        if row.source == ALL and row.anchored is not None:
            blind = "" if row.blind is None else f", {row.blind:.2%} blind after five"
            error = f"{row.anchored:.2%} from the last reply on{blind}"
            yield f"\nToken count against {row.replies:,} logged replies: off by {error}"


def _dialogue_lines(found: Evaluation) -> Iterator[str]:
    for row in found.dialogues:
        yield f"{row.questions:,} questions about dialogues, all evidence found: {row.share:.1%} ({row.search})"


def _print_troubles(what: str, troubles: Sequence[RejectedContext], out: LineOutput, means: str) -> None:
    own = [item for item in troubles if item.method == COMPACTOR]
    if own:
        out.print(f"\n{len(own):,} contexts of {COMPACTOR} {what}; {means}", style="yellow")
    for item in own[:MOST_LISTED]:
        out.print(f"  {one_line(item.sample, 70)} at {describe_budget(item.budget)}: {one_line(item.reason, 120)}")
    if any("instructions alone" in item.reason for item in own):
        out.print("  where instructions alone are over the budget nothing can fit: 5+ leaves them out of it")


def _measures(found: Evaluation) -> Iterator[str]:
    if found.rows:
        yield from COLUMNS
    if found.costs:
        yield "COST"
    if found.counts:
        yield "COUNT"
    if found.dialogues:
        yield "LoCoMo"
