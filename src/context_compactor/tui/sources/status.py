"""How a session stands and how it went: its line in the list, its status in full, its tokens over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.record import open_record
from context_compactor.dialects.turns import split_turns
from context_compactor.protocols import Store
from context_compactor.sessions import views
from context_compactor.sessions.core import Core
from context_compactor.sessions.log import ContextReader
from context_compactor.sessions.schemas import struct_from
from context_compactor.sessions.state import given_settings, read_profile, read_session_state
from context_compactor.sessions.token_series import FillRules
from context_compactor.sessions.views import totals
from context_compactor.store.rows import SessionRow
from context_compactor.tui.sources.base import SessionLine, SessionStatus, SessionTrend


def revision_of(row: SessionRow) -> str:
    """What changes whenever the session does."""
    return f"{row.updated_at} {row.head} {row.view}"


def session_line(row: SessionRow, rules: FillRules) -> SessionLine:
    """A session as the store knows it, without opening it."""
    rule = rules.of(row.profile)
    fill = rule.fill(row, read_session_state(row.state))
    return SessionLine(
        id=row.id,
        updated_at=row.updated_at,
        messages=row.messages,
        tokens=fill.tokens,
        share=fill.share,
        level=fill.level,
        levels=rule.levels,
        window=rule.profile.window,
        model=rule.profile.model or "",
        dialect=rule.profile.dialect,
        mark=revision_of(row),
    )


def session_status(core: Core) -> SessionStatus:
    """How a session that is open stands. Blocks."""
    row = core.row()
    usage = views.usage(core)
    measured = {"tokens": usage.tokens, "share": usage.share, "level": usage.level, "levels": core.settings.levels}
    return struct_from(
        SessionStatus,
        usage,
        line=structs.replace(session_line(row, FillRules()), **measured),
        totals=totals(core),
        settings=given_settings(core.settings),
    )


_TREND_POINTS = 48

CompactionPoint = tuple[int, int, int]
"""At which entry a compaction stands, and the tokens before and after it."""


def session_trend(store: Store, session_id: str) -> SessionTrend:
    """How a session of a store went. Blocks."""
    row = store.session(session_id)
    seen = ContextReader(store, session_id).now(row)
    made = seen.log_state.compactions
    counted = [each for each in made if each.is_active]
    corners = [(each.position, each.note.tokens_before, each.note.tokens_after) for each in counted]
    return SessionTrend(
        turns=turn_count([raw for _, raw in seen.own()], read_profile(row.profile).dialect),
        compactions=len(made),
        undone=len(made) - len(counted),
        saved=sum(before - after for _, before, after in corners),
        last_at=made[-1].created_at if made else "",
        line=token_line(corners, row.head, read_session_state(row.state).gauge.tokens if row.messages else 0),
    )


def turn_count(context: Sequence[dict[str, Any]], dialect_name: str) -> int:
    """How many turns a session has had: those that its record stands for, and those behind it."""
    if not context:
        return 0
    dialect = find_dialect(dialect_name, context)
    live, past = open_record(dialect.parse(context), dialect)
    return (past.turns if past else 0) + sum(not turn.is_fixed for turn in split_turns(live))


def token_line(corners: Sequence[CompactionPoint], head: int, tokens: int) -> tuple[int, ...]:
    """Tokens at equal distances, on straight lines from one compaction to the next."""
    ways: list[tuple[int, int, int, int]] = []
    at, level = 0, 0
    for position, before, after in (*corners, (max(head, 1), tokens, tokens)):
        ways.append((at, level, position, before))
        at, level = position, after
    last = ways[-1][2]
    return tuple(_tokens_at(ways, last * step / (_TREND_POINTS - 1)) for step in range(_TREND_POINTS))


def _tokens_at(ways: Sequence[tuple[int, int, int, int]], at: float) -> int:
    start, low, end, high = next((way for way in ways if at <= way[2]), ways[-1])
    share = (at - start) / (end - start) if end > start else 1.0
    return round(low + (high - low) * min(max(share, 0.0), 1.0))
