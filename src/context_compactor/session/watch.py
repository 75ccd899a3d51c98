"""After every change: is a level reached, should a compaction be suggested, does usage stay near the limit?"""

from __future__ import annotations

from msgspec import Struct, structs

from context_compactor.facts.task_boundary import find_boundary
from context_compactor.levels import Level
from context_compactor.measure.budget import Budget
from context_compactor.measure.count import MessageCounter
from context_compactor.measure.triggers import Counters, Suggestion, Trigger, Watch, with_token_limit
from context_compactor.measure.usage import level_at
from context_compactor.messages.turn import split_turns
from context_compactor.session.core import Core, raws_of
from context_compactor.session.gauge import tokens_now
from context_compactor.session.values import State, read_state
from context_compactor.store.desk_rows import Job
from context_compactor.store.rows import SessionRow

RETRY_SECONDS = 60.0
# A level that could not be left fires again when the context has grown by so much.
_GROWN = 1.05
# How much fuller than its threshold the context may get while a soft compaction waits for a task boundary.
_MOST_WAIT = 0.05


class Watched(Struct, frozen=True):
    """What a look at the gauge has shown, and the jobs that were queued for it.

    `boundary` says at which task boundary a soft compaction comes; while it waits for one, `is_waiting`. After an
    append `messages` is how many there are in all, `tokens` and `share` how full the context is, and `fired` the level
    that was reached last and not left since.
    """

    trigger: Trigger | None = None
    is_crossing: bool = False
    boundary: str = ""
    is_waiting: bool = False
    suggestions: tuple[Suggestion, ...] = ()
    is_plateau: bool = False
    is_extraction_due: bool = False
    jobs: tuple[Job, ...] = ()
    messages: int = 0
    tokens: int = 0
    share: float = 0.0
    fired: str = ""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing follows from it: nobody is to be told, and nothing is to be done now."""
        is_told = self.is_plateau or self.is_extraction_due or any(job.kind != "idle" for job in self.jobs)
        return self.trigger is None and not self.suggestions and not is_told


def watch(
    core: Core, state: State, counter: MessageCounter, boundary: str = "", *, is_at_rest: bool = False
) -> tuple[State, Watched]:
    """The state after a look at its gauge, and what is to be done. While calls wait for results nothing is.

    Unless the caller knows of a moment at which none waited: whoever appends results together with the next calls
    leaves no other. A soft compaction waits for a task boundary, unless the caller knows that this is one.
    """
    if state.gauge.open_calls and not is_at_rest:
        return state, Watched()
    budget = core.budget(counter)
    tokens = tokens_now(state.gauge, state.calibration, core.settings.overhead_tokens)
    size_share = state.gauge.bytes / budget.bytes
    seen, trigger = _known(core, state, budget).observe(tokens, budget.tokens, core.seconds(), size_share)
    level, is_crossing = level_at(seen.share, seen.levels), trigger is not None
    if trigger is None and level is not None and 0 < state.attempted * _GROWN <= tokens:
        trigger = Trigger("threshold", tokens, budget.tokens, level, size_share=size_share)
    if trigger is None and state.is_waiting and seen.fired is Level.SOFT:
        trigger = Trigger("threshold", tokens, budget.tokens, Level.SOFT, size_share=size_share)
    boundary, is_waiting = _wait(core, trigger, seen, seen.share - state.share, boundary)
    counters, suggestions = _counters(core, state).observe(state.gauge.tool_results, len(state.gauge.files))
    plateau, is_plateau = state.plateau.observe(seen.share)
    state = structs.replace(
        state,
        share=seen.share,
        fired=seen.fired or "",
        failed_at=seen.failed_at,
        attempted=tokens if trigger and not is_waiting else state.attempted,
        is_waiting=is_waiting,
        counters=counters,
        plateau=plateau,
    )
    return state, Watched(trigger, is_crossing, boundary, is_waiting, suggestions, is_plateau)


def is_wanted(core: Core, watched: Watched) -> bool:
    """Whether a look at the gauge leads to a compaction."""
    by_counter = bool(watched.suggestions) and core.settings.counters_compact
    is_due = watched.trigger is not None and not watched.is_waiting
    return core.settings.enabled and core.settings.automatic and (is_due or by_counter)


def is_urgent(core: Core, watched: Watched) -> bool:
    """Whether that compaction waits for nobody."""
    is_emergency = watched.trigger is not None and watched.trigger.level is Level.EMERGENCY
    return is_emergency and is_wanted(core, watched)


def is_left_to_jobs(core: Core, watched: Watched) -> bool:
    """Whether that compaction is a job's business."""
    return core.schedule is not None and not is_urgent(core, watched) and is_wanted(core, watched)


