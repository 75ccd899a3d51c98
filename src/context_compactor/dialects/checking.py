"""Whether a provider will accept a history, for those who send it themselves."""

from __future__ import annotations

from collections.abc import Sequence

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.dialect import plain_messages
from context_compactor.dialects.legality import Violation, find_violations


def check(
    messages: Sequence[object],
    *,
    model: str | None = None,
    dialect: str = "auto",
    before: Sequence[object] | None = None,
) -> list[Violation]:
    """Every rule of the provider that a history breaks: the message's index, the rule's name and what is wrong.

    Empty when the provider will accept it. The rules are those of the dialect and, where it is given, of the `model`.
    Calls of the last reply may still be without a result. `before` is the history as it was when the reasoning in
    `messages` was produced: some providers accept reasoning only while nothing before it has changed.

    Raises `BadMessage` for what is no message of the dialect: not a list, an unknown role, a missing field.
    """
    plain = plain_messages(messages)
    found = find_dialect(dialect, plain).for_model(model)
    earlier = None if before is None else found.parse(plain_messages(before))
    return find_violations(found.parse(plain), found, earlier)
