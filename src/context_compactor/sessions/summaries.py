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
from context_compactor.sessions.facts import parsed_context
from context_compactor.sessions.holders import exclusive_claim
from context_compactor.sessions.state import CircuitBreaker, SessionState, read_session_state
from context_compactor.settings import Level, LevelRule, SharedBudget, Spending, SpendingCheck
from context_compactor.summarize.input import SummaryOutcome, is_model_asked
from context_compactor.summarize.merge import place_summary, summary_tokens, with_model_calls, with_room
from context_compactor.summarize.model import Control, raise_if_stopped
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


def charge_to_session(core: Core, summarizer: ModelSummarizer) -> None:
    """Have a summarizer spend from the session's budget, beside all others who have the session open."""
    summarizer.before, summarizer.spent = SharedBudget(keep=partial(_record_spending, core)), Spending()


def _record_spending(core: Core, more: Spending, check: SpendingCheck) -> None:
    with core.writing() as row:
        state = read_session_state(row.state)
        check(state.spent)
        core.save(structs.replace(state, spent=state.spent.plus(more)))


PRESUMMARY = "summary prepared in the background"
"""What events call it; older readers know it by this name."""
PAUSE_SECONDS = 300.0
_CHANGED = "what it was made from has changed"


class SessionSummarizer:
    """Summarizes for one compaction of a session. When somebody asked for it (`is_wanted`), so is the model, pause or
    not."""

    def __init__(self, core: Core, summarizer: ModelSummarizer, cancel: Event, *, is_wanted: bool) -> None:
        self._core = core
        self._summarizer = summarizer
        self._cancel = cancel
        self._is_wanted = is_wanted
        self.uses_presummary = False
        """Whether the result holds a summary that was written ahead of it."""
        self.asked: tuple[ModelCall, ...] = ()
        """The calls that this compaction has made itself."""

    def summarize(self, result: CompactionResult) -> CompactionResult:
        """The compaction with the prepared summary, with one written now, or as it was.

        Its report has the calls that were made ahead of it as well, whether they came to anything or not.
        """
        if not result.report.changed:
            return result
        made = self._with_prepared(result) or self._with_new(result)
        self.asked = made.report.model_calls
        calls = (*read_session_state(self._core.store.session(self._core.id).state).presummary_calls, *self.asked)
        return structs.replace(made, report=structs.replace(made.report, model_calls=calls))

    def _with_new(self, result: CompactionResult) -> CompactionResult:
        pause = "" if self._is_wanted else pause_reason(self._core, self._summarizer)
        if pause and is_model_asked(result.run):
            return with_model_calls(result, (), f"no model was asked: {pause}")
        fork = self._summarizer.fork(self._cancel)
        fork.ahead = read_session_state(self._core.store.session(self._core.id).state).presummary_spent
        try:
            charge_to_session(self._core, fork)
            made = fork.summarize(result)
        finally:
            self._summarizer.join(fork)
        if fork.spent.attempts:
            note_model_outcome(self._core, self._summarizer, "" if made.report.summarized_by else made.report.reason)
        return made

    def estimate(self, result: CompactionResult) -> CompactionResult:
        """The compaction as it was, with what a model would be asked; nothing is changed."""
        prepared = valid_presummary(self._core, result, self._summarizer) if result.report.changed else None
        if _with_presummary(result, prepared)[0] is not None:
            return result
        return self._summarizer.estimate(result)

    def _with_prepared(self, result: CompactionResult) -> CompactionResult | None:
        """The compaction with the prepared summary, at once; None when there is none that can be used."""
        prepared = valid_presummary(self._core, result, self._summarizer)
        if prepared is None:
            drop_presummary(self._core, _CHANGED)
            return None
        made, why = _with_presummary(result, prepared)
        self.uses_presummary = made is not None
        if made is None and not result.run.config.focus:
            drop_presummary(self._core, why)
        return made


def valid_presummary(core: Core, result: CompactionResult, summarizer: ModelSummarizer) -> PreparedSummary | None:
    """The prepared summary, when everything that it was made from is as it was."""
    known = stored_presummary(core, read_session_state(core.row().state))
    is_valid = known and known.base == source_fingerprint(
        result.run.parsed.turns, known.turns, result.run.parsed.past, summarizer.configuration
    )
    return known if is_valid else None


def stored_presummary(core: Core, state: SessionState) -> PreparedSummary | None:
    """The prepared summary, whether it is valid or not."""
    if not state.presummary:
        return None
    try:
        return msgspec.json.decode(core.store.get([state.presummary])[state.presummary], type=PreparedSummary)
    except (DamagedContent, msgspec.MsgspecError):  # it can be written again
        return None


def drop_presummary(core: Core, why: str) -> None:
    """Forget the prepared summary, if there is one, and emit why."""
    if not read_session_state(core.row().state).presummary:
        return
    core.change(lambda state: structs.replace(state, presummary=""))
    core.emit("job.dropped", what=PRESUMMARY, reason=why)


