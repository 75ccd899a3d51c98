"""Copies for callers, so that what they do to a result never reaches the history."""

from __future__ import annotations

from typing import Any


def copy_containers(value: Any) -> Any:
    """The same JSON value with new dictionaries and lists; texts and numbers are shared."""
    if isinstance(value, dict):
        return {key: copy_containers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copy_containers(inner) for inner in value]
    return value
