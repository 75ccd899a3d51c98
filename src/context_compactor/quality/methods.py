"""Every method by its name: our engine, the baselines, the summary a model really wrote."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from msgspec import Struct, structs

from context_compactor.errors import BadSetting
from context_compactor.protocols import Model
from context_compactor.quality import baselines, lists
from context_compactor.quality.baselines import Method
from context_compactor.quality.cutting import summary_tokens
from context_compactor.quality.prepared import Sample
from context_compactor.quality.reading import RawMessage, is_instruction
from context_compactor.quality.search import Search, as_text
from context_compactor.quality.sizes import PER_MESSAGE, count_messages
from context_compactor.quality.told import Told, told_of
from context_compactor.settings import load_settings

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
    "name-list": lists.name_list,
    "ledger": lists.ledger,
}


class Made(Struct, frozen=True):
    """What a method made of a history: the context, its archive's search and recall if it has them, the seconds.

    `told` is what a model had to do with it.
    """

    messages: list[RawMessage]
    search: Search | None = None
    recall: Callable[[str], Any] | None = None
    seconds: float = 0.0
    told: Told | None = None


def compactor(messages: list[RawMessage], budget: int, model: str | Model | None = None) -> Any:
    """Our own engine, with a model only where one is given: that of the settings is never asked here."""
    import context_compactor

    alone = structs.replace(load_settings().settings, model=None)
    found = context_compactor.compact(messages, target_tokens=budget, model=model, settings=alone)
    return Made(
        found.messages, as_text(found.search), found.recall, told=None if model is None else told_of(found.report)
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


def make(method: str, sample: Sample, budget: str, model: str | Model | None = None) -> Made:
    """Run a method on a sample's history. `model` is the one that `compactor+model` asks."""
    if method == SUMMARY:
        return Made([{"role": "user", "content": sample.cut.summary}])
    run = partial(compactor, model=model) if method == WITH_MODEL else find_method(method)
    history = sample.history
    start = time.perf_counter()
    result = run(history, budget_tokens(sample, budget))
    seconds = time.perf_counter() - start
    if isinstance(result, list):
        return Made(result, seconds=seconds)
    if isinstance(result, Made):
        return structs.replace(result, seconds=seconds)
    return Made(result.messages, getattr(result, "search", None), getattr(result, "recall", None), seconds)


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