def _with_presummary(result: CompactionResult, prepared: PreparedSummary | None) -> tuple[CompactionResult | None, str]:
    """The compaction with a prepared summary, or why it cannot be used. Even an emergency has the time for it."""
    if prepared is None or not (is_model_asked(result.run) or result.run.trigger.level is Level.EMERGENCY):
        return None, "there is nothing to summarize"
    tokens = result.context.composer.turn_tokens
    folded = {turn.number: tokens[turn.number] for turn in result.folded}
    roomy = with_room(result)
    why = reason_not_to_use(prepared, folded, result.run.config.focus)
    if why or not summary_tokens(roomy):
        return None, why or "the target leaves no room for it"
    is_all = folded.keys() == set(prepared.turns)
    summary = prepared.summary if is_all else without_current_state(prepared.summary)
    if not summary:
        return None, "it no longer says where things stand"
    placed, wrong = place_summary(roomy, summary, prepared.model)
    if placed is None:
        return None, wrong
    count = f"{len(prepared.turns):,} of the {len(folded):,} folded turns"
    return with_model_calls(placed, (), f"the model was not waited for: it summarized {count} in advance"), ""


# A model that fails again and again


def pause_reason(core: Core, summarizer: ModelSummarizer) -> str:
    """Why the model is not asked now; "" when it may be."""
    breaker = read_session_state(core.row().state).summarizer_failures
    left = breaker.seconds_left(core.seconds(), PAUSE_SECONDS)
    if not left:
        return ""
    return f"the last {breaker.failures} answers of {summarizer.model.name} were of no use; asked again in {left:.0f} s"


def note_model_outcome(core: Core, summarizer: ModelSummarizer, failure: str, what: str = "") -> None:
    """Remember how asking a model has ended; the third failure in a row begins a pause, which is emitted."""
    now = core.seconds()

    def change(state: SessionState) -> SessionState:
        known = state.summarizer_failures
        after = known.failed(what or known.failed_input, now) if failure else CircuitBreaker()
        return structs.replace(state, summarizer_failures=after)

    core.change(change)
    if failure and read_session_state(core.row().state).summarizer_failures.is_open:
        core.emit("job.dropped", what="summary by a model", reason=pause_reason(core, summarizer) or failure)


# Fewer turns, or less than this share of the budget, are not worth a call.
_MIN_TURNS = 3
_BATCH_SHARE = 0.05


def presummarize(core: Core, control: Control) -> int:
    """Have the session's model summarize older turns in advance, and store that; how many turns it summarized.

    It does nothing for a session that does not compact by itself, while a compaction or another process is at it,
    during a pause after failures, and when too little is new. The context does not change.
    """
    summarizer = _usable_summarizer(core) if _is_worth_it(core) else None
    if summarizer is None or core.running.has("compaction"):
        return 0
    try:
        with exclusive_claim(core) as is_ours:
            return _presummarize(core, summarizer, control) if is_ours else 0
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
    tokens, prepared = core.tokens(state), stored_presummary(core, state)
    is_new = prepared is None or abs(tokens - prepared.tokens) >= _BATCH_SHARE * budget
    return is_new and tokens > _soft(core).target * budget


def _soft(core: Core) -> LevelRule:
    return min(core.settings.levels, key=lambda rule: rule.threshold)


def _usable_summarizer(core: Core) -> ModelSummarizer | None:
    try:
        summarizer = core.summarizer()
    except (BadSetting, MissingExtra):  # reported at the next compaction, which can do without
        return None
    return None if summarizer is None or pause_reason(core, summarizer) else summarizer


class _CompactionProbe:
    """Notes how a compaction would go, and changes nothing."""

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
    probe, context = _CompactionProbe(), core.current_context()
    counter = core.counter(core.dialect(context.raws))
    budget, tokens = core.budget(counter).tokens, core.tokens(read_session_state(core.row().state))
    soft, share = _soft(core), tokens / budget
    now = structs.replace(soft, threshold=share, target=soft.target * share / soft.threshold)
    levels = (soft if share >= soft.threshold else now,)
    ask = core.ask(level=Level.SOFT, kind="threshold")
    run_engine(core, structs.replace(ask, settings=structs.replace(ask.settings, levels=levels)), context, probe)
    if (result := probe.result) is None:
        return None
    goal = structs.replace(result.run.goal, target=int(soft.target * budget))
    return structs.replace(result, run=structs.replace(result.run, goal=goal))


