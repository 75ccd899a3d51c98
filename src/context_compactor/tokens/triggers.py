"""When to compact: levels fire once on a rising crossing, counters only suggest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from context_compactor.settings import DEFAULT_LEVELS, Level, LevelRule
from context_compactor.tokens.budget import level_at

TriggerKind = Literal["threshold", "manual", "pre_handoff"]
Urgency = Literal["normal", "high"]

_HIGH_URGENCY = 0.90


class Trigger(Struct, frozen=True):
    """A request to compact: why, how full the context is, and what to keep an eye on."""

    kind: TriggerKind
    current_tokens: int
    budget_tokens: int
    level: Level | None = None
    focus: str | None = None
    size_share: float = 0.0

    @property
    def share(self) -> float:
        """How full the context is, in tokens or bytes, whichever is more; 1.0 is exactly full."""
        return max(_share(self.current_tokens, self.budget_tokens), self.size_share)

    @property
    def urgency(self) -> Urgency:
        """High above 90 % of the budget."""
        return "high" if self.share > _HIGH_URGENCY else "normal"

    def to_markdown(self) -> str:
        """The request as Markdown, in the form that a compacting agent takes as its input."""
        return (
            "## Compaction Request\n\n"
            f"**Trigger**: {self.kind}\n"
            f"**Current Token Count**: {self.current_tokens:,} tokens\n"
            f"**Context Budget**: {self.budget_tokens:,} tokens\n"
            f"**Urgency**: {self.urgency}\n"
        )

    def __str__(self) -> str:
        return self.to_markdown()


class TriggerState(Struct, frozen=True):
    """Which levels have fired and which may fire again.

    `fired` is the highest level since usage was last below `soft - margin`; `failed_at` is when its compaction failed.
    """

    levels: tuple[LevelRule, ...] = DEFAULT_LEVELS
    margin: float = 0.05
    retry_seconds: float = 60.0
    share: float = 0.0
    fired: Level | None = None
    failed_at: float | None = None

    def observe(
        self, tokens: int, budget: int, now: float | None = None, size_share: float = 0.0
    ) -> tuple[TriggerState, Trigger | None]:
        """The watch after a measurement, and the trigger that it pulls, if any.

        `now` is any clock in seconds; `size_share` is how much of the request's bytes are used.
        """
        share = max(_share(tokens, budget), size_share)
        if share < self._rearm_share:
            return replace(self, share=share, fired=None, failed_at=None), None
        level = level_at(share, self.levels)
        seen = replace(self, share=share)
        if level is None or not (self._is_rise(level, share) or self._may_retry(share, now)):
            return seen, None
        trigger = Trigger("threshold", tokens, budget, level, size_share=size_share)
        return replace(seen, fired=level, failed_at=None), trigger

    def failed(self, now: float) -> TriggerState:
        """The watch after a compaction that failed: the level may fire again after a wait."""
        return replace(self, failed_at=now)

    def compacted(self, tokens: int, budget: int, size_share: float = 0.0) -> TriggerState:
        """The watch after a compaction, whoever asked for it: only growth from here on can pull a trigger."""
        share = max(_share(tokens, budget), size_share)
        level = None if share < self._rearm_share else level_at(share, self.levels)
        return replace(self, share=share, fired=level, failed_at=None)

    @property
    def _rearm_share(self) -> float:
        return min((rule.threshold for rule in self.levels), default=1.0) - self.margin

    def _is_rise(self, level: Level, share: float) -> bool:
        return share > self.share and (self.fired is None or self._rank(level) > self._rank(self.fired))

    def _may_retry(self, share: float, now: float | None) -> bool:
        if self.failed_at is None or now is None or share < self.share:
            return False
        return now - self.failed_at >= self.retry_seconds

    def _rank(self, level: Level) -> float:
        return next((rule.threshold for rule in self.levels if rule.level == level), 0.0)


class Suggestion(Struct, frozen=True):
    """A hint that a compaction may be worth it; it never starts one."""

    counter: Literal["tool results", "files"]
    count: int
    threshold: int

    def __str__(self) -> str:
        return f"{self.count} {self.counter} are in the context; a compaction may be worth it"


class SuggestionCounters(Struct, frozen=True):
    """Which counters have suggested a compaction: 50 tool results and every 50 more, 20 files once."""

    tool_step: int = 50
    file_limit: int = 20
    next_tools: int = 0
    files_said: bool = False

    def observe(self, tool_results: int, files_loaded: int) -> tuple[SuggestionCounters, tuple[Suggestion, ...]]:
        """The counters after a measurement, and what they suggest. A step of 0 never suggests."""
        due = self.next_tools or self.tool_step
        suggestions: list[Suggestion] = []
        if 0 < due <= tool_results:
            suggestions.append(Suggestion("tool results", tool_results, due))
            due = (tool_results // self.tool_step + 1) * self.tool_step
        has_files = 0 < self.file_limit <= files_loaded
        if has_files and not self.files_said:
            suggestions.append(Suggestion("files", files_loaded, self.file_limit))
        return replace(self, next_tools=due, files_said=has_files), tuple(suggestions)

    def compacted(self, tool_results: int, files_loaded: int) -> SuggestionCounters:
        """The counters after a compaction: they start from what is left in the context."""
        step = self.tool_step
        due = (tool_results // step + 1) * step if step else 0
        return replace(self, next_tools=due, files_said=0 < self.file_limit <= files_loaded)


class PlateauAlarm(Struct, frozen=True):
    """Raises an alarm when usage stays near the limit for many turns and nothing compacts it."""

    turns: int = 10
    share: float = 0.80
    stayed: int = 0

    def observe(self, share: float) -> tuple[PlateauAlarm, bool]:
        """The plateau after one more turn, and whether to raise the alarm: once every `turns` turns."""
        stayed = self.stayed + 1 if share >= self.share else 0
        return replace(self, stayed=stayed), stayed > 0 and stayed % self.turns == 0

    def compacted(self) -> PlateauAlarm:
        """The plateau after a compaction."""
        return replace(self, stayed=0)


def with_token_limit(levels: Sequence[LevelRule], limit: int | None, budget: int) -> tuple[LevelRule, ...]:
    """The levels, the first of which begins at `limit` tokens if that is earlier."""
    if limit is None or not levels or budget <= 0 or limit >= levels[0].threshold * budget:
        return tuple(levels)
    threshold = max(limit, 1) / budget
    return (replace(levels[0], threshold=threshold, target=min(levels[0].target, threshold / 2)), *levels[1:])


def _share(tokens: int, budget: int) -> float:
    return max(0, tokens) / budget if budget > 0 else 1.0
