"""Whether a provider will accept a history, for those who send it themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.dialect import Dialect, dicts_of, refuse_depth
from context_compactor.dialects.legality import Violation, find_violations
from context_compactor.dialects.messages import Message


def check(
    messages: Sequence[Any], *, model: str | None = None, dialect: str = "auto", before: Sequence[Any] | None = None
) -> list[Violation]:
    """Every rule of the provider that a history breaks: the message's index, the rule's name and what is wrong.

    Empty when the provider will accept it. The rules are those of the dialect and, where it is given, of the `model`.
    Calls of the last reply may still be without a result. `before` is the history as it was when the reasoning in
    `messages` was produced: some providers accept reasoning only while nothing before it has changed.

    Raises `BadMessage` for what is no message of the dialect: not a list, an unknown role, a missing field.
    """
    found = find_dialect(dialect, messages).for_model(model)
    earlier = None if before is None else _parse(before, found)
    return find_violations(_parse(messages, found), found, earlier)


def _parse(messages: Sequence[Any], dialect: Dialect) -> list[Message]:
    refuse_depth(dicts_of(messages))
    return dialect.parse(messages)
