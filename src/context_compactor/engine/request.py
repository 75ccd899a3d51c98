"""What a caller asks for, what that means for the context at hand, and all that a compaction works with."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message
from context_compactor.dialects.turns import split_turns
from context_compactor.engine.layouts import Shares
from context_compactor.engine.relevance import Weights
from context_compactor.engine.tiers import Tier, TierOverrides
from context_compactor.errors import BadSetting
from context_compactor.protocols import Layout, Strategy
from context_compactor.settings import Level, LevelRule, Settings
from context_compactor.tokens.budget import (
    Budget,
    Trigger,
    TriggerKind,
    Usage,
    budget_for,
    level_at,
    measure,
    with_token_limit,
)
from context_compactor.tokens.counting import (
    FixedTokens,
    MessageCounter,
    PromptSize,
    declares_recall,
    message_counter_for,
)
from context_compactor.tokens.models import PromptCache, request_bytes_for, window_for
from context_compactor.tracing import traced

if TYPE_CHECKING:
    from context_compactor.engine.classify import ParsedContext

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
    shares: Shares = Shares()
    may_cut_instructions: bool = False
    reason: str = ""
    """Why there is nothing to do; empty when there is."""


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
    prompt: PromptSize = PromptSize()
    """The size of the tools and the system prompt that are sent beside the messages."""
    kind: TriggerKind | None = None
    """Who asks. A request for `manual` or `pre_handoff` is served at any fill."""
    sent: tuple[dict[str, Any], ...] = ()
    """What is really sent, when that is more than the messages that are to be compacted."""
    tier_overrides: dict[int, Tier] | None = None
    """What the user has decided about turns; None for what a session knows of it."""
    cache: PromptCache = PromptCache()
    """What is known of the provider's cache of this conversation."""
    largest_prompt: int = 0
    """The largest prompt that the provider has accepted: its window is no smaller."""
    can_recall: bool = True
    """Whether the agent has a tool named `recall`: only then its context names it."""

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


def can_recall(settings: Settings, tools: object) -> bool:
    """Whether an agent with these tools can call `recall`, as far as it is known."""
    return declares_recall(tools or ()) if settings.recall_tool is None else settings.recall_tool


_AT_ANY_FILL = ("manual", "pre_handoff")


def _check_tokens(name: str, value: object, example: int) -> None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if value is not None and not is_count:
        raise BadSetting(f"{name} is {value!r:.60}; it must be a whole number of tokens above 0, such as {example:,}")


def request_budget(request: CompactionRequest, dialect_name: str, margin: float, reported: int | None = None) -> Budget:
    """The budget of the agent's model."""
    settings = request.settings
    override = request.window if request.window is not None else settings.window
    seen = request.largest_prompt
    window = window_for(request.model, override, reported, seen=seen, entries=settings.models)
    size = request_bytes_for(request.model, dialect_name, settings.max_request_bytes)
    return budget_for(window, settings.output_reserve(window.tokens), margin, size)


def fixed_tokens(request: CompactionRequest, counter: MessageCounter, tools: object, system: object) -> FixedTokens:
    """What is sent beside the messages: tools and system prompt as given, else as large as the request says."""
    prompt = counter.prompt_size(tools, system, request.prompt)
    return counter.fixed_tokens(prompt, other=request.settings.overhead_tokens)


@traced("measure")
def measure_context(
    parsed: ParsedContext, request: CompactionRequest, counter: MessageCounter, fixed: FixedTokens
) -> Usage:
    """Weigh a context, with what is sent beside it, against the budget of its model."""
    return measure(
        parsed.turns if parsed.past is None else split_turns(parsed.messages),
        request_budget(request, counter.dialect_name, counter.margin),
        counter,
        fixed=fixed,
        files_loaded=parsed.verdicts.files.loaded,
        levels=request.settings.levels,
    )


def request_trigger(request: CompactionRequest, usage: Usage) -> Trigger:
    """The request as a trigger: manual when a target or level was named, else what the fill says."""
    is_manual = request.kind in _AT_ANY_FILL or request.target_tokens is not None or request.level is not None
    size_share = usage.bytes / usage.budget_bytes if usage.budget_bytes else 0.0
    level = request.level
    if level is None and not is_manual:
        level = level_at(max(usage.share, size_share), _levels(request, usage))
    kind = request.kind or ("manual" if is_manual else "threshold")
    return Trigger(kind, usage.tokens, usage.budget_tokens, level, request.focus or None, size_share)


def _levels(request: CompactionRequest, usage: Usage) -> tuple[LevelRule, ...]:
    limit = request.settings.model_auto_compact_token_limit
    return with_token_limit(request.settings.levels, limit, usage.budget_tokens)


