"""What a caller asks for, and what that means for the context at hand: a goal, or a reason to leave it alone."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from context_compactor.engine.layouts import Shares
from context_compactor.engine.tiers import Tier
from context_compactor.errors import BadSetting
from context_compactor.settings import Level, LevelRule, Settings
from context_compactor.tokens.budget import Budget, Usage, budget_for, level_at
from context_compactor.tokens.models import request_bytes_for, window_for
from context_compactor.tokens.triggers import Trigger, TriggerKind, with_token_limit

# The newest turns are pinned at soft and aggressive, as far as they leave room for anything else: they may take more
# than `tail_share` there. Turns before the last N get less of it.
_RECENT = {Level.SOFT: 3.3, Level.AGGRESSIVE: 2.6, Level.EMERGENCY: 1.6, None: 1.0}
_OLDER = 0.6


class Goal(Struct, frozen=True):
    """At most `target` tokens and `bytes` bytes; `level` is None when only a target was given.

    Instructions that leave no room are cut only for a target that somebody asked for.
    """

    target: int
    bytes: int
    level: Level | None
    shares: Shares
    may_cut_instructions: bool = False


def level_target(level: Level, levels: tuple[LevelRule, ...], budget_tokens: int) -> int:
    """The tokens a level brings a context down to."""
    rule = next(rule for rule in levels if rule.level is level)
    return int(rule.target * budget_tokens)


def shares_for(level: Level | None, recent: int, tail: float) -> Shares:
    """How the target is shared out at a level."""
    return Shares(tail=_OLDER * tail, recent=recent, recent_tail=min(_RECENT[level] * tail, 1.0))


class CompactionRequest(Struct, frozen=True):
    """One request to compact, as the caller put it."""

    window: int | None = None
    target_tokens: int | None = None
    level: Level | None = None
    focus: str = ""
    settings: Settings = Settings()
    model: str | None = None
    kind: TriggerKind | None = None
    """Who asks. A request for `manual` or `pre_handoff` is served at any fill."""
    sent: tuple[dict[str, Any], ...] = ()
    """What is really sent, when that is more than the messages that are to be compacted."""
    steers: dict[int, Tier] | None = None
    """What the user has decided about turns; None for what a session knows of it."""

    @property
    def is_free(self) -> bool:
        """Whether it was asked for at any fill, with neither a target nor a level: what can be saved is saved."""
        return self.kind in _AT_ANY_FILL and self.target_tokens is None and self.level is None

    @property
    def is_wanted(self) -> bool:
        """Whether somebody asked and waits for it: everything but what a session does by itself."""
        return self.kind in (None, "manual")

    def __post_init__(self) -> None:
        _check_tokens("target_tokens", self.target_tokens, 20_000)
        _check_tokens("window", self.window, 200_000)


_AT_ANY_FILL = ("manual", "pre_handoff")


def _check_tokens(name: str, value: object, example: int) -> None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if value is not None and not is_count:
        raise BadSetting(f"{name} is {value!r:.60}; it must be a whole number of tokens above 0, such as {example:,}")


def request_budget(ask: CompactionRequest, dialect_name: str, margin: float, reported: int | None = None) -> Budget:
    """The budget of the agent's model."""
    settings = ask.settings
    override = ask.window if ask.window is not None else settings.window
    window = window_for(ask.model, override, reported)
    size = request_bytes_for(ask.model, dialect_name, settings.max_request_bytes)
    return budget_for(window, settings.output_reserve(window.tokens), margin, size)


def request_trigger(ask: CompactionRequest, usage: Usage) -> Trigger:
    """The request as a trigger: manual when a target or level was named, else what the fill says."""
    is_manual = ask.kind in _AT_ANY_FILL or ask.target_tokens is not None or ask.level is not None
    level = ask.level if ask.level is not None or is_manual else _level_now(ask, usage)
    size_share = usage.bytes / usage.budget_bytes if usage.budget_bytes else 0.0
    kind = ask.kind or ("manual" if is_manual else "threshold")
    return Trigger(kind, usage.tokens, usage.budget_tokens, level, ask.focus or None, size_share)


def _level_now(ask: CompactionRequest, usage: Usage) -> Level | None:
    share = max(usage.share, usage.bytes / usage.budget_bytes if usage.budget_bytes else 0.0)
    return level_at(share, _levels(ask, usage))


def _levels(ask: CompactionRequest, usage: Usage) -> tuple[LevelRule, ...]:
    limit = ask.settings.model_auto_compact_token_limit
    return with_token_limit(ask.settings.levels, limit, usage.budget_tokens)


def _default_target(ask: CompactionRequest, usage: Usage) -> int:
    """The target of who asks without a level: that of the soft level; for a user who wants it smaller, half at most."""
    soft = level_target(Level.SOFT, _levels(ask, usage), usage.budget_tokens)
    return min(soft, usage.tokens // 2) if ask.kind == "manual" else soft


def request_goal(ask: CompactionRequest, usage: Usage, trigger: Trigger) -> Goal | str:
    """The goal, or the reason why there is nothing to do."""
    settings = ask.settings
    if not settings.enabled:
        return "compaction is turned off by the setting `enabled`"
    target = ask.target_tokens
    if ask.is_free:
        target = _default_target(ask, usage)
    elif target is None:
        if trigger.level is None:
            soft = min(rule.threshold for rule in _levels(ask, usage))
            return f"{usage.share:.0%} of the budget is used; compaction begins at {soft:.0%}"
        target = level_target(trigger.level, _levels(ask, usage), usage.budget_tokens)
        # Instructions are not touched at a level, so what is left of the target must be worth having.
        most = level_target(Level.SOFT, _levels(ask, usage), usage.budget_tokens)
        target = max(target, min(usage.sections.system + target // 2, most))
    if usage.tokens <= target and usage.bytes <= usage.budget_bytes:
        return f"{usage.tokens:,} tokens are within the target of {target:,} already"
    level = Level.SOFT if ask.is_free else trigger.level
    shares = shares_for(level, settings.preserve_recent_turns, settings.tail_share)
    return Goal(target, usage.budget_bytes, trigger.level, shares, may_cut_instructions=ask.target_tokens is not None)
