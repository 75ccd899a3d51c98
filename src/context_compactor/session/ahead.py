"""Summaries in the background: while nothing else is to be done, older turns are told by the model and held.

No lock is held while the model thinks: messages are appended, compacted and undone as if nobody was there. The log is
only ever added to, so a base is there or it is not; a hash of it tells which. What no longer stands is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from context_compactor.errors import BadSetting, MissingExtra, ModelStopped, StoreError
from context_compactor.flow import Kit, Scene
from context_compactor.levels import Level, LevelRule
from context_compactor.llm.model import Control
from context_compactor.llm.retry import check
from context_compactor.messages.turn import Turn
from context_compactor.placing import Job
from context_compactor.plan.goal import Goal
from context_compactor.report import ModelCall
from context_compactor.session.claiming import claimed
from context_compactor.session.compacting import run_engine
from context_compactor.session.core import Core
from context_compactor.session.gauge import tokens_now
from context_compactor.session.memory import scene_of
from context_compactor.session.metering import meter
from context_compactor.session.telling import AHEAD, drop, held_of, learn, resting, standing
from context_compactor.session.values import State, read_state
from context_compactor.settle import Request, Settled
from context_compactor.summarize.held import Held, base_of
from context_compactor.summarize.subject import SummaryOutcome
from context_compactor.summarize.summary import Summary, from_record

if TYPE_CHECKING:
    from context_compactor.story import Teller

# Fewer turns, or less than this share of the budget, are not worth a call.
_FEWEST_TURNS = 3
_BATCH_SHARE = 0.05


def tell_ahead(core: Core, control: Control) -> int:
    """Have older turns told by the session's model and hold what it wrote; how many turns it told.

    It does nothing for a session that does not compact by itself, while a compaction or another process is at it, while
    the model rests, and when too little is new. What the model sees does not change.
    """
    teller = _teller(core) if _is_worth_it(core) else None
    if teller is None or core.running.has("compaction"):
        return 0
    try:
        with claimed(core) as is_ours:
            return _tell(core, teller, control) if is_ours else 0
    except ModelStopped:  # closed, cancelled, or a compaction has come: nothing is kept, and nothing is wrong
        return 0
    except StoreError:
        if core.running.is_closed:  # it was left behind, and what it took was written down then
            return 0
        raise


def _is_worth_it(core: Core) -> bool:
    """Whether enough is new, by the gauge alone."""
    settings = core.settings
    if not (settings.enabled and settings.automatic and settings.summarize_ahead):
        return False
    state = read_state(core.row().state)
    budget = core.budget(core.counter(core.dialect())).tokens
    tokens, held = _tokens(core, state), held_of(core, state)
    is_new = held is None or abs(tokens - held.tokens) >= _BATCH_SHARE * budget
    return is_new and tokens > _soft(core).target * budget


def _soft(core: Core) -> LevelRule:
    return min(core.settings.levels, key=lambda rule: rule.threshold)


def _tokens(core: Core, state: State) -> int:
    return tokens_now(state.gauge, state.calibration, core.settings.overhead_tokens)


def _teller(core: Core) -> Teller | None:
    try:
        teller = core.teller()
    except (BadSetting, MissingExtra):  # told at the next compaction, which can do without
        return None
    return None if teller is None or resting(core, teller) else teller


class _Listener:
    """Hears how a compaction would go and says nothing."""

    job: Job | None = None

    def tell(self, request: Request, goal: Goal, scene: Scene, kit: Kit, digest: Settled) -> Settled:
        """Take note of it."""
        self.job = Job(request, goal, scene, kit, digest) if digest.report.status == "success" else None
        return digest

    expect = tell


def _when_full(core: Core) -> Job | None:
    """The next soft compaction, as if the context had reached its threshold now; None when it would not be one.

    The target is as much smaller as the context still is, so that the same turns are folded as then.
    """
    listener, seen = _Listener(), core.seen()
    counter = core.counter(core.dialect(seen.raws))
    budget, tokens = core.budget(counter).tokens, _tokens(core, read_state(core.row().state))
    soft, share = _soft(core), tokens / budget
    now = structs.replace(soft, threshold=share, target=soft.target * share / soft.threshold)
    levels = (soft if share >= soft.threshold else now,)
    ask = core.ask(level=Level.SOFT, kind="threshold")
    run_engine(core, structs.replace(ask, settings=structs.replace(ask.settings, levels=levels)), seen, listener)
    job = listener.job
    return job and structs.replace(job, goal=structs.replace(job.goal, target=int(soft.target * budget)))


class Span(Struct, frozen=True):
    """What is to be told now: turns that the next compaction folds and that `held` does not tell yet."""

    job: Job
    held: Held | None
    asked: str

    @property
    def turns(self) -> list[Turn]:
        """The turns that are new."""
        return [turn for turn in self.job.folded if self.held is None or turn.number not in self.held.turns]

    @property
    def previous(self) -> Summary:
        """What is told of the turns before."""
        return self.held.summary if self.held else from_record(self.job.scene.past)

    @property
    def is_batch(self) -> bool:
        """Whether it is worth a call."""
        tokens, least = (
            self.job.digest.outcome.composer.turn_tokens,
            _BATCH_SHARE * self.job.request.usage.budget_tokens,
        )
        return len(self.turns) >= _FEWEST_TURNS and sum(tokens[turn.number] for turn in self.turns) >= least

    @property
    def name(self) -> str:
        """The same for the same input, so that one that failed is known again."""
        numbers = [turn.number for turn in self.turns]
        return base_of(self.turns, numbers, self.job.scene.past, f"{self.asked}\n{self.previous.text}")

    def told(self, summary: Summary, model: str, tokens: int) -> Held:
        """What is held from then on."""
        numbers = (*(self.held.turns if self.held else ()), *(turn.number for turn in self.turns))
        return Held(
            base=base_of(self.job.scene.turns, numbers, self.job.scene.past, self.asked),
            turns=numbers,
            summary=summary,
            model=model,
            tokens=tokens,
        )


def _tell(core: Core, teller: Teller, control: Control) -> int:
    job = _when_full(core)
    if job is None:
        return 0
    held = standing(core, job, teller)
    if held is None:
        drop(core, "what it was told from has changed")
    span = Span(job, held, teller.asked)
    if not span.is_batch or read_state(core.row().state).teller.failed_input == span.name:
        return 0
    check(control)
    core.emit("job.queued", what=AHEAD, turns=len(span.turns))
    outcome = _ask(core, teller, span, control)
    return 0 if core.running.is_closed else _keep(core, teller, span, outcome)


def _ask(core: Core, teller: Teller, span: Span, control: Control) -> SummaryOutcome:
    """What the model tells. What that took is written down whatever comes of it, and at the latest at the close."""
    fork = teller.fork(control.cancel, silent=True)
    fork.ahead = read_state(core.row().state).ahead_spent
    meter(core, fork)
    with core.running.or_at_close(lambda: _write_down(core, fork, None)):
        calls: Sequence[ModelCall] | None = None
        try:
            outcome = fork.tell_ahead(span.job, span.turns, span.previous)
            calls = outcome.calls
            return outcome
        finally:
            if not core.running.is_closed:
                _write_down(core, fork, calls)
            teller.join(fork)


def _write_down(core: Core, fork: Teller, calls: Sequence[ModelCall] | None) -> None:
    """What a call took, for the limits and the report of the next compaction; of one that was ended only the sum."""
    taken = fork.taken
    made = [ModelCall(fork.model.name, 0, 0, taken.attempts, "stopped", taken.dollars)] if calls is None else calls
    sent = tuple(call for call in made if call.attempts)

    def change(state: State) -> State:
        ahead = state.ahead_spent.plus(taken)
        return structs.replace(state, ahead_spent=ahead, ahead_calls=(*state.ahead_calls, *sent))

    core.change(change)


def _keep(core: Core, teller: Teller, span: Span, outcome: SummaryOutcome) -> int:
    """Hold what was told if its base is still there; how many turns it tells anew."""
    from context_compactor.story import objections_of

    if outcome.summary is None:
        failure = f"what {teller.model.name} told ahead was refused: {objections_of(outcome)}"
        is_answered = any(call.tokens_written for call in outcome.calls)  # a server that was away may be back
        learn(core, teller, failure, span.name if is_answered else "")
        core.emit("job.dropped", what=AHEAD, reason=failure)
        return 0
    learn(core, teller, "")
    tokens = _tokens(core, read_state(core.row().state))
    held, scene = span.told(outcome.summary, teller.model.name, tokens), scene_of(core)
    if base_of(scene.turns, held.turns, scene.past, teller.asked) != held.base:
        core.emit("job.dropped", what=AHEAD, reason="what it was told from has changed meanwhile")
        return 0
    with core.writing():
        (name,) = core.store.put([msgspec.json.encode(held)])
        core.change(lambda state: structs.replace(state, ahead=name))
    return len(span.turns)
