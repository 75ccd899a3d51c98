"""Sentences that say what a reader left out."""

from __future__ import annotations


def note(count: int, one: str, many: str, rest: str) -> list[str]:
    """`3 side chains kept apart`, or nothing when there were none."""
    return [f"{count:,} {one if count == 1 else many} {rest}"] if count else []
