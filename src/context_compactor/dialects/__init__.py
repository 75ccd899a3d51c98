"""Conversations as values: read from a provider's format, checked, repaired and written back; one file for each
dialect.

    from context_compactor.dialects import check

    for problem in check(messages, model="claude-opus-5-5"):
        print(problem.index, problem.rule, problem.what)
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in the package's own `__init__`
if TYPE_CHECKING:
    from typing import Any

    from context_compactor.dialects.checking import check
    from context_compactor.dialects.legality import Violation

_HOMES = {"check": "checking", "Violation": "legality"}

__all__ = ["Violation", "check"]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: every module of the package comes by here."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
