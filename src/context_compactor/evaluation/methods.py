"""Every method by its name, what each made of a history, and what a user may choose on the command line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from msgspec import Struct, structs

from context_compactor.engine.report import ModelCall, Report
from context_compactor.errors import BadSetting
from context_compactor.evaluation import baselines
from context_compactor.evaluation.baselines import Method
from context_compactor.evaluation.corpus import summary_tokens
from context_compactor.evaluation.expected import Sample
from context_compactor.evaluation.messages import PER_MESSAGE, RawMessage, count_messages, is_instruction
from context_compactor.evaluation.search import Search, as_text
from context_compactor.protocols import Model
from context_compactor.settings import load_settings

ACCEPTED = "accepted"
NOT_ASKED = "not asked"
AS_A_WHOLE = "refused as a whole"


class ModelUse(Struct, frozen=True):
    """One compaction for which a model was at hand.

    `why` says in a word or two why its summary is not used; it is empty where it is. `outcomes` counts what became of
    the single calls. `cost` is in US dollars, or None where it is not known.
    """

    why: str
    calls: int
    shown: int
    written: int
    cost: float | None
    outcomes: dict[str, int]


class ModelUseRow(Struct, frozen=True):
    """All compactions of one budget with a model at hand: how many summaries are used, and why the others are not."""

    budget: str
    compactions: int
    used: int
    refused: dict[str, int]
    calls: int
    outcomes: dict[str, int]
    shown: int
    written: int
    cost: float | None


def model_use_of(report: Report) -> ModelUse:
    """What a report says of its model."""
    calls = report.model_calls
    return ModelUse(
        why="" if report.summarized_by else _why(calls),
        calls=len(calls),
        shown=sum(call.tokens_shown for call in calls),
        written=sum(call.tokens_written for call in calls),
        cost=_total(call.cost for call in calls),
        outcomes=dict(Counter(code for call in calls for code in _codes(call))),
    )


def _why(calls: Sequence[ModelCall]) -> str:
    """The objections to the last answer; where it was accepted, the summary as a whole was not."""
    if not calls:
        return NOT_ASKED
    return AS_A_WHOLE if calls[-1].outcome.startswith(ACCEPTED) else calls[-1].outcome


def _codes(call: ModelCall) -> list[str]:
    return [ACCEPTED] if call.outcome.startswith(ACCEPTED) else call.outcome.split(", ")


def model_use_row(budget: str, uses: Sequence[ModelUse]) -> ModelUseRow:
    """The sums of these compactions; what is commonest comes first."""
    whys = Counter(code for one in uses if one.why for code in one.why.split(", "))
    outcomes: Counter[str] = Counter()
    for one in uses:
        outcomes.update(one.outcomes)
    return ModelUseRow(
        budget=budget,
        compactions=len(uses),
        used=sum(not one.why for one in uses),
        refused=dict(whys.most_common()),
        calls=sum(one.calls for one in uses),
        outcomes=dict(outcomes.most_common()),
        shown=sum(one.shown for one in uses),
        written=sum(one.written for one in uses),
        cost=_total(one.cost for one in uses if one.calls),
    )


def model_use_lines(row: ModelUseRow) -> Iterator[str]:
    """The same for people: one line on the summaries, one on the calls."""
    others = f"; not used: {counted(row.refused)}" if row.refused else ""
    yield f"{row.used:,} of {row.compactions:,} summaries of the model are used{others}"
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


REAL = "real"
SUMMARY = "summary"
COMPACTOR = "compactor"
WITH_MODEL = "compactor+model"
HANDOFF = "handoff"
HANDOFF_BUDGET = "500t"

BASELINES: dict[str, Method] = {
    "everything": baselines.keep_everything,
    "nothing": baselines.keep_nothing,
    "keep-last": baselines.keep_last,
    "trim": baselines.trim,
    "head-and-tail": baselines.keep_ends,
    "truncate-outputs": baselines.truncate_outputs,
    "masking": baselines.mask_observations,
    "random-drop": baselines.random_drop,
    "name-list": baselines.name_list,
    "ledger": baselines.ledger,
}


class MethodResult(Struct, frozen=True):
    """What a method made of a history: the context, its archive's search and recall if it has them.

    `model_use` is what a model had to do with it.
    """

    messages: list[RawMessage]
    search: Search | None = None
    recall: Callable[[str], Any] | None = None
    model_use: ModelUse | None = None


def compactor(messages: list[RawMessage], budget: int, summarizer: str | Model | None = None) -> Any:
    """Our own engine, with a summarizer only where one is given: that of the settings is never asked here."""
    import context_compactor

    alone = structs.replace(load_settings().settings, summarizer=None, recall_tool=True)
    found = context_compactor.compact(messages, target_tokens=budget, summarizer=summarizer, settings=alone)
    return MethodResult(
        found.messages,
        as_text(found.search),
        found.recall,
        model_use=None if summarizer is None else model_use_of(found.report),
    )


def handoff(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """The text our engine hands to the agent of the next phase, as one message."""
    from context_compactor.handoff import handoff_text

    return [{"role": "user", "content": handoff_text(messages, tokens=budget - PER_MESSAGE)}]


def find_method(name: str) -> Callable[[list[RawMessage], int], Any]:
    """A method by its name, or `package.module:function`. It returns messages, or something that has them."""
    if ":" in name:
        module, function = name.split(":")
        return _guarded(name, getattr(import_module(module), function))
    return {**BASELINES, COMPACTOR: compactor, HANDOFF: handoff}[name]


class BadMethod(BadSetting):
    """A method of a user's own that fails, or returns something else than messages."""


