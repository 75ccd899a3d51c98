"""What a context may use and how much of it is used; the levels, and when crossing one triggers a compaction."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil
from statistics import median
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from context_compactor.dialects.dialect import DEFAULT_REQUEST_BYTES
from context_compactor.dialects.messages import Message, Part, Text, Thinking, ToolResult
from context_compactor.dialects.record import record_span
from context_compactor.dialects.turns import Turn
from context_compactor.errors import BadSetting
from context_compactor.settings import DEFAULT_LEVELS, Level, LevelRule
from context_compactor.tokens.calibration import Calibration, anchored_tokens
from context_compactor.tokens.counting import FixedTokens, MessageCounter, last_question, message_bytes
from context_compactor.tokens.models import Window


class Budget(Struct, frozen=True):
    """What a context may use: the window without the reserved output and a margin for counting errors."""

    window: Window
    reserve_output: int = 0
    margin: int = 0
    bytes: int = DEFAULT_REQUEST_BYTES

    def __post_init__(self) -> None:
        _check_budget(self)

    @property
    def tokens(self) -> int:
        """The tokens that are left for messages, tools and the system prompt."""
        return self.window.tokens - self.reserve_output - self.margin

    def share(self, tokens: int) -> float:
        """How full a context of so many tokens is; 1.0 is exactly full."""
        return max(0, tokens) / self.tokens

    def fits(self, tokens: int, size: int = 0) -> bool:
        """Whether a request of so many tokens and bytes is within both limits."""
        return tokens <= self.tokens and size <= self.bytes

    def lowered(self, limit: int | None) -> Budget:
        """The same budget under a lower limit that a provider taught us; a higher one changes nothing."""
        if limit is None or limit <= 0 or limit >= self.window.tokens:
            return self
        window = Window(limit, f"learned from a rejected request, below what was {self.window.source}")
        scale = limit / self.window.tokens
        return Budget(window, int(self.reserve_output * scale), int(self.margin * scale), self.bytes)

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} tokens = {self.window.tokens:,} ({self.window.source})"
            f" - {self.reserve_output:,} reserved for output - {self.margin:,} margin; {self.bytes:,} bytes"
        )


def budget_for(window: Window, reserve_output: int, margin_share: float = 0.0, size: int | None = None) -> Budget:
    """The budget of a window. The margin is a share of what the reserved output leaves; `size` is a request's bytes."""
    _check_parts(window.tokens, reserve_output)
    margin = ceil((window.tokens - reserve_output) * min(0.9, max(0.0, margin_share)))
    return Budget(window, reserve_output, margin, DEFAULT_REQUEST_BYTES if size is None else size)


def _check_parts(window: int, reserve_output: int) -> None:
    if window <= 0:
        raise BadSetting(f"window is {window:,} tokens; it must be positive, such as 128,000")
    if reserve_output < 0:
        raise BadSetting(f"reserve_output_tokens is {reserve_output:,}; it must be 0 or more")
    if reserve_output >= window:
        raise BadSetting(
            f"reserve_output_tokens is {reserve_output:,} and leaves nothing of a window of {window:,} tokens; "
            f"try reserve_output_tokens={window // 8:,} or a window above {reserve_output * 2:,}"
        )


def _check_budget(budget: Budget) -> None:
    _check_parts(budget.window.tokens, budget.reserve_output)
    if budget.margin < 0 or budget.bytes <= 0:
        raise BadSetting(f"margin ({budget.margin:,}) must be 0 or more and bytes ({budget.bytes:,}) positive")
    if budget.tokens <= 0:
        raise BadSetting(
            f"a window of {budget.window.tokens:,} tokens minus {budget.reserve_output:,} reserved for output minus a "
            f"margin of {budget.margin:,} leaves nothing; lower reserve_output_tokens or use a larger window"
        )


_REFERENCE_OPENING = "[archived "
_REFERENCE_LINE = re.compile(r"\[archived (?:tool|file|agent|turn)_\d+: [^\n]{0,2000}?\](?=\n|$)")

_FORECAST_TURNS = 10
_FEWEST_TURNS = 3
_ANCHORED_MARGIN = 0.005


class Sections(Struct, frozen=True):
    """Tokens by what they are. `unseen` is what the provider counts and our messages do not hold."""

    system: int = 0
    tools: int = 0
    user: int = 0
    assistant: int = 0
    tool_results: int = 0
    thinking: int = 0
    summaries: int = 0
    references: int = 0
    unseen: int = 0

    @property
    def total(self) -> int:
        """All sections together."""
        return sum(asdict(self).values())


class Anchor(Struct, frozen=True):
    """What a provider reported for a request: its first `messages` messages weighed `tokens`."""

    messages: int
    tokens: int


class Usage(Struct, frozen=True):
    """How much of a budget a context uses. `margin` is the share by which the truth may be higher."""

    tokens: int
    budget_tokens: int
    sections: Sections
    bytes: int
    budget_bytes: int
    share: float
    level: Level | None
    margin: float
    tool_results: int
    files_loaded: int
    growth: int | None
    source: str

    @property
    def turns_left(self) -> int | None:
        """About how many more turns fit into the budget, or None when it cannot be told."""
        return self.turns_until(self.budget_tokens)

    def turns_until(self, tokens: int) -> int | None:
        """About how many more turns it takes to reach so many tokens, or None when it cannot be told."""
        return None if self.growth is None else max(0, tokens - self.tokens) // self.growth

    @property
    def upper(self) -> int:
        """The tokens with the margin on top."""
        return ceil(self.tokens * (1 + self.margin))


