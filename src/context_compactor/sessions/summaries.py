"""A model's summaries of a session: for a compaction, or presummarized in quiet time, with what they cost and when
the model rests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from context_compactor.dialects.turns import Turn
from context_compactor.engine.report import ModelCall
from context_compactor.engine.result import CompactionResult
from context_compactor.errors import BadSetting, DamagedContent, MissingExtra, ModelStopped, StoreError
from context_compactor.sessions.compaction import run_engine
from context_compactor.sessions.core import Core
from context_compactor.sessions.facts import scene_of
from context_compactor.sessions.holders import exclusive_claim
from context_compactor.sessions.state import CircuitBreaker, SessionState, read_session_state, tokens_now
from context_compactor.settings import Level, LevelRule, SharedBudget, Spending, SpendingCheck
from context_compactor.summarize.merge import place_summary, summary_tokens, with_model_calls, with_room
from context_compactor.summarize.model import Control, raise_if_stopped
from context_compactor.summarize.subject import SummaryOutcome, is_model_asked
from context_compactor.summarize.summary import (
    PreparedSummary,
    Summary,
    from_record,
    reason_not_to_use,
    source_fingerprint,
    without_current_state,
)

if TYPE_CHECKING:
    from context_compactor.summarize.summarizer import ModelSummarizer


def charge_to_session(core: Core, teller: ModelSummarizer) -> None:
    """Have a teller spend from the session's purse, beside all others who have the session open."""
    teller.before, teller.spent = SharedBudget(keep=partial(_record_spending, core)), Spending()


def _record_spending(core: Core, more: Spending, look: SpendingCheck) -> None:
    with core.writing() as row:
        state = read_session_state(row.state)
        look(state.spent)
        core.save(structs.replace(state, spent=state.spent.plus(more)))


PRESUMMARY = "summary told ahead"
REST_SECONDS = 300.0


class SessionSummarizer:
    """One compaction of a session, told. `is_wanted` means that somebody asked: then a model is asked, rest or not."""

    def __init__(self, core: Core, teller: ModelSummarizer, cancel: Event, *, is_wanted: bool) -> None:
        self._core = core
        self._teller = teller
        self._cancel = cancel
        self._is_wanted = is_wanted
        self.is_ahead = False
        """Whether the result holds what was told ahead."""
        self.asked: tuple[ModelCall, ...] = ()
        """The calls that this compaction has made itself."""

    def summarize(self, result: CompactionResult) -> CompactionResult:
        """The compaction with what was told ahead, with a record written now, or as it was.

        Its report has the calls that were made ahead of it as well, whether they came to anything or not.
        """
        if not result.report.changed:
            return result
        made = self._swapped(result) or self._told(result)
        self.asked = made.report.model_calls
        calls = (*read_session_state(self._core.store.session(self._core.id).state).ahead_calls, *self.asked)
        return structs.replace(made, report=structs.replace(made.report, model_calls=calls))

    def _told(self, result: CompactionResult) -> CompactionResult:
        rest = "" if self._is_wanted else rest_reason(self._core, self._teller)
        if rest and is_model_asked(result.run):
            return with_model_calls(result, (), f"no model was asked: {rest}")
        return self._asked(result)

    def estimate(self, result: CompactionResult) -> CompactionResult:
        """The compaction as it was, with what a model would be asked; nothing is changed."""
        held = valid_presummary(self._core, result, self._teller)
        if result.report.changed and _with_presummary(result, held)[0] is not None:
            return result
        return self._teller.estimate(result)

    def _swapped(self, result: CompactionResult) -> CompactionResult | None:
        """The compaction with what was told ahead, at once; None when there is nothing that can be used."""
        held = valid_presummary(self._core, result, self._teller)
        if held is None:
            drop_presummary(self._core, "what it was told from has changed")
            return None
        made, why = _with_presummary(result, held)
        self.is_ahead = made is not None
        if made is None and not result.run.config.focus:
            drop_presummary(self._core, why)
        return made

    def _asked(self, result: CompactionResult) -> CompactionResult:
        fork = self._teller.fork(self._cancel)
        fork.ahead = read_session_state(self._core.store.session(self._core.id).state).ahead_spent
        try:
            charge_to_session(self._core, fork)
            made = fork.summarize(result)
        finally:
            self._teller.join(fork)
        if fork.spent.attempts:
            note_model_outcome(self._core, self._teller, "" if made.report.told_by else made.report.reason)
        return made


def valid_presummary(core: Core, result: CompactionResult, teller: ModelSummarizer) -> PreparedSummary | None:
    """What was told ahead, when everything that it was told from is as it was."""
    held = stored_presummary(core, read_session_state(core.row().state))
    if (
        held is None
        or source_fingerprint(result.run.parsed.turns, held.turns, result.run.parsed.past, teller.asked) != held.base
    ):
        return None
    return held


def stored_presummary(core: Core, state: SessionState) -> PreparedSummary | None:
    """What was told ahead, whether it stands or not."""
    try:
        return (
            msgspec.json.decode(core.store.get([state.ahead])[state.ahead], type=PreparedSummary)
            if state.ahead
            else None
        )
    except (DamagedContent, msgspec.MsgspecError):  # it can be told again
        return None


