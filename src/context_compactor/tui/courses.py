"""How a session of a list went, from its compactions alone and the context as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from context_compactor.messages.detect import find_dialect
from context_compactor.messages.record import open_record
from context_compactor.messages.turn import split_turns
from context_compactor.protocols import Store
from context_compactor.session.lens import Lens
from context_compactor.session.values import read_profile, read_state
from context_compactor.tui.values import Course

_POINTS = 48

Corner = tuple[int, int, int]
"""At which entry a compaction stands, and the tokens before and after it."""


def course_of(store: Store, session_id: str) -> Course:
    """How a session of a store went. Blocks."""
    row = store.session(session_id)
    seen = Lens(store, session_id).now(row)
    made = seen.sight.compactions
    counted = [each for each in made if each.is_active]
    corners = [(each.position, each.note.tokens_before, each.note.tokens_after) for each in counted]
    return Course(
        turns=turn_count([raw for _, raw in seen.own()], read_profile(row.profile).dialect),
        compactions=len(made),
        undone=len(made) - len(counted),
        saved=sum(before - after for _, before, after in corners),
        last_at=made[-1].created_at if made else "",
        line=line_through(corners, row.head, read_state(row.state).gauge.tokens if row.messages else 0),
    )


def turn_count(context: Sequence[dict[str, Any]], dialect_name: str) -> int:
    """How many turns a session has had: those that its record stands for, and those behind it."""
    if not context:
        return 0
    dialect = find_dialect(dialect_name, context)
    live, past = open_record(dialect.parse(context), dialect)
    return (past.turns if past else 0) + sum(not turn.is_instruction for turn in split_turns(live))


def line_through(corners: Sequence[Corner], head: int, tokens: int) -> tuple[int, ...]:
    """Tokens at equal distances, on straight lines from corner to corner: a saw, as far as its corners tell."""
    ways: list[tuple[int, int, int, int]] = []
    at, level = 0, 0
    for position, before, after in (*corners, (max(head, 1), tokens, tokens)):
        ways.append((at, level, position, before))
        at, level = position, after
    last = ways[-1][2]
    return tuple(_height(ways, last * step / (_POINTS - 1)) for step in range(_POINTS))


def _height(ways: Sequence[tuple[int, int, int, int]], at: float) -> int:
    start, low, end, high = next((way for way in ways if at <= way[2]), ways[-1])
    share = (at - start) / (end - start) if end > start else 1.0
    return round(low + (high - low) * min(max(share, 0.0), 1.0))
