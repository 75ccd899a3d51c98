"""A page of the history, with the compactions that were made while it was said."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from context_compactor.messages.jsontext import read_json
from context_compactor.session.core import Core
from context_compactor.session.lens import Raw, logged
from context_compactor.session.log import Compacted


class Placed(Struct, frozen=True):
    """A compaction in its place: behind so many messages of the history. One that is not active was undone."""

    id: str
    message: int
    tokens_before: int
    tokens_after: int
    messages_removed: int
    is_active: bool = True


class HistoryPage(Struct, frozen=True):
    """Messages of a history from the index `first` on, how many there are in all, and the compactions among these."""

    messages: list[Raw]
    first: int
    total: int
    compactions: list[Placed]


def history_page(core: Core, first: int | None = None, count: int | None = None) -> HistoryPage:
    """So many messages from an index on, or without one the last ones; without a count, all."""
    store, total = core.store, core.row().messages
    if first is None:
        first = 0 if count is None else max(total - count, 0)
    first = min(max(first, 0), total)
    end = total if count is None else min(first + max(count, 0), total)
    if end == first:
        return HistoryPage([], first, total, [])
    before = store.message_position(core.id, first) or 0 if first else 0
    following = store.message_position(core.id, end + 1)
    sight = core.lens.sight()
    said = logged(store, core.id, sight, after=before, until=None if following is None else following - 1)
    positions = sorted(said)
    total = max(total, first + len(positions))  # others may have appended meanwhile
    places = _placed(sight.compactions, positions, first, following)
    return HistoryPage([read_json(said[position]) for position in positions], first, total, places)


def _placed(made: Sequence[Compacted], positions: Sequence[int], first: int, following: int | None) -> list[Placed]:
    return [
        Placed(
            each.note.id,
            first + bisect_left(positions, each.position),
            each.note.tokens_before,
            each.note.tokens_after,
            each.note.messages_removed,
            each.is_active,
        )
        for each in made
        if positions[0] < each.position and (following is None or each.position < following)
    ]
