"""One pure function turns a plan's texts into the new context; it computes and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from context_compactor.apply.layout import Edits
from context_compactor.messages.dialect import Dialect
from context_compactor.messages.message import Message
from context_compactor.messages.turn import Turn
from context_compactor.plan.zones import Zone
from context_compactor.tracing import traced


@traced("apply")
def apply(
    turns: Sequence[Turn],
    zones: dict[int, Zone],
    record_text: str,
    edits: Edits,
    dialect: Dialect,
    *,
    joins: bool,
) -> list[Message]:
    """The new context: instructions, the record, the turns that stay. With `joins` the user's words that follow the
    record stand in its message.
    """
    fixed: list[Message] = []
    live: list[Message] = []
    first_live = next((turn.number for turn in turns if zones[turn.number] in (Zone.PLACED, Zone.VERBATIM)), None)
    for turn in turns:
        zone = zones[turn.number]
        if zone is Zone.FIXED and (first_live is None or turn.number < first_live):
            fixed.extend(turn.messages)
        elif zone is not Zone.FOLDED:
            live.extend(_edited(turn, edits, dialect))
    if not record_text:
        return [*fixed, *live]
    record = dialect.user_text(record_text)
    if joins and live and live[0].role == "user" and not live[0].results:
        return [*fixed, dialect.join(record, live[0]), *live[1:]]
    return [*fixed, record, *live]


def _edited(turn: Turn, edits: Edits, dialect: Dialect) -> list[Message]:
    messages: list[Message] = []
    for at, message in enumerate(turn.messages):
        changes = edits.get((turn.number, at))
        edited = dialect.edit(message, changes) if changes else message
        messages.append(message if edited is None else edited)
    return messages
