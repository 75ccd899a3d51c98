"""One compaction of a session: run the engine, archive, commit, emit events; whatever fails leaves the old context."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from context_compactor.dialects.dialect import Dialect
from context_compactor.engine.compact import run_request
from context_compactor.engine.report import ModelCall, Report
from context_compactor.engine.request import ArchiveScope, CompactionRequest
from context_compactor.engine.result import Compaction, Summarizer, named_references, span_attributes
from context_compactor.engine.tiers import Tier, override_refusal
from context_compactor.errors import BadSetting, CompactorError, MissingExtra, StaleBase
from context_compactor.json_values import read_json
from context_compactor.sessions import checkpoints
from context_compactor.sessions.append import after_context_change
from context_compactor.sessions.archive import export_new
from context_compactor.sessions.commit import archive, as_logged, commit, new_context, with_added_words
from context_compactor.sessions.core import Core, ParsedSession, conversation_raws
from context_compactor.sessions.events import notify
from context_compactor.sessions.facts import promote, save_facts, with_times
from context_compactor.sessions.log import SessionContext, logged_bodies
from context_compactor.sessions.state import SessionState, read_session_state
from context_compactor.settings import Spending
from context_compactor.store.events import Event, EventType, make_event
from context_compactor.summarize.model import Control, raise_if_stopped
from context_compactor.tokens.counting import MessageCounter
from context_compactor.tracing import traced

if TYPE_CHECKING:
    from context_compactor.sessions.summaries import SessionSummarizer


def effective_tiers(core: Core, context: SessionContext, state: SessionState) -> dict[int, Tier]:
    """The tiers set by the user that a compaction of this context follows."""
    if not state.tiers:
        return {}
    parsed = core.parse_context(context)
    starts = turn_starts(parsed)
    return {
        number: choice.tier
        for number, choice in sorted(state.tiers.items())
        if not override_refusal(parsed.content.turns, number, choice.tier)
        and (not choice.position or starts.get(number, 0) in (0, choice.position))
    }


def turn_starts(parsed: ParsedSession) -> dict[int, int]:
    """For each turn the position in the log of its first message; 0 when a compaction has written that."""
    own = [item.position for item, _ in parsed.context.own()]
    return {number: own[first] for number, (first, _) in parsed.spans().items()}


class PendingCompaction(Struct, frozen=True):
    """A compaction before it is committed: what came out, what it was made from, and what ends it."""

    result: Compaction
    context: SessionContext
    dialect: Dialect
    counter: MessageCounter
    control: Control
    uses_presummary: bool
    """Whether it holds a summary that a model wrote ahead of it."""
    asked: tuple[ModelCall, ...] = ()
    """The calls that it has made itself."""
    within: Callable[[SessionState], SessionState] = lambda state: state
    """What else goes into its transaction, and the state from then on."""

    @property
    def report(self) -> Report:
        """What it did."""
        return self.result.report


@traced("compact", span_attributes)
def compact(
    core: Core,
    ask: CompactionRequest,
    *,
    dry_run: bool = False,
    with_model: bool = True,
    why: str = "",
    context: SessionContext | None = None,
) -> Report:
    """Compact as asked. The report says what happened, and `why` now; when nothing did, the context is as it was.

    `context` is the context that the caller has measured, else it is the one of now: when it has been replaced by the
    time of the commit, what was made of it is dropped.
    A dry run asks no model: its report says what would be asked. When nobody asked for the compaction, or a server did
    so for somebody who cannot put it right, a model that cannot be opened is done without. One that is cancelled raises
    `ModelStopped` and leaves everything as it was.
    """
    with core.running.begin("compaction") as control:
        if not dry_run:
            core.running.cancel("preparation")  # what a model writes now would come too late
        summarizer, missing = _summarizer(core, ask, control, dry_run) if with_model else (None, "")
        context = context or core.current_context()
        dialect = core.dialect(context.raws)
        result = run_engine(core, ask, context, summarizer, dry_run=dry_run)
        result = structs.replace(result, report=_with_reason(result.report, why, missing))
        if dry_run:
            return result.report
        raise_if_stopped(control)
        if not result.report.changed:
            _note_no_gain(core, result.report)
            return result.report
        by_model = (summarizer.uses_presummary, summarizer.asked) if summarizer else (False, ())
        made = PendingCompaction(result, context, dialect, core.counter(dialect), control, *by_model)
        report = commit_compaction(core, ask, made)
    if core.settings.notify_on_compact and core.schedule is None:  # a core that queues jobs is a server's
        notify(report)
    return report


def run_engine(
    core: Core, ask: CompactionRequest, context: SessionContext, summarizer: Summarizer | None, *, dry_run: bool = False
) -> Compaction:
    """What a compaction of a context would be. Nothing is written."""
    dialect = core.dialect(context.raws)

    @cache  # a model's summary is checked against the same archive several times
    def archived() -> frozenset[str]:
        return frozenset(each.ref for each in core.store.originals(core.id) if each.content)

    @cache
    def foreign() -> frozenset[str]:
        """Read only when a reference has no original: quoted ids, and those of a record that was appended."""
        bodies = logged_bodies(core.store, core.id, context.log_state).values()
        said = named_references(dialect.parse([read_json(body) for body in bodies]))
        return frozenset(said.difference(each.ref for each in core.store.originals(core.id)))

    return run_request(
        conversation_raws(context),
        _with_context(core, ask, context, core.counter(dialect)),
        dialect=dialect.name,
        count_tokens=core.count_tokens,
        strategies=core.strategies,
        layouts=core.layouts,
        archive=ArchiveScope(core.id, f"archive of {core.store.path}", archived, foreign),
        summarizer=summarizer,
        dry_run=dry_run,
    )


def _summarizer(
    core: Core, ask: CompactionRequest, control: Control, dry_run: bool
) -> tuple[SessionSummarizer | None, str]:
    """Who summarizes, or why nobody can."""
    try:
        summarizer = core.estimating_summarizer() if dry_run else core.summarizer()
    except (BadSetting, MissingExtra) as error:
        if ask.is_wanted and core.schedule is None:
            raise
        core.emit("job.dropped", what="summary by a model", reason=str(error))
        return None, f"no model was asked: {error}"
    if summarizer is None:
        return None, ""
    # What checks a model's words is loaded where there is a model.
    from context_compactor.sessions.summaries import SessionSummarizer

    return SessionSummarizer(core, summarizer, control.cancel, is_wanted=ask.is_wanted), ""


def _with_reason(report: Report, why: str, more: str) -> Report:
    reason = "; ".join(text for text in (why, report.reason, more) if text)
    return structs.replace(report, reason=reason) if report.changed else report


def _with_context(
    core: Core, ask: CompactionRequest, context: SessionContext, counter: MessageCounter
) -> CompactionRequest:
    """The request with what is known of its context: what is sent beside it, the user's tiers, the provider's cache.

    Remembered things are sent beside it, and what only the provider counts.
    """
    memory = [raw for item, raw in zip(context.items, context.raws, strict=True) if item.added == "memory"]
    beside = sum(counter.count_many(core.dialect(context.raws).parse(memory)))
    state = read_session_state(core.row().state)
    tiers = effective_tiers(core, context, state) if ask.tier_overrides is None else ask.tier_overrides
    hidden = max(0, round(state.calibration.offset)) if state.calibration.replies else 0
    overhead = beside + max(ask.settings.overhead_tokens, hidden)
    settings = structs.replace(ask.settings, overhead_tokens=overhead)
    sent, prompt_cache = tuple(context.raws), core.prompt_cache(state)
    return structs.replace(ask, settings=settings, sent=sent, tier_overrides=tiers, cache=prompt_cache)


def _note_no_gain(core: Core, report: Report) -> None:
    if report.status == "failed":
        raise CompactorError(report.reason)
    if report.status == "partial":
        core.change(lambda state: structs.replace(state, guard=state.guard.gained_nothing(report.tokens_before)))


def commit_compaction(core: Core, ask: CompactionRequest, made: PendingCompaction) -> Report:
    """Archive, commit and emit a compaction that was made; when somebody else was first, a report that says so.

    The checkpoint is written in between: it names ids of the archive, so these are there first.
    """
    originals = as_logged(made.result.archive, made.result.spans, made.context, core.store, core.id)
    archive(core, list(with_added_words(core, originals, made.dialect, made.counter)), emit_retries=True)
    made = made if made.report.checkpoint else _with_checkpoint(core, made)
    report, new = made.report, new_context(made.result, made.context, made.dialect)
    events: list[Event] = []
    try:
        commit(core, new, made.dialect, made.counter, _remember(core, made, events))
    except StaleBase as error:
        core.emit("compaction.refused", reason=str(error), level=report.level)
        row = core.row()
        tokens = read_session_state(row.state).gauge.tokens  # of the context that is there now
        left = refused_report(core, ask, str(error), tokens, len(core.current_context(row).items))
        return structs.replace(left, model_calls=made.asked)
    if read_session_state(core.row().state).presummary:
        from context_compactor.sessions.summaries import drop_presummary

        drop_presummary(core, "a compaction came that did not use it")
    if made.asked and not report.summarized_by:
        core.emit("job.dropped", what="summary by a model", reason=report.reason)
    for event in events:
        core.bus.emit(event, is_stored=True)
    core.index()
    _attempt(core, "readable archive", lambda: export_new(core))
    _attempt(core, "promotion to memory", lambda: promote(core))
    return report


def _with_checkpoint(core: Core, made: PendingCompaction) -> PendingCompaction:
    checkpoint = checkpoints.write_if_possible(core, checkpoints.current_checkpoint(core, live=made.result.facts))
    report = structs.replace(made.report, checkpoint=checkpoint)
    return structs.replace(made, result=structs.replace(made.result, report=report))


def _remember(core: Core, made: PendingCompaction, events: list[Event]) -> Callable[[SessionState], SessionState]:
    """What goes with a compaction into its transaction; `events` are those to be emitted behind it."""

    def remember(state: SessionState) -> SessionState:
        if core.settings.extract_facts:
            state = save_facts(
                core, state, with_times(made.result.facts, made.context, made.result.spans), made.context
            )
        state = structs.replace(
            state,
            guard=state.guard.succeeded(core.row().messages),
            held=False,
            presummary="" if made.uses_presummary else state.presummary,
            presummary_spent=Spending(),
            presummary_calls=(),
        )
        events[:] = _events(core, made.report, state)
        for event in events:
            core.bus.write_within(event)
        raise_if_stopped(made.control)  # the last moment: what is written in this transaction is parsed back
        return made.within(after_context_change(core, state, made.counter))

    return remember


_IN_EVENTS = (
    "compaction_id trigger level status reason tokens_before tokens_after tokens_saved messages_removed duration_ms "
    "metrics model_calls"
).split()


def _events(core: Core, report: Report, state: SessionState) -> list[Event]:
    payload = {name: getattr(report, name) for name in _IN_EVENTS} | {"tool_calls": state.tool_calls}
    kinds: tuple[EventType, ...] = ("summary.applied", "session.compacted")
    return [make_event(kind, core.id, payload, core.clock()) for kind in kinds]


def finish_export(core: Core) -> None:
    """Before a session is closed: what the readable archive still lacks."""
    _attempt(core, "readable archive", lambda: export_new(core, all_of_it=True))


def _attempt(core: Core, what: str, work: Callable[[], object]) -> None:
    try:
        work()
    except CompactorError as error:  # the compaction stands, and the next one tries this again
        core.emit("job.dropped", what=what, reason=str(error))


def refused_report(core: Core, ask: CompactionRequest, reason: str, tokens: int, messages: int) -> Report:
    """The report of a compaction that was not made."""
    return Report.unchanged(
        reason,
        tokens=tokens,
        messages=messages,
        trigger=ask.kind or "threshold",
        level=ask.level,
        session_id=core.id,
        created_at=core.now(),
    )
