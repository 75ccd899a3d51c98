"""What the protocol can carry."""

from __future__ import annotations

from typing import Any

from context_compactor.measure.tokens import clean


def sendable(value: Any) -> Any:
    """A plain value without halves of characters, which the protocol cannot carry."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(name): sendable(each) for name, each in value.items()}
    return [sendable(each) for each in value] if isinstance(value, list) else value
