"""Means, and lines for a person to read."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are there."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def show(*lines: str) -> None:
    """Write lines to the standard output."""
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
