"""The names a user may import: each exists, has a docstring, and stands in the reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import context_compactor

REFERENCE = Path("docs/reference/library.md")


def problems() -> list[str]:
    """What is wrong with the export list."""
    return list(_problems())


def _problems() -> Iterator[str]:
    names = list(context_compactor.__all__)
    documented = REFERENCE.read_text(encoding="utf-8")
    if names != sorted(names):
        yield "__all__ is not in alphabetical order"
    for name in names:
        if not hasattr(context_compactor, name):
            yield f"{name} is in __all__ but cannot be imported"
        elif not (getattr(context_compactor, name).__doc__ or "").strip():
            yield f"{name} has no docstring"
        if not name.startswith("_") and f"## {name}\n" not in documented:
            yield f"{name} is not in {REFERENCE}"
