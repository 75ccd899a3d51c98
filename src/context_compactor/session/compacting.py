"""One compaction of a session: run the engine, archive, commit, tell. Whatever fails leaves the old context."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec
from msgspec import structs

from context_compactor import app
from context_compactor.ask import Ask
from context_compactor.errors import CompactorError, StaleBase
from context_compactor.levels import Level
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.dialect import Dialect
from context_compactor.plan.goal import level_target
from context_compactor.report import Report
from context_compactor.session import checkpoints, keep
from context_compactor.session.after import export_new
from context_compactor.session.core import Core, raws_of
from context_compactor.session.lens import Seen
from context_compactor.session.memory import keep_facts, promote, work_ahead
from context_compactor.session.values import State, read_state
from context_compactor.session.watch import RETRY_SECONDS, Watched, settled

_BREAKER_SECONDS = 300.0
_FRESH_TOKENS = 2_500


def answer(core: Core, watched: Watched) -> Report | None:
    """Do what a look at the gauge asks for. The messages are written: nothing that fails now may look as if not."""
    if not core.settings.enabled:
        return None
    try:
        return _answer(core, watched)
    except CompactorError as error:
        core.emit("job.dropped", what="what follows an append", reason=str(error))
        return None


def _answer(core: Core, watched: Watched) -> Report | None:
    """Tell, suggest, and compact when that is to happen by itself."""
    for suggestion in watched.suggestions:
        core.emit("compaction.suggested", reason=str(suggestion), count=suggestion.count, counter=suggestion.counter)
    if watched.is_extraction_due:
        work_ahead(core, fewest=1)
    if watched.is_plateau:
        core.emit("compaction.suggested", reason="usage stays near the limit, and nothing brings it down")
    trigger = watched.trigger
    if trigger is not None and watched.is_crossing:
        core.emit(
            "threshold.crossed",
            level=trigger.level,
            tokens=trigger.current_tokens,
            budget=trigger.budget_tokens,
            share=round(trigger.share, 4),
        )
    by_counter = bool(watched.suggestions) and core.settings.counters_compact
    if not core.settings.automatic or not (trigger or by_counter):
        return None
    level = trigger.level if trigger else Level.SOFT
    report = compact_by_itself(core, core.ask(level=level, kind="threshold"))
    return fresh_window(core, report) if level is Level.EMERGENCY else report


def fresh_window(core: Core, report: Report | None = None) -> Report:
    """Begin anew with what must not be forgotten: task, rules, failures, references, and instructions if they fit.

    After an emergency compaction it is done only when that one has left the context above the soft threshold.
    """
    counter = core.counter(core.dialect())
    budget = core.budget(counter).tokens
    soft = min(rule.threshold for rule in core.settings.levels)
    if report is not None and (report.status == "failed" or report.tokens_after <= soft * budget):
        return report
    target = level_target(core.settings.levels[-1].level, core.settings.levels, budget)
    if report is None:
        return compact(core, core.ask(target_tokens=min(target, _instructions(core) + _FRESH_TOKENS), kind="manual"))
    fresh = compact_by_itself(core, core.ask(target_tokens=target, kind="threshold"))
    if not fresh.changed:
        return structs.replace(report, reason=f"{report.reason}; a fresh window is no smaller: {fresh.reason}")
    why = f"even an emergency compaction left {report.tokens_after:,} tokens, so a fresh window was opened"
    return structs.replace(fresh, reason=f"{why}. {fresh.reason}".strip())


def _instructions(core: Core) -> int:
    seen = core.seen()
    dialect = core.dialect(seen.raws)
    told = [message for message in dialect.parse(seen.raws) if message.role in ("system", "developer")]
    return sum(core.counter(dialect).count_many(told))


def compact_by_itself(core: Core, ask: Ask) -> Report:
    """A compaction that nobody asked for: it is held back after failures, and never stops the agent."""
    row = core.store.session(core.id)
    state = read_state(row.state)
    what = _fingerprint(core, ask, row.head)
    now = core.seconds()
    objection = state.guard.objection(what, state.gauge.tokens, row.messages, now, RETRY_SECONDS, _BREAKER_SECONDS)
    if objection and not (ask.level is Level.EMERGENCY and state.guard.is_thrashing(row.messages)):
        core.change(lambda known: structs.replace(known, failed_at=now))  # it is to be tried again after the wait
        core.emit("compaction.refused", reason=objection, level=ask.level)
        return _refused(core, ask, objection, state.gauge.tokens, len(core.seen(row).shown))
    try:
        return compact(core, ask)
    except Exception as error:  # noqa: BLE001  the agent goes on with the context it has; the event says what happened
        return _failed(core, ask, what, error)


def _fingerprint(core: Core, ask: Ask, head: int) -> str:
    settings = msgspec.json.encode((core.settings, core.profile.window, core.profile.model, ask.level))
    return f"{head}:{hashlib.sha256(settings).hexdigest()[:16]}"


def _refused(core: Core, ask: Ask, reason: str, tokens: int, messages: int) -> Report:
    return Report.unchanged(
        reason,
        tokens=tokens,
        messages=messages,
        trigger=ask.kind or "threshold",
        level=ask.level,
        session_id=core.id,
        created_at=core.now(),
    )


def _failed(core: Core, ask: Ask, what: str, error: Exception) -> Report:
    reason = str(error) if isinstance(error, CompactorError) else f"{type(error).__name__}: {error}"
    now = core.seconds()
    try:
        core.change(lambda state: structs.replace(state, guard=state.guard.failed(what, now), failed_at=now))
    except CompactorError as second:  # the store that failed may fail again
        reason = f"{reason}; and this could not be noted: {second}"
    core.emit("compaction.failed", reason=reason, level=ask.level)
    gauge, seen = read_state(core.store.session(core.id).state).gauge, core.seen()
    return structs.replace(_refused(core, ask, reason, gauge.tokens, len(seen.shown)), status="failed")


def compact(core: Core, ask: Ask, *, dry_run: bool = False) -> Report:
    """Compact as asked. The report says what happened; when nothing did, the context is as it was."""
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
    )
    if dry_run:
        return result.report
    if not result.report.changed:
        _note_no_gain(core, result.report)
        return result.report
    checkpoint = checkpoints.write_if_possible(core, checkpoints.make(core, live=result.facts))
    result = structs.replace(result, report=structs.replace(result.report, checkpoint=checkpoint))
    return _commit(core, ask, result, seen, dialect, counter)


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
        return _refused(core, ask, str(error), report.tokens_before, report.messages_before)
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
