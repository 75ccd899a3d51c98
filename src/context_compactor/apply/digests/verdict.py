"""What a test run says in the end."""

from __future__ import annotations

from msgspec import Struct


class Verdict(Struct, frozen=True):
    """Counts in the runner's own words, and the failing tests with what they said."""

    runner: str
    counts: str
    failures: list[tuple[str, str]]
