"""One thing that `compactor doctor` found, and when things were, in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct, field

State = Literal["ok", "look", "wrong"]


class Finding(Struct, frozen=True):
    """What was found in one area, and what to do about it. `look` is for what may well be meant so."""

    area: str
    state: State
    what: str
    remedy: str = field(default="", name="try")


def ok(area: str, what: str, remedy: str = "") -> Finding:
    """Nothing to do."""
    return Finding(area, "ok", what, remedy)


def look(area: str, what: str, remedy: str = "") -> Finding:
    """Something that a person should know of."""
    return Finding(area, "look", what, remedy)


def wrong(area: str, what: str, remedy: str) -> Finding:
    """Something that does not work."""
    return Finding(area, "wrong", what, remedy)


def moment(seconds: float) -> str:
    """A time for people, in UTC and to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