def drop_presummary(core: Core, why: str) -> None:
    """Forget what was told ahead, if there is anything, and tell why."""
    if not read_session_state(core.row().state).ahead:
        return
    core.change(lambda state: structs.replace(state, ahead=""))
    core.emit("job.dropped", what=PRESUMMARY, reason=why)


def _with_presummary(result: CompactionResult, held: PreparedSummary | None) -> tuple[CompactionResult | None, str]:
    """The compaction with a held summary, or why it cannot be used. Even an emergency has the time for it."""
    if held is None or not (is_model_asked(result.run) or result.run.trigger.level is Level.EMERGENCY):
        return None, "there is nothing to tell"
    tokens = result.context.composer.turn_tokens
    folded = {turn.number: tokens[turn.number] for turn in result.folded}
    roomy = with_room(result)
    has_room = bool(summary_tokens(roomy))
    why = reason_not_to_use(held, folded, result.run.config.focus) or (
        "" if has_room else "the target leaves no room for it"
    )
    if why:
        return None, why
    summary = held.summary if folded.keys() == set(held.turns) else without_current_state(held.summary)
    if not summary:
        return None, "it no longer tells how things stand"
    placed, wrong = place_summary(roomy, summary, held.model)
    if placed is None:
        return None, wrong
    words = f"the model was not waited for: it told {len(held.turns):,} of the {len(folded):,} folded turns ahead"
    return with_model_calls(placed, (), words), ""


# A model that fails again and again


def rest_reason(core: Core, teller: ModelSummarizer) -> str:
    """Why the model is not asked now; "" when it may be."""
    breaker = read_session_state(core.row().state).teller
    left = breaker.rest(core.seconds(), REST_SECONDS)
    words = f"the last {breaker.failures} answers of {teller.model.name} were of no use; it rests for {left:.0f} s"
    return words if left else ""


def note_model_outcome(core: Core, teller: ModelSummarizer, failure: str, what: str = "") -> None:
    """Remember how asking a model has ended; the third failure in a row begins a rest, which is told."""
    now = core.seconds()
    if not failure:
        core.change(lambda state: structs.replace(state, teller=CircuitBreaker()))
        return

    def failed(state: SessionState) -> SessionState:
        return structs.replace(state, teller=state.teller.failed(what or state.teller.failed_input, now))

    core.change(failed)
    if read_session_state(core.row().state).teller.is_open:
        core.emit("job.dropped", what="summary by a model", reason=rest_reason(core, teller) or failure)


# Fewer turns, or less than this share of the budget, are not worth a call.
_FEWEST_TURNS = 3
_BATCH_SHARE = 0.05


def presummarize(core: Core, control: Control) -> int:
    """Have older turns told by the session's model and hold what it wrote; how many turns it told.

    It does nothing for a session that does not compact by itself, while a compaction or another process is at it, while
    the model rests, and when too little is new. What the model sees does not change.
    """
    teller = _teller(core) if _is_worth_it(core) else None
    if teller is None or core.running.has("compaction"):
        return 0
    try:
        with exclusive_claim(core) as is_ours:
            return _presummarize(core, teller, control) if is_ours else 0
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
    state = read_session_state(core.row().state)
    budget = core.budget(core.counter(core.dialect())).tokens
    tokens, held = _tokens(core, state), stored_presummary(core, state)
    is_new = held is None or abs(tokens - held.tokens) >= _BATCH_SHARE * budget
    return is_new and tokens > _soft(core).target * budget


def _soft(core: Core) -> LevelRule:
    return min(core.settings.levels, key=lambda rule: rule.threshold)


def _tokens(core: Core, state: SessionState) -> int:
    return tokens_now(state.gauge, state.calibration, core.settings.overhead_tokens)


def _teller(core: Core) -> ModelSummarizer | None:
    try:
        teller = core.teller()
    except (BadSetting, MissingExtra):  # told at the next compaction, which can do without
        return None
    return None if teller is None or rest_reason(core, teller) else teller


class _CompactionProbe:
    """Hears how a compaction would go and says nothing."""

    result: CompactionResult | None = None

    def summarize(self, result: CompactionResult) -> CompactionResult:
        """Take note of it."""
        self.result = result if result.report.status == "success" else None
        return result

    estimate = summarize


def _next_soft_compaction(core: Core) -> CompactionResult | None:
    """The next soft compaction, as if the context had reached its threshold now; None when it would not be one.

    The target is as much smaller as the context still is, so that the same turns are folded as then.
    """
    listener, seen = _CompactionProbe(), core.seen()
    counter = core.counter(core.dialect(seen.raws))
    budget, tokens = core.budget(counter).tokens, _tokens(core, read_session_state(core.row().state))
    soft, share = _soft(core), tokens / budget
    now = structs.replace(soft, threshold=share, target=soft.target * share / soft.threshold)
    levels = (soft if share >= soft.threshold else now,)
    ask = core.ask(level=Level.SOFT, kind="threshold")
    run_engine(core, structs.replace(ask, settings=structs.replace(ask.settings, levels=levels)), seen, listener)
    result = listener.result
    if result is None:
        return None
    goal = structs.replace(result.run.goal, target=int(soft.target * budget))
    return structs.replace(result, run=structs.replace(result.run, goal=goal))


