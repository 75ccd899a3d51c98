"""The one scale: what a target is worth, and so what becomes of it."""

from __future__ import annotations

from enum import StrEnum


class Tier(StrEnum):
    """From dear to cheap. Whatever is not kept has its original archived first."""

    KEEP = "keep"
    SUMMARIZE = "summarize"
    REFERENCE = "reference"
    DROP = "drop"
