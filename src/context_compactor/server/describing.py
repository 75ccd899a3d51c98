"""A session as it is shown to a caller."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from context_compactor.api import SessionAnswer, SessionDetail, UsageAnswer
from context_compactor.levels import Level
from context_compactor.llm.secrets import without_userinfo
from context_compactor.measure.usage import Usage
from context_compactor.server.scope import Scope
from context_compactor.session.fill import Rules
from context_compactor.session.session import Session
from context_compactor.session.values import read_state
from context_compactor.store.rows import SessionRow


def describe(row: SessionRow, scope: Scope, rules: Rules | None = None) -> SessionAnswer:
    """What the store knows of a session, without opening it. `rules` are for who asks about many."""
    state, rule = read_state(row.state), (rules or Rules()).of(row.profile)
    profile = rule.profile
    return SessionAnswer(
        id=scope.outside(row.id),
        created_at=row.created_at,
        updated_at=row.updated_at,
        messages=row.messages,
        tokens=state.gauge.tokens if row.messages else 0,
        share=rule.fill(row, state).share,
        level=level_named(state.fired),
        window=profile.window,
        dialect=profile.dialect,
        model=without_userinfo(profile.model) if profile.model else None,
        settings={name: _shown(value) for name, value in profile.settings.items()},
    )


def _shown(value: Any) -> Any:
    return without_userinfo(value) if isinstance(value, str) else value


def level_named(name: str) -> Level | None:
    """The level of a stored name; none has none."""
    return Level(name) if name else None


def detail(session: Session, row: SessionRow, scope: Scope) -> SessionDetail:
    """A session with its usage and its compactions in numbers."""
    usage = session.usage()
    known = structs.asdict(describe(row, scope)) | {"tokens": usage.tokens, "share": usage.share, "level": usage.level}
    return SessionDetail(**known, usage=usage_answer(usage), totals=session.totals())


def usage_answer(usage: Usage) -> UsageAnswer:
    """How full a context is, with the forecast."""
    known = {name: getattr(usage, name) for name in UsageAnswer.__struct_fields__}
    return UsageAnswer(**known)