def measure(
    turns: Sequence[Turn],
    budget: Budget,
    message_counter: MessageCounter,
    *,
    fixed: FixedTokens | None = None,
    anchor: Anchor | None = None,
    calibration: Calibration | None = None,
    files_loaded: int = 0,
    levels: Sequence[LevelRule] = DEFAULT_LEVELS,
) -> Usage:
    """Weigh a context. `fixed` is sent with every request and stands in no message: tools and a system prompt.

    With an anchor the total is what the provider reported plus our count of what came after; with a calibration that
    has learned something it is corrected by that; else it is our own count.
    """
    messages = [message for turn in turns for message in turn.messages]
    message_counter.learn(messages)
    fixed = fixed or FixedTokens()
    sections = _sections(messages, message_counter, fixed)
    tokens, margin, source = _total(sections.total, fixed.other, messages, message_counter, anchor, calibration)
    size = sum(map(message_bytes, messages))
    return Usage(
        tokens=tokens,
        budget_tokens=budget.tokens,
        sections=_fit_to_total(sections, tokens),
        bytes=size,
        budget_bytes=budget.bytes,
        share=budget.share(tokens),
        level=level_at(max(tokens / budget.tokens, size / budget.bytes), levels),
        margin=margin,
        tool_results=sum(len(message.results) for message in messages),
        files_loaded=files_loaded,
        growth=growth_per_turn(turns, message_counter),
        source=source,
    )


def level_at(share: float, levels: Sequence[LevelRule] = DEFAULT_LEVELS) -> Level | None:
    """The highest level whose threshold a share of the budget has reached."""
    reached = [rule for rule in levels if share >= rule.threshold]
    return max(reached, key=lambda rule: rule.threshold).level if reached else None


def growth_per_turn(turns: Sequence[Turn], message_counter: MessageCounter) -> int | None:
    """The median of what the last turns weigh, or None when there are too few to tell."""
    recent = [turn for turn in turns if not turn.is_fixed and not _is_record(turn)]
    weights = [sum(message_counter.count_many(turn.messages)) for turn in recent[-_FORECAST_TURNS:]]
    if len(weights) < _FEWEST_TURNS:
        return None
    return max(1, round(median(weights)))


def _total(
    counted: int,
    guessed: int,
    messages: Sequence[Message],
    counter: MessageCounter,
    anchor: Anchor | None,
    calibration: Calibration | None,
) -> tuple[int, float, str]:
    if anchor is not None and 0 <= anchor.messages <= len(messages):
        since = counter.request_tokens(messages) - counter.request_tokens(messages[: anchor.messages])
        tokens = anchored_tokens(anchor.tokens, since, calibration.ratio if calibration else 1.0)
        if tokens is not None:
            margin = min(counter.margin, counter.margin * abs(since) / tokens)
            return tokens, max(_ANCHORED_MARGIN, margin), "anchored on the last reply"
    if calibration is not None and calibration.replies:
        estimate = calibration.estimate(counted - guessed)  # it has learned what there is beside what we can count
        return estimate.tokens, estimate.margin, "counted and calibrated"
    return counted, counter.margin, "counted"


def _fit_to_total(sections: Sections, tokens: int) -> Sections:
    """Sections that add up to the total: what is missing is unseen, what is too much is taken from all by share."""
    known = asdict(sections)
    if tokens >= sections.total:
        return Sections(**{**known, "unseen": tokens - sections.total})
    shrunk = {name: value * tokens // sections.total for name, value in known.items()}
    return Sections(**{**shrunk, "unseen": tokens - sum(shrunk.values())})


def _sections(messages: Sequence[Message], counter: MessageCounter, fixed: FixedTokens) -> Sections:
    sums: Counter[str] = Counter(system=counter.overhead.request + fixed.system, tools=fixed.tools + fixed.other)
    resent = last_question(messages) if counter.overhead.drops_thinking else 0
    for at, message in enumerate(messages):
        sums["tool_results" if message.results else _role_section(message)] += counter.frame_tokens(message)
        for section, tokens in _section_tokens(message, counter):
            if section != "thinking" or at >= resent:
                sums[section] += tokens
    return Sections(**sums)


def _section_tokens(message: Message, counter: MessageCounter) -> Iterator[tuple[str, int]]:
    for part, tokens in zip(message.parts, counter.part_tokens(message), strict=True):
        section, texts = _written_by_us(part)
        ours = min(tokens, sum(counter.texts(texts))) if texts else 0
        yield section, ours
        yield _section_of(part, message), tokens - ours


def _written_by_us(part: Part) -> tuple[str, Sequence[str]]:
    """What a compaction has written into a part: the record, or lines of reference."""
    if isinstance(part, Text) and (span := record_span(part.text)):
        return "summaries", [part.text[slice(*span)]]
    if isinstance(part, Text | ToolResult) and _REFERENCE_OPENING in part.text:
        return "references", [match[0] for match in _REFERENCE_LINE.finditer(part.text)]
    return "references", ()


def _section_of(part: Part, message: Message) -> str:
    if isinstance(part, Thinking):
        return "thinking"
    return "tool_results" if isinstance(part, ToolResult) else _role_section(message)


def _role_section(message: Message) -> str:
    """The section of whoever speaks."""
    if message.role in ("system", "developer"):
        return "system"
    return "tool_results" if message.role == "tool" else message.role


def _is_record(turn: Turn) -> bool:
    return any(isinstance(part, Text) and record_span(part.text) for part in turn.messages[0].parts)


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
