"""After every change: is a level reached, should a compaction be suggested, does usage stay near the limit?"""

from __future__ import annotations

from msgspec import Struct, structs

from context_compactor.levels import Level
from context_compactor.measure.budget import Budget
from context_compactor.measure.count import MessageCounter
from context_compactor.measure.triggers import Counters, Suggestion, Trigger, Watch, with_token_limit
from context_compactor.measure.usage import level_at
from context_compactor.session.core import Core
from context_compactor.session.gauge import tokens_now
from context_compactor.session.values import State
from context_compactor.store.desk_rows import Job

RETRY_SECONDS = 60.0
# A level that could not be left fires again when the context has grown by so much.
_GROWN = 1.05


class Watched(Struct, frozen=True):
    """What a look at the gauge has shown, and the jobs that were queued for it.

    After an append `messages` is how many there are in all, `tokens` and `share` how full the context is, and `fired`
    the level that was reached last and not left since.
    """

    trigger: Trigger | None = None
    is_crossing: bool = False
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


def watch(core: Core, state: State, counter: MessageCounter) -> tuple[State, Watched]:
    """The state after a look at its gauge, and what is to be done. While calls wait for results nothing is."""
    if state.gauge.open_calls:
        return state, Watched()
    budget = core.budget(counter)
    tokens = tokens_now(state.gauge, state.calibration, core.settings.overhead_tokens)
    size_share = state.gauge.bytes / budget.bytes
    seen, trigger = _known(core, state, budget).observe(tokens, budget.tokens, core.seconds(), size_share)
    level, is_crossing = level_at(seen.share, seen.levels), trigger is not None
    if trigger is None and level is not None and 0 < state.attempted * _GROWN <= tokens:
        trigger = Trigger("threshold", tokens, budget.tokens, level, size_share=size_share)
    counters, suggestions = _counters(core, state).observe(state.gauge.tool_results, len(state.gauge.files))
    plateau, is_plateau = state.plateau.observe(seen.share)
    state = structs.replace(
        state,
        share=seen.share,
        fired=seen.fired or "",
        failed_at=seen.failed_at,
        attempted=tokens if trigger else state.attempted,
        counters=counters,
        plateau=plateau,
    )
    return state, Watched(trigger, is_crossing, suggestions, is_plateau)


def crossed(core: Core, state: State, counter: MessageCounter) -> Trigger | None:
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
        counters=counters,
        plateau=state.plateau.compacted(),
    )