class PresummaryBatch(Struct, frozen=True):
    """What is to be summarized now: turns that the next compaction folds and that are not `prepared` yet."""

    compaction: CompactionResult
    prepared: PreparedSummary | None
    asked: str

    @property
    def turns(self) -> list[Turn]:
        """The turns that are new."""
        known = self.prepared.turns if self.prepared else ()
        return [turn for turn in self.compaction.folded if turn.number not in known]

    @property
    def previous(self) -> Summary:
        """The summary of the turns before."""
        return self.prepared.summary if self.prepared else from_record(self.compaction.run.parsed.past)

    @property
    def is_batch(self) -> bool:
        """Whether it is worth a call."""
        tokens = self.compaction.context.composer.turn_tokens
        least = _BATCH_SHARE * self.compaction.run.usage.budget_tokens
        return len(self.turns) >= _MIN_TURNS and sum(tokens[turn.number] for turn in self.turns) >= least

    @property
    def name(self) -> str:
        """The same for the same input, so that one that failed is known again."""
        numbers = [turn.number for turn in self.turns]
        return source_fingerprint(
            self.turns, numbers, self.compaction.run.parsed.past, f"{self.asked}\n{self.previous.text}"
        )

    def result(self, summary: Summary, model: str, tokens: int) -> PreparedSummary:
        """What is stored from then on."""
        numbers = (*(self.prepared.turns if self.prepared else ()), *(turn.number for turn in self.turns))
        return PreparedSummary(
            base=source_fingerprint(
                self.compaction.run.parsed.turns, numbers, self.compaction.run.parsed.past, self.asked
            ),
            turns=numbers,
            summary=summary,
            model=model,
            tokens=tokens,
        )


def _presummarize(core: Core, summarizer: ModelSummarizer, control: Control) -> int:
    result = _next_soft_compaction(core)
    if result is None:
        return 0
    prepared = valid_presummary(core, result, summarizer)
    if prepared is None:
        drop_presummary(core, _CHANGED)
    span = PresummaryBatch(result, prepared, summarizer.configuration)
    if not span.is_batch or read_session_state(core.row().state).summarizer_failures.failed_input == span.name:
        return 0
    raise_if_stopped(control)
    core.emit("job.queued", what=PRESUMMARY, turns=len(span.turns))
    outcome = _ask_model(core, summarizer, span, control)
    return 0 if core.running.is_closed else _store_presummary(core, summarizer, span, outcome)


def _ask_model(core: Core, summarizer: ModelSummarizer, span: PresummaryBatch, control: Control) -> SummaryOutcome:
    """What the model writes. What that cost is stored whatever comes of it, and at the latest at the close."""
    fork = summarizer.fork(control.cancel, silent=True)
    fork.ahead = read_session_state(core.row().state).presummary_spent
    charge_to_session(core, fork)
    with core.running.or_at_close(lambda: _record_calls(core, fork, None)):
        calls: Sequence[ModelCall] | None = None
        try:
            outcome = fork.presummarize(span.compaction, span.turns, span.previous)
            calls = outcome.calls
            return outcome
        finally:
            if not core.running.is_closed:
                _record_calls(core, fork, calls)
            summarizer.join(fork)


def _record_calls(core: Core, fork: ModelSummarizer, calls: Sequence[ModelCall] | None) -> None:
    """What a call cost, for the limits and the report of the next compaction; of one that was ended only the sum."""
    taken = fork.taken
    made = [ModelCall(fork.model.name, 0, 0, taken.attempts, "stopped", taken.dollars)] if calls is None else calls
    sent = tuple(call for call in made if call.attempts)

    def change(state: SessionState) -> SessionState:
        spent = state.presummary_spent.plus(taken)
        return structs.replace(state, presummary_spent=spent, presummary_calls=(*state.presummary_calls, *sent))

    core.change(change)


def _store_presummary(core: Core, summarizer: ModelSummarizer, span: PresummaryBatch, outcome: SummaryOutcome) -> int:
    """Store a summary if what it was made from is still there; how many turns it summarizes anew."""
    from context_compactor.summarize.summarizer import objections_of

    if outcome.summary is None:
        failure = f"what {summarizer.model.name} wrote in advance was refused: {objections_of(outcome)}"
        is_answered = any(call.tokens_written for call in outcome.calls)  # a server that was away may be back
        note_model_outcome(core, summarizer, failure, span.name if is_answered else "")
        core.emit("job.dropped", what=PRESUMMARY, reason=failure)
        return 0
    note_model_outcome(core, summarizer, "")
    tokens = core.tokens(read_session_state(core.row().state))
    prepared, content = span.result(outcome.summary, summarizer.model.name, tokens), parsed_context(core)
    if source_fingerprint(content.turns, prepared.turns, content.past, summarizer.configuration) != prepared.base:
        core.emit("job.dropped", what=PRESUMMARY, reason=f"{_CHANGED} meanwhile")
        return 0
    with core.writing():
        (name,) = core.store.put([msgspec.json.encode(prepared)])
        core.change(lambda state: structs.replace(state, presummary=name))
    return len(span.turns)
