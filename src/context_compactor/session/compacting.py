"""One compaction of a session: run the engine, archive, commit, tell. Whatever fails leaves the old context."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import structs

from context_compactor import app
from context_compactor.ask import Ask
from context_compactor.errors import BadSetting, CompactorError, MissingExtra, StaleBase
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.dialect import Dialect
from context_compactor.report import Report
from context_compactor.session import checkpoints, keep
from context_compactor.session.after import export_new
from context_compactor.session.core import Core, raws_of
from context_compactor.session.lens import Seen
from context_compactor.session.memory import keep_facts, promote
from context_compactor.session.values import State, read_state
from context_compactor.session.watch import settled
from context_compactor.tracing import traced

if TYPE_CHECKING:
    from context_compactor.story import Teller


@traced("compact", app.told_of)
def compact(core: Core, ask: Ask, *, dry_run: bool = False, with_model: bool = True) -> Report:
    """Compact as asked. The report says what happened; when nothing did, the context is as it was.

    A dry run asks no model. When nobody asked for the compaction, a model that cannot be opened is done without.
    """
    teller, missing = _teller(core, ask) if with_model and not dry_run else (None, "")
    seen = core.seen()
    dialect = core.dialect(seen.raws)
    counter = core.counter(dialect)
    given = raws_of(seen)
    result = app.run(
        given,
        _beside(core, ask, seen, counter),
        dialect=dialect.name,
        count_tokens=core.count_tokens,
        session_id=core.id,
        location=f"archive of {core.store.path}",
        teller=teller,
    )
    result = structs.replace(result, report=_with_reason(result.report, missing))
    if dry_run:
        return result.report
    if not result.report.changed:
        _note_no_gain(core, result.report)
        return result.report
    checkpoint = checkpoints.write_if_possible(core, checkpoints.make(core, live=result.facts))
    result = structs.replace(result, report=structs.replace(result.report, checkpoint=checkpoint))
    return _commit(core, ask, result, seen, dialect, counter)


def _teller(core: Core, ask: Ask) -> tuple[Teller | None, str]:
    """Who tells the story, or why nobody can."""
    try:
        return core.teller(), ""
    except (BadSetting, MissingExtra) as error:
        if ask.kind == "manual":
            raise
        core.emit("job.dropped", what="summary by a model", reason=str(error))
        return None, f"no model was asked: {error}"


def _with_reason(report: Report, more: str) -> Report:
    reason = "; ".join(text for text in (report.reason, more) if text)
    return structs.replace(report, reason=reason) if report.changed else report


def _beside(core: Core, ask: Ask, seen: Seen, counter: MessageCounter) -> Ask:
    """The request with what is sent beside the conversation: remembered things, and what only the provider counts."""
    kept = [raw for shown, raw in zip(seen.shown, seen.raws, strict=True) if shown.added == "memory"]
    beside = sum(counter.count_many(core.dialect(seen.raws).parse(kept)))
    state = read_state(core.store.session(core.id).state)
    hidden = max(0, round(state.calibration.offset)) if state.calibration.replies else 0
    overhead = beside + max(ask.settings.overhead_tokens, hidden)
    return structs.replace(ask, settings=structs.replace(ask.settings, overhead_tokens=overhead))


def _note_no_gain(core: Core, report: Report) -> None:
    if report.status == "failed":
        raise CompactorError(report.reason)
    if report.status == "partial":
        core.change(lambda state: structs.replace(state, guard=state.guard.gained_nothing(report.tokens_before)))


def _commit(
    core: Core, ask: Ask, result: app.Compaction, seen: Seen, dialect: Dialect, counter: MessageCounter
) -> Report:
    originals = keep.as_logged(result.archive, result.spans, seen, core.store, core.id)
    attempts = keep.Attempts(core.settings.retry_attempts, core.settings.retry_delay_seconds, _retried(core))
    keep.archive(core.store, core.id, originals, core.now(), attempts)
    report = result.report

    def remember(state: State) -> State:
        if core.settings.extract_facts:
            state = keep_facts(core, state, result.facts)
        messages = core.store.session(core.id).messages
        state = structs.replace(state, guard=state.guard.succeeded(messages), held=False)
        return settled(core, state, counter)

    try:
        keep.commit(core.store, core.id, keep.draft(result, seen, dialect), dialect, counter, core.now(), remember)
    except StaleBase as error:
        core.emit("compaction.refused", reason=str(error), level=report.level)
        return refused(core, ask, str(error), report.tokens_before, report.messages_before)
    if report.model_calls and not report.told_by:
        core.emit("job.dropped", what="summary by a model", reason=report.reason)
    _afterwards(core, report)
    return report


def _retried(core: Core) -> Callable[[int, str], None]:
    def tell(attempt: int, reason: str) -> None:
        core.emit("job.retried", what="archive", attempt=attempt, reason=reason)

    return tell


def _afterwards(core: Core, report: Report) -> None:
    """What follows a compaction and can be made again from the store: events, the readable archive, memory."""
    for kind in ("summary.applied", "session.compacted"):
        core.emit(
            kind,
            compaction_id=report.compaction_id,
            trigger=report.trigger,
            level=report.level,
            status=report.status,
            reason=report.reason,
            tokens_before=report.tokens_before,
            tokens_after=report.tokens_after,
            tokens_saved=report.tokens_saved,
            messages_removed=report.messages_removed,
            duration_ms=report.duration_ms,
            metrics=report.metrics,
            model_calls=report.model_calls,
            tool_calls=read_state(core.store.session(core.id).state).tool_calls,
        )
    _attempt(core, "readable archive", lambda: export_new(core))
    _attempt(core, "promotion to memory", lambda: promote(core))


def finish(core: Core) -> None:
    """Before a session is closed: what the readable archive still lacks."""
    _attempt(core, "readable archive", lambda: export_new(core, all_of_it=True))


def _attempt(core: Core, what: str, work: Callable[[], object]) -> None:
    try:
        work()
    except CompactorError as error:  # the compaction stands, and the next one tries this again
        core.emit("job.dropped", what=what, reason=str(error))


def refused(core: Core, ask: Ask, reason: str, tokens: int, messages: int) -> Report:
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