def share_now(core: Core, state: State) -> float:
    """How full the context is. What the watch remembers may be older: while calls wait for results it does not look."""
    budget = core.budget(core.counter(core.dialect()))
    return budget.share(tokens_now(state.gauge, state.calibration, core.settings.overhead_tokens))


def unanswered(before: State, state: State) -> State:
    """The state until an emergency is answered: when that never happens, the next look sees it again."""
    return structs.replace(
        state, share=before.share, fired=before.fired, failed_at=before.failed_at, attempted=before.attempted
    )


def answered(state: State, trigger: Trigger) -> State:
    """The state after a level was answered: it fires again when the context has grown."""
    return structs.replace(state, share=trigger.share, fired=trigger.level or "", attempted=trigger.current_tokens)


def _wait(core: Core, trigger: Trigger | None, seen: Watch, step: float, boundary: str) -> tuple[str, bool]:
    """At which task boundary a soft compaction comes, and whether it waits for one.

    It waits while another step like the last one would not reach the next level, which brings the context down further.
    """
    settings = core.settings
    if trigger is None or trigger.level is not Level.SOFT or not (settings.wait_for_boundary and settings.automatic):
        return "", False
    found = boundary or _boundary(core)
    first, *others = sorted(rule.threshold for rule in seen.levels)
    return found, not found and seen.share + max(step, 0.0) < min(first + _MOST_WAIT, *others, 1.0)


def _boundary(core: Core) -> str:
    raws = raws_of(core.seen(core.row()))
    return find_boundary(split_turns(core.dialect(raws).parse(raws)))


def measured(core: Core, row: SessionRow) -> tuple[State, Trigger | None]:
    """The state with the gauge of the context that `row` stands for, and the trigger it pulls, if any.

    After an undo nothing does until the next message: what was taken back is not to come again by itself.
    """
    counter = core.counter(core.dialect(core.seen(row).raws))
    state = read_state(row.state)
    state = structs.replace(state, gauge=core.gauge(row, state, counter))
    return state, None if state.held else _crossed(core, state, counter)


def is_due(core: Core, row: SessionRow, level: Level | None) -> bool:
    """Whether the context that `row` stands for is at a level or above; without one, whether a counter has run out.

    Between the look that asked for a compaction and its turn somebody else may have compacted.
    """
    state, trigger = measured(core, row)
    if level is None:
        counters = structs.replace(_counters(core, state), next_tools=0, files_said=False)
        return bool(counters.observe(state.gauge.tool_results, len(state.gauge.files))[1])
    return trigger is not None and _threshold(core, trigger.level) >= _threshold(core, level)


def _threshold(core: Core, level: Level | None) -> float:
    return next((rule.threshold for rule in core.settings.levels if rule.level == level), 0.0)


def _crossed(core: Core, state: State, counter: MessageCounter) -> Trigger | None:
    """The trigger that the gauge pulls as it is, whatever has fired before; None below all levels."""
    budget = core.budget(counter)
    tokens = tokens_now(state.gauge, state.calibration, core.settings.overhead_tokens)
    fresh = structs.replace(_known(core, state, budget), share=0.0, fired=None, failed_at=None)
    return fresh.observe(tokens, budget.tokens, core.seconds(), state.gauge.bytes / budget.bytes)[1]


def _known(core: Core, state: State, budget: Budget) -> Watch:
    """The watch as the session remembers it."""
    limit = core.settings.model_auto_compact_token_limit
    return Watch(
        with_token_limit(core.settings.levels, limit, budget.tokens),
        core.settings.rearm_margin,
        RETRY_SECONDS,
        state.share,
        Level(state.fired) if state.fired else None,
        _failed_at(state.failed_at, core.seconds()),
    )


def _failed_at(failed_at: float | None, now: float) -> float | None:
    """A failure that lies in the future was before a clock went backwards: it has been waited for long enough."""
    return now - RETRY_SECONDS if failed_at is not None and now < failed_at else failed_at


def _counters(core: Core, state: State) -> Counters:
    return structs.replace(
        state.counters, tool_step=core.settings.suggest_tool_results, file_limit=core.settings.suggest_files
    )


def settled(core: Core, state: State, counter: MessageCounter) -> State:
    """The state after the context was changed on purpose: only growth from here on can pull a trigger."""
    budget = core.budget(counter)
    tokens = tokens_now(state.gauge, state.calibration, core.settings.overhead_tokens)
    seen = _known(core, state, budget).compacted(tokens, budget.tokens, state.gauge.bytes / budget.bytes)
    counters = _counters(core, state).compacted(state.gauge.tool_results, len(state.gauge.files))
    return structs.replace(
        state,
        share=seen.share,
        fired=seen.fired or "",
        failed_at=None,
        attempted=tokens if seen.fired else 0,
        is_waiting=False,
        counters=counters,
        plateau=state.plateau.compacted(),
    )
