"""Reasoning that a provider accepts only while everything before it is as it was, and what of a changed history must
therefore go without it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message, Thinking

CACHE_MARK = "cache_control"
CACHE_POINT = "cachePoint"
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


def unchanged_messages(before: Sequence[Message], after: Sequence[Message], dialect: Dialect) -> int:
    """With how many equal messages both begin.

    Where a cache mark stands makes no difference, nor the block it needs, nor reasoning that is gone from the start.
    """
    has_reasoning = False
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        is_same = old is new or _as_sent(old) == _as_sent(new)
        thinks = any(isinstance(part, Thinking) for part in new.parts)
        if not is_same and (has_reasoning or thinks or not _lost_only_reasoning(old, new, dialect)):
            return at
        has_reasoning = has_reasoning or thinks
    return min(len(before), len(after))


def _lost_only_reasoning(old: Message, new: Message, dialect: Dialect) -> bool:
    kept = _without(old, dialect, only_signed=False)
    return kept is not None and _as_sent(kept) == _as_sent(new)


def _as_sent(message: Message) -> Any:
    """What a model is shown of a message: no cache marks, and a text that is the whole content as its only block."""
    raw = without_cache_marks(message.raw)
    content = raw.get("content")
    return {**raw, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else raw


def without_cache_marks(value: Any) -> Any:
    """A message, or what is in one, without its cache marks and cache points."""
    if isinstance(value, dict):
        return {key: without_cache_marks(held) for key, held in value.items() if key != CACHE_MARK}
    if isinstance(value, list):
        return [without_cache_marks(held) for held in value if not (isinstance(held, dict) and CACHE_POINT in held)]
    return value


def drop_reasoning(
    before: Sequence[Message], after: Sequence[Message], dialect: Dialect, *, only_signed: bool = False
) -> list[Message | None]:
    """The messages `after` without the reasoning behind the first change; None where nothing else was in a message.

    What is kept is an unbroken run from the start, as the provider wants it.
    """
    first = unchanged_messages(before, after, dialect)
    return [message if at < first else _without(message, dialect, only_signed) for at, message in enumerate(after)]


def _without(message: Message, dialect: Dialect, only_signed: bool) -> Message | None:
    thoughts = [(at, part) for at, part in enumerate(message.parts) if isinstance(part, Thinking)]
    gone: dict[int, str | None] = {at: None for at, part in thoughts if part.signed or not only_signed}
    return dialect.edit(message, gone) if gone else message