class PresummaryBatch(Struct, frozen=True):
    """What is to be told now: turns that the next compaction folds and that `held` does not tell yet."""

    result: CompactionResult
    held: PreparedSummary | None
    asked: str

    @property
    def turns(self) -> list[Turn]:
        """The turns that are new."""
        return [turn for turn in self.result.folded if self.held is None or turn.number not in self.held.turns]

    @property
    def previous(self) -> Summary:
        """What is told of the turns before."""
        return self.held.summary if self.held else from_record(self.result.run.parsed.past)

    @property
    def is_batch(self) -> bool:
        """Whether it is worth a call."""
        tokens, least = (
            self.result.context.composer.turn_tokens,
            _BATCH_SHARE * self.result.run.usage.budget_tokens,
        )
        return len(self.turns) >= _FEWEST_TURNS and sum(tokens[turn.number] for turn in self.turns) >= least

    @property
    def name(self) -> str:
        """The same for the same input, so that one that failed is known again."""
        numbers = [turn.number for turn in self.turns]
        return source_fingerprint(
            self.turns, numbers, self.result.run.parsed.past, f"{self.asked}\n{self.previous.text}"
        )

    def told(self, summary: Summary, model: str, tokens: int) -> PreparedSummary:
        """What is held from then on."""
        numbers = (*(self.held.turns if self.held else ()), *(turn.number for turn in self.turns))
        return PreparedSummary(
            base=source_fingerprint(self.result.run.parsed.turns, numbers, self.result.run.parsed.past, self.asked),
            turns=numbers,
            summary=summary,
            model=model,
            tokens=tokens,
        )


def _presummarize(core: Core, teller: ModelSummarizer, control: Control) -> int:
    result = _next_soft_compaction(core)
    if result is None:
        return 0
    held = valid_presummary(core, result, teller)
    if held is None:
        drop_presummary(core, "what it was told from has changed")
    span = PresummaryBatch(result, held, teller.asked)
    if not span.is_batch or read_session_state(core.row().state).teller.failed_input == span.name:
        return 0
    raise_if_stopped(control)
    core.emit("job.queued", what=PRESUMMARY, turns=len(span.turns))
    outcome = _ask_model(core, teller, span, control)
    return 0 if core.running.is_closed else _store_presummary(core, teller, span, outcome)


def _ask_model(core: Core, teller: ModelSummarizer, span: PresummaryBatch, control: Control) -> SummaryOutcome:
    """What the model tells. What that took is written down whatever comes of it, and at the latest at the close."""
    fork = teller.fork(control.cancel, silent=True)
    fork.ahead = read_session_state(core.row().state).ahead_spent
    charge_to_session(core, fork)
    with core.running.or_at_close(lambda: _record_calls(core, fork, None)):
        calls: Sequence[ModelCall] | None = None
        try:
            outcome = fork.presummarize(span.result, span.turns, span.previous)
            calls = outcome.calls
            return outcome
        finally:
            if not core.running.is_closed:
                _record_calls(core, fork, calls)
            teller.join(fork)


def _record_calls(core: Core, fork: ModelSummarizer, calls: Sequence[ModelCall] | None) -> None:
    """What a call took, for the limits and the report of the next compaction; of one that was ended only the sum."""
    taken = fork.taken
    made = [ModelCall(fork.model.name, 0, 0, taken.attempts, "stopped", taken.dollars)] if calls is None else calls
    sent = tuple(call for call in made if call.attempts)

    def change(state: SessionState) -> SessionState:
        ahead = state.ahead_spent.plus(taken)
        return structs.replace(state, ahead_spent=ahead, ahead_calls=(*state.ahead_calls, *sent))

    core.change(change)


def _store_presummary(core: Core, teller: ModelSummarizer, span: PresummaryBatch, outcome: SummaryOutcome) -> int:
    """Hold what was told if its base is still there; how many turns it tells anew."""
    from context_compactor.summarize.summarizer import objections_of

    if outcome.summary is None:
        failure = f"what {teller.model.name} told ahead was refused: {objections_of(outcome)}"
        is_answered = any(call.tokens_written for call in outcome.calls)  # a server that was away may be back
        note_model_outcome(core, teller, failure, span.name if is_answered else "")
        core.emit("job.dropped", what=PRESUMMARY, reason=failure)
        return 0
    note_model_outcome(core, teller, "")
    tokens = _tokens(core, read_session_state(core.row().state))
    held, scene = span.told(outcome.summary, teller.model.name, tokens), scene_of(core)
    if source_fingerprint(scene.turns, held.turns, scene.past, teller.asked) != held.base:
        core.emit("job.dropped", what=PRESUMMARY, reason="what it was told from has changed meanwhile")
        return 0
    with core.writing():
        (name,) = core.store.put([msgspec.json.encode(held)])
        core.change(lambda state: structs.replace(state, ahead=name))
    return len(span.turns)
