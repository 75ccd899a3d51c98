"""The parts of the page that are mostly words: what was done, the short answer, what each measure means."""

from __future__ import annotations

from collections.abc import Iterator

from context_compactor.markup import Markup, element, folded, table
from context_compactor.quality.methods import COMPACTOR, REAL, WITH_MODEL
from context_compactor.quality.outcome import ALL, Evaluation
from context_compactor.quality.tables import count, ordinal, percent
from context_compactor.quality.words import MEASURE_WORDS, METHOD_WORDS, budget_words

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
    yield element("h2", f"In short: {method} at {budget_words(budget)}")
    measured = [name for name in TILES if own.shares[name] is not None]
    boxes = [_tile(percent(own.shares[name]), MEASURE_WORDS[name].title, _best_other(found, name)) for name in measured]
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
            rows = [(item.method, budget_words(item.budget), item.sample, item.reason) for item in troubles]
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
    for name, words in MEASURE_WORDS.items():
        yield element("dl", element("dt", f"{name}: {words.title}"), element("dd", words.meaning))
    yield element("h2", "What the methods do")
    methods = dict.fromkeys([*(row.method for row in found.rows), *(row.method for row in found.costs)])
    rows = [(method, METHOD_WORDS.get(method, "a method of your own")) for method in methods]
    yield element("ul", *(element("li", element("b", method), f": {words}") for method, words in rows))


def main_method(found: Evaluation) -> str:
    """Ours, or the first when it was not asked for."""
    return COMPACTOR if COMPACTOR in found.methods else found.methods[0]


def main_budget(found: Evaluation) -> str:
    """A quarter where it was measured, otherwise the first budget."""
    shares = [budget for budget in found.budgets if budget != REAL]
    return "25" if "25" in shares else (shares or [REAL])[0]
