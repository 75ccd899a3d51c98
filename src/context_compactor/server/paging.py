"""A page of a list that is at hand: the cursor is how many come before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from context_compactor.errors import BadSetting

T = TypeVar("T")
_LONGEST = 15


def page_of(every: Sequence[T], after: str | None, limit: int | None) -> tuple[list[T], str | None]:
    """The page that is asked for, or all that is behind the cursor, and the cursor of the next one."""
    first = cursor(after)
    found = list(every[first:] if limit is None else every[first : first + limit])
    return found, str(first + len(found)) if first + len(found) < len(every) else None


def cursor(after: str | None) -> int:
    """A cursor that counts."""
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) <= _LONGEST):
        raise BadSetting(f"after: {after[:40]!r} is no cursor. Try: the `next` of the page before, or nothing.")
    return int(after)
