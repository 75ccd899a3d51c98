"""What a user may ask for: budgets and methods as they are written on a command line."""

from __future__ import annotations

import re

from context_compactor.errors import BadSetting
from context_compactor.quality.methods import BASELINES, COMPACTOR, HANDOFF, REAL, find_method
from context_compactor.settings import load_settings

DEFAULT_BUDGETS = ("5", "10", "25", "50")
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
                f"--budget: {part!r} is no budget. Try: a percentage of the history from 1 to 100 (25), one with its "
                "instructions on top (10+), a number of tokens (2000t), or real; several by comma"
            )
    if not found:
        raise BadSetting("--budget: there is none. Try: 5,10,25,50")
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
        raise BadSetting(f"--methods: there is none. Known: {', '.join(known)}")
    return found


def read_model(name: str | None) -> str | None:
    """A model's name, when it can be opened: a wrong one or a missing key is told before the long work."""
    if name is not None:
        from context_compactor.llm.names import open_model

        open_model(name, load_settings().settings)
    return name


def with_real(budgets: tuple[str, ...], real: int) -> tuple[str, ...]:
    """The budgets with `real` last where there are compactions that really happened, and without it where not."""
    others = tuple(budget for budget in budgets if budget != REAL)
    return (*others, REAL) if real else others
