"""How a session of a store stands, in a line and in full."""

from __future__ import annotations

from msgspec import structs

from context_compactor.session import views
from context_compactor.session.core import Core
from context_compactor.session.fill import Rules
from context_compactor.session.record import totals
from context_compactor.session.values import given_settings, read_state
from context_compactor.store.rows import SessionRow
from context_compactor.tui.values import SessionLine, Standing


def mark_of(row: SessionRow) -> str:
    """What changes whenever the session does."""
    return f"{row.updated_at} {row.head} {row.view}"


def line_of_row(row: SessionRow, rules: Rules) -> SessionLine:
    """A session as the store knows it, without opening it."""
    rule = rules.of(row.profile)
    fill = rule.fill(row, read_state(row.state))
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
        mark=mark_of(row),
    )


def standing_of(core: Core) -> Standing:
    """How a session that is open stands. Blocks."""
    row = core.row()
    usage = views.usage(core)
    measured = {"tokens": usage.tokens, "share": usage.share, "level": usage.level, "levels": core.settings.levels}
    return Standing(
        line=structs.replace(line_of_row(row, Rules()), **measured),
        budget_tokens=usage.budget_tokens,
        bytes=usage.bytes,
        budget_bytes=usage.budget_bytes,
        margin=usage.margin,
        source=usage.source,
        tool_results=usage.tool_results,
        files_loaded=usage.files_loaded,
        growth=usage.growth,
        turns_left=usage.turns_left,
        sections=usage.sections,
        totals=totals(core),
        settings=given_settings(core.settings),
    )