def request_goal(request: CompactionRequest, usage: Usage, trigger: Trigger) -> Goal:
    """What is to be reached, or why there is nothing to do."""
    settings = request.settings
    if not settings.enabled:
        return _no_goal(usage, "compaction is turned off by the setting `enabled`")
    target = request.target_tokens
    if request.is_free:
        target = level_target(Level.SOFT, _levels(request, usage), usage.budget_tokens)
        if request.kind == "manual":
            target = min(target, usage.tokens // 2)
    elif target is None:
        if trigger.level is None:
            soft = min(rule.threshold for rule in _levels(request, usage))
            return _no_goal(usage, f"{usage.share:.0%} of the budget is used; compaction begins at {soft:.0%}")
        target = level_target(trigger.level, _levels(request, usage), usage.budget_tokens)
        # Instructions and tools are not touched at a level, so what is left of the target must be worth having.
        most = level_target(Level.SOFT, _levels(request, usage), usage.budget_tokens)
        target = max(target, min(usage.sections.system + usage.sections.tools + target // 2, most))
    if usage.tokens <= target and usage.bytes <= usage.budget_bytes:
        return _no_goal(usage, f"{usage.tokens:,} tokens are within the target of {target:,} already")
    level = Level.SOFT if request.is_free else trigger.level
    shares = shares_for(level, settings.preserve_recent_turns, settings.tail_share)
    return Goal(
        target, usage.budget_bytes, trigger.level, shares, may_cut_instructions=request.target_tokens is not None
    )


def _no_goal(usage: Usage, reason: str) -> Goal:
    return Goal(usage.tokens, usage.budget_bytes, None, reason=reason)


def request_counter(
    request: CompactionRequest, dialect_name: str, count_tokens: Callable[[str], int] | None
) -> MessageCounter:
    """The counter for what was asked; a caller's own function is not remembered."""
    if count_tokens is not None:
        return message_counter_for(request.model, dialect_name, count_tokens)
    return _cached_counter(request.model, dialect_name)


@lru_cache(maxsize=16)
def _cached_counter(model: str | None, dialect_name: str) -> MessageCounter:
    """One counter for each model and dialect: a text that was counted once is never counted again."""
    return message_counter_for(model, dialect_name)


class EngineConfig(Struct, frozen=True):
    """What a compaction works with."""

    dialect: Dialect
    counter: MessageCounter
    strategies: tuple[Strategy, ...]
    layouts: tuple[Layout, ...]
    weights: Weights = Weights()
    focus: str = ""
    factors: dict[int, float] = {}
    """How much more or less the lines of turns count, by their number."""
    tier_overrides: TierOverrides = {}
    """What the user has decided about turns."""
    is_one_message: bool = False
    """Whether the context is to be a record alone, with the newest turns in it and the open question behind."""
    can_recall: bool = True
    """Whether the reader has a tool named `recall`."""
    custom_strategies: tuple[Strategy, ...] = ()
    """Strategies of the caller: what they propose is checked, and what is wrong with it is reported."""
    custom_layouts: tuple[Layout, ...] = ()
    """Layouts of the caller, which are tried before the others."""


class ArchiveScope(Struct, frozen=True):
    """Where the originals of a compaction will be kept, and what is known of those that were archived before it."""

    session_id: str = ""
    location: str = "memory"
    archived: Callable[[], AbstractSet[str]] | None = None
    """The ids under which earlier compactions have archived originals; None where that is not known."""
    foreign: Callable[[], AbstractSet[str]] | None = None
    """The ids that the conversation's messages name and none of its compactions has archived, such as quoted ones; None
    where its messages are not known from the beginning."""


class CompactionRun(Struct, frozen=True):
    """One compaction before it has written anything: the request, the context as it was read, and the goal."""

    request: CompactionRequest
    config: EngineConfig
    parsed: ParsedContext
    usage: Usage
    trigger: Trigger
    goal: Goal
    fixed: FixedTokens
    """What is sent with every request beside the messages."""
    legal: list[Message]
    """The messages after repairs: what the caller gets when nothing is to be done."""
    steps: list[tuple[int, Message]]
    """The same with the index of the given message that each comes from; the provider's summary is one of its own."""
    given: list[Message]
    """The messages as they were given."""
    indexes: list[int]
    """For each of these the index of what the caller gave; one item may stand for several messages."""
    repairs: tuple[str, ...]
    archive: ArchiveScope
    began: float
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    notes: tuple[str, ...] = ()
    """What the report must say beside the result."""

    @property
    def effective_goal(self) -> Goal:
        """For the messages alone; a little lower than asked where that is needed to be worth the change at all."""
        settings = self.request.settings
        target = min(self.goal.target, int(self.usage.tokens * (1 - settings.min_gain_percent / 100)))
        return structs.replace(self.goal, target=max(target - self.fixed.total, 1))

    def report_head(self) -> dict[str, Any]:
        """The fields every report begins with."""
        return {
            "trigger": self.trigger.kind,
            "level": self.trigger.level.value if self.trigger.level else None,
            "session_id": self.archive.session_id,
            "created_at": self.created_at,
            "duration_ms": round((time.perf_counter() - self.began) * 1000, 1),
            "repairs": self.repairs,
        }
