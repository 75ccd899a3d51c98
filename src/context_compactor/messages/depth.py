"""How deep a message may be nested: what is deeper could not be read again by everybody who has to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from context_compactor.errors import BadMessage

DEEPEST = 200
"""Lists and objects within each other. No provider takes half as many."""


def refuse_depth(items: Sequence[Mapping[str, Any]]) -> None:
    """`BadMessage` for the first message that is nested too deep, or holds itself."""
    for index, item in enumerate(items):
        for field, value in item.items():
            if isinstance(value, (dict, list, tuple)) and _is_deeper(value, DEEPEST - 1):
                problem = (
                    f"lists and objects are nested more than {DEEPEST} deep, which is the most. Try: as a JSON text"
                )
                raise BadMessage(index, str(field), problem)


def _is_deeper(value: Any, most: int) -> bool:
    """Level by level, and each list or object once, however often it is held."""
    level = [value]
    for _ in range(most):
        level = list({id(inner): inner for outer in level for inner in _held_by(outer)}.values())
        if not level:
            return False
    return True


def _held_by(outer: Any) -> Iterable[Any]:
    values = outer.values() if isinstance(outer, dict) else outer
    return (inner for inner in values if isinstance(inner, (dict, list, tuple)))