def _guarded(name: str, method: Callable[[list[RawMessage], int], Any]) -> Callable[[list[RawMessage], int], Any]:
    def run(messages: list[RawMessage], budget: int) -> Any:
        try:
            made = method(messages, budget)
        except Exception as problem:
            said = f"{type(problem).__name__}: {problem}"
            raise BadMethod(f"the method {name} failed on {len(messages)} messages: {said}") from problem
        found = made if isinstance(made, list) else getattr(made, "messages", None)
        if not isinstance(found, list) or not all(isinstance(message, dict) for message in found):
            raise BadMethod(f"the method {name} returned no list of messages, but {str(made)[:60]!r}")
        return made

    return run


def run_method(method: str, sample: Sample, budget: str, summarizer: str | Model | None = None) -> MethodResult:
    """Run a method on a sample's history. `summarizer` is the one that `compactor+model` asks."""
    if method == SUMMARY:
        return MethodResult([{"role": "user", "content": sample.cut.summary}])
    run = partial(compactor, summarizer=summarizer) if method == WITH_MODEL else find_method(method)
    result = run(sample.history, budget_tokens(sample, budget))
    if isinstance(result, MethodResult):
        return result
    if isinstance(result, list):
        return MethodResult(result)
    return MethodResult(result.messages, getattr(result, "search", None), getattr(result, "recall", None))


def budget_tokens(sample: Sample, budget: str) -> int:
    """The tokens a context may have: a percentage of the history, `500t` for so many, `real` for the real summary's.

    `5+` is a percentage of the history without its instructions, and the instructions on top: where a system prompt
    alone is larger than the budget, no method that leaves it alone can fit.
    """
    if budget == REAL:
        return summary_tokens(sample.cut.summary)
    if budget.endswith("t"):
        return int(budget[:-1])
    fixed = count_messages(filter(is_instruction, sample.history)) if budget.endswith("+") else 0
    return fixed + (sample.cut.tokens - fixed) * int(budget.rstrip("+")) // 100


def suits(sample: Sample, budget: str) -> bool:
    """Whether a sample belongs to a budget: real compactions to `real`, the main samples to all others."""
    return sample.cut.group == (REAL if budget == REAL else "main")


DEFAULT_METHODS = (
    COMPACTOR,
    "keep-last",
    "trim",
    "head-and-tail",
    "truncate-outputs",
    "masking",
    "random-drop",
)

_BUDGET = re.compile(r"(?P<share>[1-9]\d?|100)%?\+?|(?P<tokens>[1-9]\d{0,8})t|real")


def read_budgets(text: str) -> tuple[str, ...]:
    """Budgets by comma: `25` percent of the history, `10+` with its instructions on top, `500t` tokens, `real`."""
    found = [part.strip().lower() for part in text.split(",") if part.strip()]
    for part in found:
        if not _BUDGET.fullmatch(part):
            raise BadSetting(
                f"--budget: {part!r} is not a budget. "
                "Try: a percentage of the history from 1 to 100 (25), one with its "
                "instructions on top (10+), a number of tokens (2000t), or real; several by comma"
            )
    if not found:
        raise BadSetting("--budget: no budget is given. Try: 5,10,25,50")
    return tuple(dict.fromkeys(part.replace("%", "") for part in found))


def read_methods(text: str) -> tuple[str, ...]:
    """Methods by comma: known names, or `module:function` of your own."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    known = [COMPACTOR, *BASELINES, HANDOFF]
    for name in found:
        try:
            find_method(name)
        except (KeyError, ImportError, AttributeError, ValueError) as error:
            why = f"cannot be imported ({error})" if ":" in name else "is unknown"
            raise BadSetting(
                f"--methods: {name!r} {why}. Known: {', '.join(known)}; or module:function of your own"
            ) from None
    if not found:
        raise BadSetting(f"--methods: no method is given. Known: {', '.join(known)}")
    return found


def read_summarizer(name: str | None) -> str | None:
    """A summarizer's name, when it can be opened: a wrong one or a missing key is reported before the long work."""
    if name is not None:
        from context_compactor.summarize.clients.names import open_model

        open_model(name, load_settings().settings)
    return name


def with_real(budgets: tuple[str, ...], real: int) -> tuple[str, ...]:
    """The budgets with `real` last where there are compactions that really happened, and without it where not."""
    others = tuple(budget for budget in budgets if budget != REAL)
    return (*others, REAL) if real else others
