"""What other packages add under our entry points; it is looked for and loaded only when its name is used."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from context_compactor.errors import BadSetting

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DIALECT_GROUP = "context_compactor.dialects"
STRATEGY_GROUP = "context_compactor.strategies"


@cache
def _entry_points(group: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # takes time to load, and most callers never need it

    return {point.name: point for point in entry_points(group=group)}


def extension_names(group: str) -> list[str]:
    """What installed packages add to a group."""
    return sorted(_entry_points(group))


@cache
def load_extension(group: str, name: str) -> Any:
    """What an installed package adds under this name; a class is called. `BadSetting` when it cannot be had."""
    points = _entry_points(group)
    if name not in points:
        known = f"installed: {', '.join(extension_names(group))}" if points else "no installed package adds any"
        raise BadSetting(f"there is no {name!r} among the entry points {group!r}; {known}")
    try:
        value = points[name].load()
        return value() if isinstance(value, type) else value
    except Exception as error:
        package = getattr(points[name].dist, "name", "a package")
        raise BadSetting(
            f"{name!r} in {group!r} ({points[name].value}, of {package}) cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
