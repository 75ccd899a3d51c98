"""The evaluation as one HTML page that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from context_compactor.evaluation.descriptions import (
    MEASURE_DESCRIPTIONS,
    METHOD_DESCRIPTIONS,
    SHAPE_DESCRIPTIONS,
    WRITER_DESCRIPTIONS,
    describe_budget,
)
from context_compactor.evaluation.losses import Loss
from context_compactor.evaluation.methods import (
    COMPACTOR,
    HANDOFF_BUDGET,
    REAL,
    SUMMARY,
    WITH_MODEL,
    ModelUseRow,
    counted,
)
from context_compactor.evaluation.output import count, ordinal, percent
from context_compactor.evaluation.plots import PlotBar, Series, bar_plot, line_plot, mark
from context_compactor.evaluation.results import ALL, SHOWN, Evaluation, ScoreRow
from context_compactor.markup import Markup, element, folded, join, table

TILES = ("FRR", "NAS", "CSR", "EDT", "FAIL", "1Q", "LEGAL")
MOST_LISTED = 50


def opening(found: Evaluation, made_on: str) -> Iterator[Markup]:
    """What this page is about, for somebody who opens it without knowing anything."""
    inputs = found.inputs
    yield element("h1", "What compaction keeps")
    if inputs.taken:
        yield element(
            "p",
            "An agent's conversation grows until it no longer fits its model, and then has to be shortened. This page "
            f"shows what is lost when that is done, on {count(inputs.taken, 'real conversation')} cut at "
            f"{count(inputs.samples, 'place')}. At each place the conversation so far was shortened by several "
            "methods; then we looked at what the agent really did next, and whether what it needed was still there.",
        )
    date = f" on {made_on}" if made_on else ""
    yield element(
        "p",
        f"Made{date} by compactor {found.version}, {_with_what(found)}. The page holds numbers and the names of "
        "sources, no text of any conversation.",
        class_="quiet",
    )


def _with_what(found: Evaluation) -> str:
    return f"with the model {found.model}" if found.model else "without a model and without a network"


def tiles(found: Evaluation) -> Iterator[Markup]:
    """The short answer: the main numbers of the first method, each beside the best of the others."""
    method, budget = main_method(found), main_budget(found)
    own = found.row(method, budget)
    if own is None:
        return
    yield element("h2", f"In short: {method} at {describe_budget(budget)}")
    measured = [name for name in TILES if own.shares[name] is not None]
    boxes = [
        _tile(percent(own.shares[name]), MEASURE_DESCRIPTIONS[name].title, _best_other(found, name))
        for name in measured
    ]
    yield element("div", *boxes, *_cost_tile(found), class_="tiles")
    if found.misfits:
        misfits = sum(item.method == method for item in found.misfits)
        yield element(
            "p",
            f"At all budgets together {count(len(found.misfits), 'context')} did not fit, {misfits:,} of them by "
            f"{method}; each counts as nothing kept. They are listed further down.",
        )


def _tile(number: str, title: str, beside: str) -> Markup:
    said = (element("b", number), element("span", title), element("span", beside, class_="quiet"))
    return element("div", *said, class_="tile")


def _best_other(found: Evaluation, name: str) -> str:
    method, budget = main_method(found), main_budget(found)
    others = [other for other in found.methods if other not in (method, WITH_MODEL)]
    rows = [row for other in others if (row := found.row(other, budget))]
    best = max(rows, key=lambda row: row.shares[name] or 0.0, default=None)
    return f"best other: {percent(best.shares[name])}, {best.method}" if best else ""


def _cost_tile(found: Evaluation) -> Iterator[Markup]:
    rows = [row for row in found.costs if row.source == ALL]
    own = next((row for row in rows if row.method == main_method(found)), None)
    best = min((row for row in rows if row is not own), key=lambda row: row.mean, default=None)
    if own:
        beside = f"best other: {best.mean:.2f}, {best.method}" if best else ""
        yield _tile(f"{own.mean:.2f}", "Cost of a session, 1 is never compacting", beside)


def about_section(found: Evaluation) -> Iterator[Markup]:
    """What was read, what was left out and why, what did not fit."""
    inputs = found.inputs
    yield element("h2", "What was looked at")
    lines = [f"{count(inputs.conversations, 'conversation')} in {count(inputs.files, 'file')}"]
    if inputs.too_short:
        lines.append(f"{inputs.too_short:,} of them too short: under 4,000 tokens at every place where they can be cut")
    if inputs.every > 1:
        lines.append(f"each {ordinal(inputs.every)} of the others was taken: {inputs.taken:,}")
    lines.append(
        f"{count(inputs.samples, 'cut')}, at half and three quarters of each conversation, always before its first "
        f"real compaction; and {count(inputs.real, 'compaction')} that really happened"
        + ("" if inputs.real else ", so nothing is compared with a model's own summary")
    )
    if inputs.projects > 2:
        lines.append(
            f"{count(inputs.projects, 'project')}; {count(inputs.common_names, 'name')} found in three or more of them "
            "are common knowledge and not counted"
        )
    if inputs.taken and not found.costs:
        lines.append("no conversation has the 48,000 tokens that the cost replay needs")
    if inputs.taken and not found.counts:
        lines.append("no token usage was logged, so the token count could not be checked")
    yield element("ul", *(element("li", line) for line in lines))
    if inputs.skipped:
        skipped = (element("li", f"{item.path}: {item.reason}") for item in inputs.skipped[:MOST_LISTED])
        yield folded(f"{count(len(inputs.skipped), 'file')} skipped", element("ul", *skipped))
    for title, troubles in (("did not fit", found.misfits), ("would be refused by a provider", found.illegal)):
        if troubles:
            rows = [(item.method, describe_budget(item.budget), item.sample, item.reason) for item in troubles]
            shown = table(title.capitalize(), ("method", "budget", "conversation", "why"), rows[:MOST_LISTED])
            more = f" (the first {MOST_LISTED} are shown)" if len(rows) > MOST_LISTED else ""
            yield folded(f"{count(len(rows), 'context')} {title}{more}", shown)


def explanations(found: Evaluation) -> Iterator[Markup]:
    """Each measure and each method in plain words."""
    yield element("h2", "What the measures mean")
    yield element(
        "p",
        "Except for cost and the error of the count all are shares in percent, and more is better. None of them says "
        "that a task was finished well: that cannot be seen in a recording. They say what an agent would still have "
        "had before its eyes.",
    )
    for name, words in MEASURE_DESCRIPTIONS.items():
        yield element("dl", element("dt", f"{name}: {words.title}"), element("dd", words.meaning))
    yield element("h2", "What the methods do")
    methods = dict.fromkeys([*(row.method for row in found.rows), *(row.method for row in found.costs)])
    rows = [(method, METHOD_DESCRIPTIONS.get(method, "a method of your own")) for method in methods]
    yield element("ul", *(element("li", element("b", method), f": {words}") for method, words in rows))


def main_method(found: Evaluation) -> str:
    """Ours, or the first when it was not asked for."""
    return COMPACTOR if COMPACTOR in found.methods else found.methods[0]


def main_budget(found: Evaluation) -> str:
    """A quarter where it was measured, otherwise the first budget."""
    shares = [budget for budget in found.budgets if budget != REAL]
    return "25" if "25" in shares else (shares or [REAL])[0]


_MODEL_COLUMNS = (
    "budget",
    "compactions",
    "summaries used",
    "why not the others",
    "calls",
    "tokens shown",
    "written",
    "cost",
)


def model_section(found: Evaluation) -> Iterator[Markup]:
    """How many summaries of a model were used, why not the others, and what they took."""
    if not found.model_use:
        return
    yield element("h2", f"Summaries by {found.model}")
    yield element(
        "p",
        f"{WITH_MODEL} is {COMPACTOR} with a model that summarizes what leaves the context. A summary that is refused "
        "leaves the context as it is without a model.",
    )
    yield table("What became of the summaries", _MODEL_COLUMNS, [_model_cells(row) for row in found.model_use])
    rows = [
        (describe_budget(row.budget), what, f"{times:,}")
        for row in found.model_use
        for what, times in row.outcomes.items()
    ]
    yield table("What became of the single calls", ("budget", "outcome", "calls"), rows)


def _model_cells(row: ModelUseRow) -> tuple[str, ...]:
    cost = "unknown" if row.cost is None else f"${row.cost:.4f}"
    numbers = (f"{number:,}" for number in (row.calls, row.shown, row.written))
    return (describe_budget(row.budget), f"{row.compactions:,}", f"{row.used:,}", counted(row.refused), *numbers, cost)


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
    yield _score_table(found, first, f"Compacted to {describe_budget(first)}, in percent")
    for budget in found.budgets:
        if budget not in (first, REAL):
            caption = f"Compacted to {describe_budget(budget)}, in percent"
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
    return _figure(name, line_plot(f"{MEASURE_DESCRIPTIONS[name].title} by budget", series, xs))


def _figure(name: str, plot: Markup) -> Markup:
    words = MEASURE_DESCRIPTIONS[name]
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
    return table(caption, ("method", "n", *SHOWN, "did not fit"), [_number_cells(row.method, row) for row in rows])


def _number_cells(name: str, row: ScoreRow) -> tuple[str, ...]:
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


def _real_plot(found: Evaluation, name: str, rows: Sequence[ScoreRow]) -> Markup:
    bars = [
        PlotBar(_real_name(row.method), row.shares[name] or 0.0, percent(row.shares[name]), _colour(found, row.method))
        for row in rows
    ]
    return bar_plot(f"{MEASURE_DESCRIPTIONS[name].title} at the real summary's size", bars, 1.0)


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
        f"The names that the agent went on to use, at {describe_budget(budget)}. The full bar is all of them, the "
        "coloured part those still in the context. What is not there can be recalled or searched for.",
    )
    plots = [
        _loss_plot("By what they look like", [item for item in own if (item.budget, item.by) == (budget, "shape")]),
        _loss_plot("By where they stood", [item for item in own if (item.budget, item.by) == (budget, "writer")]),
        _loss_plot("By when they stood last", [item for item in own if (item.budget, item.by) == (budget, "age")]),
    ]
    yield element("div", *plots, class_="grid")
    rows = [
        (
            _group(item),
            describe_budget(item.budget),
            f"{item.wanted:,}",
            f"{item.kept:,}",
            f"{item.wanted - item.kept:,}",
        )
        for item in own
    ]
    heads = ("group", "budget", "wanted", "kept", "lost")
    yield folded("The numbers, for every budget", table(f"Names by group: {method}", heads, rows))


def _loss_plot(title: str, items: Sequence[Loss]) -> Markup:
    most = max((item.wanted for item in items), default=1)
    ordered = sorted(items, key=lambda item: item.group) if "when" in title else items
    bars = [PlotBar(_group(item), item.kept, f"{item.kept:,} of {item.wanted:,}", 0, item.wanted) for item in ordered]
    return element("figure", element("h3", title), bar_plot(title, bars, most))


def _group(item: Loss) -> str:
    if item.by == "age":
        return item.group.strip().replace(" % of H", " % of the way")
    return {**SHAPE_DESCRIPTIONS, **WRITER_DESCRIPTIONS}.get(item.group, item.group)


def cost_section(found: Evaluation) -> Iterator[Markup]:
    """What a session costs with each method."""
    rows = [row for row in found.costs if row.source == ALL]
    if not rows:
        return
    yield element("h2", "What a session costs")
    yield element("p", f"{MEASURE_DESCRIPTIONS['COST'].meaning} The dashed line is never compacting.")
    bars = [PlotBar(row.method, row.mean, f"{row.mean:.2f}", _colour(found, row.method)) for row in rows]
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
    yield table(
        f"{method} at {describe_budget(budget)}, in percent", heads, [_number_cells(row.source, row) for row in rows]
    )
    for other in found.budgets:
        more = [row for source in found.sources if (row := found.row(method, other, source))]
        if other != budget and more:
            caption = f"{method} at {describe_budget(other)}, in percent"
            yield folded(caption, table(caption, heads, [_number_cells(row.source, row) for row in more]))


def handoff_section(found: Evaluation) -> Iterator[Markup]:
    """The handoff text, where this version writes one."""
    rows = [row for row in found.rows if row.budget == HANDOFF_BUDGET and row.source == ALL]
    if rows and HANDOFF_BUDGET not in found.budgets:
        yield element("h2", "Handoff")
        yield element("p", MEASURE_DESCRIPTIONS["HANDOFF"].meaning)
        yield _score_table(found, HANDOFF_BUDGET, "At 500 tokens, in percent")


def dialogue_section(found: Evaluation) -> Iterator[Markup]:
    """Questions about dialogues, where some were given."""
    if not found.dialogues:
        return
    yield element("h2", "Questions about dialogues")
    yield element("p", MEASURE_DESCRIPTIONS["LoCoMo"].meaning)
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
    yield element("p", MEASURE_DESCRIPTIONS["COUNT"].meaning)
    rows = [(row.source, f"{row.replies:,}", _error(row.anchored), _error(row.blind)) for row in found.counts]
    yield table("Mean error of the count", ("source", "replies", "anchored", "blind after five"), rows)


def _error(share: float | None) -> str:
    return "–" if share is None else f"{share:.2%}"


SECTIONS = (
    tiles,
    retention_section,
    model_section,
    real_section,
    loss_section,
    cost_section,
    source_section,
    handoff_section,
    dialogue_section,
    count_section,
    about_section,
    explanations,
)


def page(found: Evaluation, made_on: str = "") -> str:
    """The page. `made_on` is the date it carries."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", "What compaction keeps"),
        element("style", Markup(style)),
    )
    body = element("body", element("main", *opening(found, made_on), *_sections(found)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _sections(found: Evaluation) -> Iterator[Markup]:
    for section in SECTIONS:
        content = join(section(found))
        if content:
            yield element("section", content)
