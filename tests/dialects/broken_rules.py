"""For each dialect the histories that break exactly one rule of its provider. The table in the docs is made from them.

`before` is the history as it was sent when the reasoning in `messages` was produced; None where that does not matter.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class BrokenRule(Struct, frozen=True):
    """A history that its provider rejects for one reason, and the name that reason has in `Violation.rule`."""

    dialect: str
    rule: str
    messages: list[dict[str, Any]]
    model: str | None = None
    before: list[dict[str, Any]] | None = None
