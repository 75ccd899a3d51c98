"""`docs/quality.md` from an evaluation: every part of the template as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import Template

from context_compactor import compact
from context_compactor.dialects.transcripts.reader import read_transcript
from context_compactor.evaluation.descriptions import describe_budget
from context_compactor.evaluation.messages import count_messages, flat_text, flatten
from context_compactor.evaluation.methods import COMPACTOR, HANDOFF_BUDGET
from context_compactor.evaluation.output import count
from context_compactor.evaluation.results import ALL, SHOWN, Evaluation, ScoreRow
from tools.quality import goals

TEMPLATE = Path(__file__).with_name("page.md")
SESSION = Path("examples/demo_session.jsonl.gz")
_LINES, _WIDTH, _MOST = 26, 140, 12


def quality_page(found: Evaluation, date: str, command: str) -> str:
    """The whole page."""
    page = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        date=date,
        command=command,
        inputs=_inputs(found),
        goals=_table(("measure", "budget", "at least", "reached", "off by"), _goal_rows(found)),
        methods=_method_tables(found),
        sources=_source_tables(found),
        costs=_costs(found),
        counts=_counts(found),
        dialogues=_dialogues(found),
        misfits=_misfits(found),
        examples="\n\n".join(_examples()),
    )
    return page.rstrip() + "\n"


def _inputs(found: Evaluation) -> str:
    inputs = found.inputs
    whole = f"{count(inputs.conversations, 'conversation')}, {inputs.too_short:,} of them too short to be cut"
    taken = f"{inputs.taken:,} were taken (every {inputs.every})" if inputs.every > 1 else "all others were taken"
    return (
        f"{whole}; {taken}: {count(inputs.samples, 'cut')} and {count(inputs.real, 'compaction')} that really happened."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _goal_rows(found: Evaluation) -> Iterator[Sequence[str]]:
    for budget, wanted in goals.KEPT.items():
        row = found.row(COMPACTOR, budget)
        yield from (_goal(name, describe_budget(budget), goal, _share(row, name)) for name, goal in wanted.items())
    shares = {item.search: 100 * item.share for item in found.dialogues}
    yield _goal("LoCoMo", "2,000 tokens", goals.LOCOMO, shares.get(COMPACTOR))
    cost = next((item.mean for item in found.costs if (item.method, item.source) == (COMPACTOR, ALL)), None)
    yield _less("COST", "25 %", goals.COST, cost)
    counts = next((item for item in found.counts if item.source == ALL), None)
    yield _less("COUNT anchored, %", "", goals.COUNT_ANCHORED, _percent(counts.anchored if counts else None))
    yield _less("COUNT blind, %", "", goals.COUNT_BLIND, _percent(counts.blind if counts else None))


def _share(row: ScoreRow | None, name: str) -> float | None:
    return _percent(row.shares[name]) if row else None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _goal(name: str, budget: str, goal: float, reached: float | None) -> Sequence[str]:
    if reached is None:
        return name, budget, f"{goal:g}", "not measured", ""
    return name, budget, f"{goal:g}", f"{reached:.1f}", _signed(reached - goal, 1)


def _less(name: str, budget: str, goal: float, reached: float | None) -> Sequence[str]:
    """A measure of which less is better."""
    if reached is None:
        return name, budget, f"at most {goal:g}", "not measured", ""
    return name, budget, f"at most {goal:g}", f"{reached:.2f}", _signed(goal - reached, 2)


def _signed(points: float, digits: int) -> str:
    return f"{points:+.{digits}f}".replace("-", "−")


def _method_tables(found: Evaluation) -> str:
    parts = []
    for budget in dict.fromkeys((*found.budgets, HANDOFF_BUDGET)):
        rows = [row for row in found.rows if (row.budget, row.source) == (budget, ALL)]
        if rows:
            title = describe_budget(budget).capitalize() if budget in found.budgets else "Handoff in 500 tokens"
            parts.append(f"### {title}\n\n{_score_table('method', rows)}")
    return "\n\n".join(parts)


def _source_tables(found: Evaluation) -> str:
    parts = []
    for budget in found.budgets:
        rows = [row for source in found.sources if (row := found.row(COMPACTOR, budget, source))]
        if rows:
            parts.append(f"### {COMPACTOR} at {describe_budget(budget)}\n\n{_score_table('source', rows)}")
    return "\n\n".join(parts)


def _score_table(first: str, rows: Sequence[ScoreRow]) -> str:
    cells = []
    for row in rows:
        shares = (row.shares[name] for name in SHOWN)
        numbers = ("" if share is None else f"{100 * share:.1f}" for share in shares)
        name = row.method if first == "method" else row.source
        cells.append((name, str(row.samples), *numbers, str(row.misfits)))
    return _table((first, "n", *SHOWN, "did not fit"), cells)


def _costs(found: Evaluation) -> str:
    rows = [
        (row.method, row.source, str(row.conversations), f"{row.mean:.3f}", f"{row.together:.3f}")
        for row in found.costs
        if row.source == ALL or row.method == COMPACTOR
    ]
    return _table(("method", "source", "conversations", "mean ratio", "all bills together"), rows)


def _counts(found: Evaluation) -> str:
    rows = [(row.source, f"{row.replies:,}", _error(row.anchored), _error(row.blind)) for row in found.counts]
    return _table(("source", "replies", "anchored on the last reply", "blind after five replies"), rows)


def _error(share: float | None) -> str:
    return "" if share is None else f"{share:.2%}"


def _dialogues(found: Evaluation) -> str:
    if not found.dialogues:
        return "No dialogues were given."
    kinds = list(found.dialogues[0].kinds)
    rows = [
        (row.search, str(row.questions), f"{row.share:.1%}", *(f"{row.kinds[kind]:.1%}" for kind in kinds))
        for row in found.dialogues
    ]
    return _table(("search", "questions", "all", *kinds), rows)


def _misfits(found: Evaluation) -> str:
    own = [item for item in found.misfits if item.method == COMPACTOR]
    rows = [(item.sample, describe_budget(item.budget), item.reason) for item in own[:_MOST]]
    said = f"{count(len(own), 'context')} of {COMPACTOR} did not fit"
    more = f" (the first {_MOST})" if len(own) > _MOST else ""
    return f"{said}{more}.\n\n{_table(('conversation', 'budget', 'size'), rows)}" if own else f"{said}."


def _examples() -> Iterator[str]:
    """Three excerpts: the ledgers, the selected lines, and the newest turns behind them."""
    messages = read_transcript(SESSION).messages
    whole = count_messages(messages)
    made = {share: compact(messages, target_tokens=whole * share // 100).messages for share in (5, 10, 25)}
    yield _excerpt("At 5 %: how the record begins", flat_text(made[5][:1]).splitlines())
    record = flat_text(made[10][:1]).splitlines()
    lines = next((index for index, line in enumerate(record) if line.startswith("## Record of earlier")), 0)
    yield _excerpt("At 10 %: selected lines of earlier turns", record[lines:])
    newest = [f"[{kind}] {line}" for kind, text in flatten(made[25][1:]) for line in text.splitlines()[:4]]
    yield _excerpt("At 25 %: the newest turns, which stand behind the record", newest)


def _excerpt(title: str, lines: Sequence[str]) -> str:
    shown = [line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…" for line in lines[:_LINES]]
    text = "\n".join([*shown, "…"]).replace("```", "'''").replace("\t", "    ")
    return f"### {title}\n\n```text\n{text}\n```"
