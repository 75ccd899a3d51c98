"""Reasoning that a provider accepts only while everything before it is as it was, and what of a changed history must
therefore go without it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message, Thinking

CACHE_MARK = "cache_control"
# The first Claude models whose reasoning is bound to its conversation, whatever their family.
_FIRST_BINDING = (5, 1)
_CLAUDE_VERSION = re.compile(r"claude[-.](?:[a-z]+[-.])?(\d{1,2})(?:[-.](\d{1,2})(?!\d))?")


def claude_version(model: str | None) -> tuple[int, int] | None:
    """The version in the name of a Claude model, by whatever provider; None for other models."""
    found = _CLAUDE_VERSION.search((model or "").lower().replace("_", "-"))
    return (int(found[1]), int(found[2] or 0)) if found else None


def binds_reasoning(model: str | None) -> bool:
    """Whether a Claude model checks what stands before its reasoning; one that is not known is taken to."""
    version = claude_version(model)
    return version is None or version >= _FIRST_BINDING


def unchanged_messages(before: Sequence[Message], after: Sequence[Message]) -> int:
    """With how many equal messages both begin. Where a cache mark stands makes no difference."""
    count = 0
    for old, new in zip(before, after, strict=False):
        if old is not new and without_cache_marks(old.raw) != without_cache_marks(new.raw):
            break
        count += 1
    return count


def without_cache_marks(value: Any) -> Any:
    """A message, or what is in one, without its cache marks."""
    if isinstance(value, dict):
        return {key: without_cache_marks(held) for key, held in value.items() if key != CACHE_MARK}
    if isinstance(value, list):
        return [without_cache_marks(held) for held in value]
    return value


def drop_reasoning(
    before: Sequence[Message], after: Sequence[Message], dialect: Dialect, *, only_signed: bool = False
) -> list[Message | None]:
    """The messages `after` without the reasoning behind the first change; None where nothing else was in a message.

    What is kept is an unbroken run from the start, as the provider wants it.
    """
    first = unchanged_messages(before, after)
    return [message if at < first else _without(message, dialect, only_signed) for at, message in enumerate(after)]


def _without(message: Message, dialect: Dialect, only_signed: bool) -> Message | None:
    thoughts = [(at, part) for at, part in enumerate(message.parts) if isinstance(part, Thinking)]
    gone: dict[int, str | None] = {at: None for at, part in thoughts if part.signed or not only_signed}
    return dialect.edit(message, gone) if gone else message
