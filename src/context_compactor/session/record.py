"""The compaction history of a session: when, how often, and what it saved."""

from __future__ import annotations

from msgspec import Struct

from context_compactor.price import Spent
from context_compactor.report import Report
from context_compactor.session.core import Core
from context_compactor.session.values import read_state
from context_compactor.session.views import report_of


class Totals(Struct, frozen=True):
    """All compactions of a session together. Those that were undone are counted and named, but have saved nothing."""

    compactions: int
    undone: int
    undone_ids: tuple[str, ...]
    tokens_saved: int
    messages_removed: int
    first_at: str
    last_at: str
    spent: Spent = Spent()
    """What models have taken in all, also for what came to nothing."""


def compactions(core: Core) -> list[Report]:
    """The report of every compaction, in order."""
    return [report_of(core, each) for each in core.lens.sight().compactions]


def totals(core: Core) -> Totals:
    """How often, when, what it saved, and what models have taken."""
    made = core.lens.sight().compactions
    counted = [each for each in made if each.is_active]
    return Totals(
        compactions=len(made),
        undone=len(made) - len(counted),
        undone_ids=tuple(each.note.id for each in made if not each.is_active),
        tokens_saved=sum(each.note.tokens_before - each.note.tokens_after for each in counted),
        messages_removed=sum(each.note.messages_removed for each in counted),
        first_at=made[0].created_at if made else "",
        last_at=made[-1].created_at if made else "",
        spent=read_state(core.row().state).spent,
    )
