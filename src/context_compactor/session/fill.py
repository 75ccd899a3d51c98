"""How full a session is, by what the store knows of it and without opening it."""

from __future__ import annotations

from msgspec import Struct

from context_compactor.app import counter_of
from context_compactor.ask import Ask, budget_of
from context_compactor.errors import BadSetting
from context_compactor.levels import Level, LevelRule
from context_compactor.measure.budget import Budget
from context_compactor.measure.usage import level_at
from context_compactor.messages.detect import find_dialect
from context_compactor.session.gauge import tokens_now
from context_compactor.session.values import Profile, State, read_profile
from context_compactor.settings import Settings, load_settings
from context_compactor.store.rows import SessionRow


class Rule(Struct, frozen=True):
    """What sessions that were opened alike have in common."""

    profile: Profile
    budget: Budget
    levels: tuple[LevelRule, ...]
    overhead: int

    def fill(self, row: SessionRow, state: State) -> Fill:
        """How full a session is now: what its watch remembers may be older, while calls wait for results."""
        tokens = tokens_now(state.gauge, state.calibration, self.overhead) if row.messages else 0
        share = self.budget.share(tokens)
        return Fill(tokens, share, level_at(max(share, state.gauge.bytes / self.budget.bytes), self.levels))


class Fill(Struct, frozen=True):
    """How full a context is. `share` is of the budget, from 0."""

    tokens: int
    share: float
    level: Level | None


class Rules:
    """The rules of many sessions, each made once. Settings may change: do not keep it for long."""

    def __init__(self) -> None:
        self._known: dict[bytes, Rule] = {}

    def of(self, stored: bytes) -> Rule:
        """The rule of a session with this profile."""
        return self._known.get(stored) or self._known.setdefault(stored, _rule(stored))


def _settings(profile: Profile) -> Settings:
    """Settings that can no longer be read must not hide a session, nor all those beside it."""
    try:
        return load_settings(profile.settings or None).settings
    except BadSetting:
        return Settings()


def _rule(stored: bytes) -> Rule:
    profile = read_profile(stored)
    settings = _settings(profile)
    ask = Ask(window=profile.window, settings=settings, model=profile.model)
    counter = counter_of(ask, find_dialect(profile.dialect, ()).name, None)
    budget = budget_of(ask, counter.dialect_name, counter.margin)
    return Rule(profile, budget, settings.levels, settings.overhead_tokens)
