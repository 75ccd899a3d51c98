"""The parts of the page that are plots, each with its numbers as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from context_compactor.markup import Markup, element, folded, table
from context_compactor.quality.losses import Loss
from context_compactor.quality.methods import HANDOFF_BUDGET, REAL, SUMMARY
from context_compactor.quality.outcome import ALL, Evaluation, Row
from context_compactor.quality.page_words import main_budget, main_method
from context_compactor.quality.plots import Bar, Series, bar_plot, line_plot, mark
from context_compactor.quality.summing import SHOWN
from context_compactor.quality.tables import count, percent
from context_compactor.quality.words import MEASURE_WORDS, SHAPE_WORDS, WRITER_WORDS, budget_words

KEPT = ("FRR", "BND", "NAS", "CSR", "EDT", "FAIL", "1Q")
COLOURS = 9


def retention_section(found: Evaluation) -> Iterator[Markup]:
    """What is kept against the budget, one small plot for each measure."""
    shares = sorted((budget for budget in found.budgets if budget.rstrip("+").isdigit()), key=_size)
    plain = [budget for budget in shares if budget.isdigit()] or shares
    if not plain:
        return
    yield element("h2", "What is kept, by budget")
    yield element(
        "p",
        "Each plot is one measure, each line one method. To the left the context is shortened most. Budgets are shares "
        "of the conversation so far.",
    )
    yield _legend(found, found.methods)
    plots = [_retention_plot(found, name, plain) for name in KEPT if _is_measured(found, name, plain)]
    yield element("div", *plots, class_="grid")
    first = main_budget(found)
    yield _score_table(found, first, f"Compacted to {budget_words(first)}, in percent")
    for budget in found.budgets:
        if budget not in (first, REAL):
            caption = f"Compacted to {budget_words(budget)}, in percent"
            yield folded(caption, _score_table(found, budget, caption))


def _size(budget: str) -> float:
    return float(budget.rstrip("+")) + (0.5 if budget.endswith("+") else 0.0)


def _is_measured(found: Evaluation, name: str, budgets: Sequence[str]) -> bool:
    return any(row.shares[name] is not None for row in found.rows if row.budget in budgets)


def _retention_plot(found: Evaluation, name: str, budgets: Sequence[str]) -> Markup:
    xs = [float(budget.rstrip("+")) for budget in budgets]
    series = []
    for colour, method in enumerate(found.methods):
        rows = [(x, found.row(method, budget)) for x, budget in zip(xs, budgets, strict=True)]
        points = [(x, 100 * share) for x, row in rows if row and (share := row.shares[name]) is not None]
        series.append(Series(method, colour % COLOURS, tuple(points)))
    return _figure(name, line_plot(f"{MEASURE_WORDS[name].title} by budget", series, xs))


def _figure(name: str, plot: Markup) -> Markup:
    words = MEASURE_WORDS[name]
    return element("figure", element("h3", f"{words.title} ({name})"), plot, element("figcaption", words.short))


def _legend(found: Evaluation, methods: Sequence[str]) -> Markup:
    items = []
    for method in methods:
        picture = element("svg", mark(_colour(found, method), 8, 8), viewBox="0 0 16 16", aria_hidden="true")
        items.append(element("li", picture, f" {method}"))
    return element("ul", *items, class_="legend")


def _colour(found: Evaluation, method: str) -> int:
    places = [*found.methods, SUMMARY]
    return places.index(method) % COLOURS if method in places else COLOURS - 1


def _score_table(found: Evaluation, budget: str, caption: str) -> Markup:
    rows = [row for row in found.rows if row.budget == budget and row.source == ALL]
    return table(caption, ("method", "n", *SHOWN, "did not fit"), [_cells(row.method, row) for row in rows])


def _cells(name: str, row: Row) -> tuple[str, ...]:
    shares = (row.shares[column] for column in SHOWN)
    numbers = ("–" if share is None else f"{100 * share:.1f}" for share in shares)
    return (name, f"{row.samples:,}", *numbers, f"{row.misfits:,}")


def real_section(found: Evaluation) -> Iterator[Markup]:
    """Beside the summaries that a model really wrote."""
    rows = [row for row in found.rows if row.budget == REAL and row.source == ALL]
    if not rows:
        return
    yield element("h2", "Beside summaries that a model really wrote")
    yield element(
        "p",
        f"In these conversations the agent's own tool compacted {count(found.inputs.real, 'time')}, by asking a model "
        "for a summary. Here every method gets just the size of that summary, and is measured on what the agent did "
        "after it.",
    )
    names = [name for name in KEPT if any(row.shares[name] is not None for row in rows)]
    yield element("div", *(_figure(name, _real_plot(found, name, rows)) for name in names), class_="grid")
    yield _score_table(found, REAL, "At the size of the real summary, in percent")


def _real_plot(found: Evaluation, name: str, rows: Sequence[Row]) -> Markup:
    bars = [
        Bar(_real_name(row.method), row.shares[name] or 0.0, percent(row.shares[name]), _colour(found, row.method))
        for row in rows
    ]
    return bar_plot(f"{MEASURE_WORDS[name].title} at the real summary's size", bars, 1.0)


def _real_name(method: str) -> str:
    return "the model's summary" if method == SUMMARY else method


def loss_section(found: Evaluation) -> Iterator[Markup]:
    """Where the names went that were lost."""
    method, budget = main_method(found), main_budget(found)
    own = [item for item in found.losses if item.method == method]
    if not own:
        return
    yield element("h2", f"Where names were lost: {method}")
    yield element(
        "p",
        f"The names that the agent went on to use, at {budget_words(budget)}. The full bar is all of them, the "
        "coloured part those still in the context. What is not there can be recalled or searched for.",
    )
    plots = [
        _loss_plot("By what they look like", [item for item in own if (item.budget, item.by) == (budget, "shape")]),
        _loss_plot("By where they stood", [item for item in own if (item.budget, item.by) == (budget, "writer")]),
        _loss_plot("By when they stood last", [item for item in own if (item.budget, item.by) == (budget, "age")]),
    ]
    yield element("div", *plots, class_="grid")
    rows = [
        (_group(item), budget_words(item.budget), f"{item.wanted:,}", f"{item.kept:,}", f"{item.wanted - item.kept:,}")
        for item in own
    ]
    heads = ("group", "budget", "wanted", "kept", "lost")
    yield folded("The numbers, for every budget", table(f"Names by group: {method}", heads, rows))


def _loss_plot(title: str, items: Sequence[Loss]) -> Markup:
    most = max((item.wanted for item in items), default=1)
    ordered = sorted(items, key=lambda item: item.group) if "when" in title else items
    bars = [Bar(_group(item), item.kept, f"{item.kept:,} of {item.wanted:,}", 0, item.wanted) for item in ordered]
    return element("figure", element("h3", title), bar_plot(title, bars, most))


def _group(item: Loss) -> str:
    if item.by == "age":
        return item.group.strip().replace(" % of H", " % of the way")
    return {**SHAPE_WORDS, **WRITER_WORDS}.get(item.group, item.group)


def cost_section(found: Evaluation) -> Iterator[Markup]:
    """What a session costs with each method."""
    rows = [row for row in found.costs if row.source == ALL]
    if not rows:
        return
    yield element("h2", "What a session costs")
    yield element("p", f"{MEASURE_WORDS['COST'].meaning} The dashed line is never compacting.")
    bars = [Bar(row.method, row.mean, f"{row.mean:.2f}", _colour(found, row.method)) for row in rows]
    most = max(1.0, *(row.mean for row in rows))
    yield element("div", element("figure", bar_plot("Cost by method", bars, most, line_at=1.0)), class_="grid")
    cells = [
        (row.method, f"{row.conversations:,}", f"{row.mean:.3f}", f"{row.together:.3f}", f"{row.compactions:.1f}")
        for row in rows
    ]
    heads = ("method", "conversations", "mean ratio", "all bills together", "compactions each")
    yield table("Cost against never compacting", heads, cells)


def source_section(found: Evaluation) -> Iterator[Markup]:
    """The main method, source by source."""
    method, budget = main_method(found), main_budget(found)
    rows = [row for source in found.sources if (row := found.row(method, budget, source))]
    if not rows:
        return
    yield element("h2", "By source")
    yield element(
        "p", "The same measures for each agent and project on its own. With few cuts a number is a rough one."
    )
    heads = ("source", "n", *SHOWN, "did not fit")
    yield table(f"{method} at {budget_words(budget)}, in percent", heads, [_cells(row.source, row) for row in rows])
    for other in found.budgets:
        more = [row for source in found.sources if (row := found.row(method, other, source))]
        if other != budget and more:
            caption = f"{method} at {budget_words(other)}, in percent"
            yield folded(caption, table(caption, heads, [_cells(row.source, row) for row in more]))


def handoff_section(found: Evaluation) -> Iterator[Markup]:
    """The handoff text, where this version writes one."""
    rows = [row for row in found.rows if row.budget == HANDOFF_BUDGET and row.source == ALL]
    if rows and HANDOFF_BUDGET not in found.budgets:
        yield element("h2", "Handoff")
        yield element("p", MEASURE_WORDS["HANDOFF"].meaning)
        yield _score_table(found, HANDOFF_BUDGET, "At 500 tokens, in percent")


def dialogue_section(found: Evaluation) -> Iterator[Markup]:
    """Questions about dialogues, where some were given."""
    if not found.dialogues:
        return
    yield element("h2", "Questions about dialogues")
    yield element("p", MEASURE_WORDS["LoCoMo"].meaning)
    kinds = list(dict.fromkeys(kind for row in found.dialogues for kind in row.kinds))
    rows = [
        (row.search, f"{row.questions:,}", percent(row.share), *(percent(row.kinds.get(kind)) for kind in kinds))
        for row in found.dialogues
    ]
    yield table("All evidence in 2,000 tokens", ("search", "questions", "all", *kinds), rows)


def count_section(found: Evaluation) -> Iterator[Markup]:
    """How well tokens are counted, where the logs tell what was billed."""
    if not found.counts:
        return
    yield element("h2", "How well tokens are counted")
    yield element("p", MEASURE_WORDS["COUNT"].meaning)
    rows = [(row.source, f"{row.replies:,}", _error(row.anchored), _error(row.blind)) for row in found.counts]
    yield table("Mean error of the count", ("source", "replies", "anchored", "blind after five"), rows)


def _error(share: float | None) -> str:
    return "–" if share is None else f"{share:.2%}"
