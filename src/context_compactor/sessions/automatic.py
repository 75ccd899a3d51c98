"""Compactions that nobody asked for: what a reached threshold leads to, and what holds it back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec
from msgspec import structs

from context_compactor.engine.report import Report
from context_compactor.engine.request import CompactionRequest, level_target
from context_compactor.errors import CompactorError, ModelStopped
from context_compactor.sessions.append import (
    RETRY_SECONDS,
    AppendOutcome,
    check_thresholds,
    is_left_to_jobs,
    is_level_due,
    is_urgent,
    is_wanted,
    measure_now,
    with_level_answered,
    with_level_unanswered,
)
from context_compactor.sessions.compaction import compact, refused_report
from context_compactor.sessions.core import Core
from context_compactor.sessions.facts import prepare_compaction
from context_compactor.sessions.state import read_session_state
from context_compactor.settings import Level
from context_compactor.store.rows import Job, SessionRow
from context_compactor.tokens.budget import Trigger

_BREAKER_SECONDS = 300.0
_FRESH_TOKENS = 2_500
# How often a compaction is begun anew because somebody else has changed the context meanwhile.
_MOST_TRIES = 3
_OPENED = "the session was opened again"


def respond(core: Core, outcome: AppendOutcome) -> Report | None:
    """Do what an append leads to. The messages are written: nothing that fails now may look as if they were not."""
    if not core.settings.enabled:
        return None
    try:
        return _respond(core, outcome)
    except CompactorError as error:
        core.emit("job.dropped", what="what follows an append", reason=str(error))
        return None


def check_on_open(core: Core) -> None:
    """Before the first request after opening: is a level reached, whatever was known of it before?"""
    with core.writing() as row:
        state = read_session_state(row.state)
        if state.held or not row.messages:
            return
        counter = core.counter(core.dialect(core.current_context(row).raws))
        state = structs.replace(state, gauge=core.gauge(row, state, counter), share=0.0, fired="")
        before, (state, outcome) = state, check_thresholds(core, state, counter, boundary=_OPENED)
        core.save(with_level_unanswered(before, state) if is_urgent(core, outcome) else state)
        outcome = core.schedule(core, outcome) if core.schedule else outcome
    respond(core, outcome)


def _respond(core: Core, outcome: AppendOutcome) -> Report | None:
    for suggestion in outcome.suggestions:
        core.emit("compaction.suggested", reason=str(suggestion), count=suggestion.count, counter=suggestion.counter)
    if outcome.is_extraction_due and core.schedule is None:
        prepare_compaction(core, fewest=1)
    if outcome.expired_cache is not None:
        expired = outcome.expired_cache
        idle = round(expired.idle_seconds or 0)
        core.emit("compaction.suggested", reason=expired.in_words(), idle_seconds=idle, cache_seconds=expired.seconds)
    if outcome.is_plateau:
        core.emit("compaction.suggested", reason="usage stays near the limit, and nothing brings it down")
    is_queued = is_left_to_jobs(core, outcome)
    is_dropped = is_queued and not any(job.kind == "compact" for job in outcome.jobs)  # the same waits or runs
    if outcome.trigger is not None and outcome.is_crossing and not is_dropped:
        emit_crossing(core, outcome.trigger)
    emit_queued(core, outcome.jobs)
    if is_queued or not is_wanted(core, outcome):
        return None
    level = outcome.trigger.level if outcome.trigger else None
    why = f"at a boundary: {outcome.boundary}" if outcome.boundary else ""
    report = _compact_by_itself(core, core.ask(level=level or Level.SOFT, kind="threshold"), level, why)
    if level is not Level.EMERGENCY or report is None:
        return report
    if report.changed or report.status == "partial":
        report = _fresh_if_still_full(core, report)
    if not report.changed:
        _note_answered(core)
    return report


def _note_answered(core: Core) -> None:
    """An emergency was answered, though nothing came of it: it is not to be tried again with every message."""
    with core.writing() as row:
        state, trigger = measure_now(core, row)
        if trigger is not None:
            core.save(with_level_answered(state, trigger))


def emit_crossing(core: Core, trigger: Trigger) -> None:
    """Emit that a level was reached."""
    core.emit(
        "threshold.crossed",
        level=trigger.level,
        tokens=trigger.current_tokens,
        budget=trigger.budget_tokens,
        share=round(trigger.share, 4),
    )


def emit_queued(core: Core, jobs: Iterable[Job]) -> None:
    """Emit events for new jobs, all but those for quiet times, of which there is one behind every message."""
    for job in jobs:
        if job.kind != "idle":
            core.emit("job.queued", job=job.id, what=job.kind, level=job.level)


def fresh_window(core: Core) -> Report:
    """Begin anew with what must not be forgotten: task, rules, failures, references, and instructions if they fit."""
    target = min(_emergency_target(core), _instruction_tokens(core) + _FRESH_TOKENS)
    return compact(core, core.ask(target_tokens=target, kind="manual"), with_model=False)


def _fresh_if_still_full(core: Core, report: Report) -> Report:
    """Open a fresh window if an emergency compaction could not bring the context below soft, and it still is above."""
    soft = min(core.settings.levels, key=lambda rule: rule.threshold)
    if report.tokens_after <= soft.threshold * core.budget(core.counter(core.dialect())).tokens:
        return report
    ask = core.ask(target_tokens=_emergency_target(core), kind="threshold")
    fresh = _compact_by_itself(core, ask, soft.level)
    if fresh is None:
        return report
    if not fresh.changed:
        return structs.replace(report, reason=f"{report.reason}; a fresh window is no smaller: {fresh.reason}")
    why = f"even an emergency compaction left {report.tokens_after:,} tokens, so a fresh window was opened"
    return structs.replace(fresh, reason=f"{why}. {fresh.reason}".strip())


def _emergency_target(core: Core) -> int:
    budget = core.budget(core.counter(core.dialect())).tokens
    return level_target(core.settings.levels[-1].level, core.settings.levels, budget)


def _instruction_tokens(core: Core) -> int:
    """Of what a fresh window begins with: instructions among the messages, tools and a system prompt beside them."""
    context = core.current_context()
    dialect = core.dialect(context.raws)
    instructions = [message for message in dialect.parse(context.raws) if message.role in ("system", "developer")]
    counter = core.counter(dialect)
    return sum(counter.count_many(instructions)) + core.fixed_tokens(counter)


def compact_when_due(core: Core, ask: CompactionRequest, level: Level | None, why: str = "") -> Report | None:
    """Compact if the context, as it is when its turn comes, is at `level` (see `is_level_due`); None when it is not.

    When somebody else changes the context before the commit, the new one is measured again before anything more is
    done to it. `why` it comes now is added to the reason in the report.
    """
    report = None
    for _ in range(_MOST_TRIES):
        row = core.row()
        if not is_level_due(core, row, level):
            return None
        report = postponed(core, ask, row) or compact(core, ask, why=why, context=core.current_context(row))
        if report.changed or core.row().view == row.view:
            return report
    return report


def _compact_by_itself(core: Core, ask: CompactionRequest, level: Level | None, why: str = "") -> Report | None:
    """The same for somebody who waits: whatever fails never stops the agent."""
    row = core.row()
    try:
        return compact_when_due(core, ask, level, why)
    except ModelStopped as error:  # only a cancel comes this far: nothing is wrong with what was tried
        core.change(lambda known: structs.replace(known, failed_at=core.seconds()))
        core.emit("compaction.refused", reason=str(error), level=ask.level)
        tokens = read_session_state(row.state).gauge.tokens
        return refused_report(core, ask, str(error), tokens, len(core.current_context(row).items))
    except Exception as error:  # noqa: BLE001  the agent goes on with the context it has; the event says what happened
        reason = str(error) if isinstance(error, CompactorError) else f"{type(error).__name__}: {error}"
        return note_failure(core, ask, row, reason)


def postponed(core: Core, ask: CompactionRequest, row: SessionRow) -> Report | None:
    """Why this compaction should not be tried now, as a report; None when it may."""
    state = read_session_state(row.state)
    what = _fingerprint(core, ask, row.head)
    now = core.seconds()
    objection = state.guard.objection(what, state.gauge.tokens, row.messages, now, RETRY_SECONDS, _BREAKER_SECONDS)
    if objection and not (ask.level is Level.EMERGENCY and state.guard.is_thrashing(row.messages)):
        core.change(lambda known: structs.replace(known, failed_at=now))  # it is to be tried again after the wait
        core.emit("compaction.refused", reason=objection, level=ask.level)
        return refused_report(core, ask, objection, state.gauge.tokens, len(core.current_context(row).items))
    return None


def _fingerprint(core: Core, ask: CompactionRequest, head: int) -> str:
    settings = msgspec.json.encode((core.settings, core.profile.window, core.profile.model, ask.level))
    return f"{head}:{hashlib.sha256(settings).hexdigest()[:16]}"


def note_failure(core: Core, ask: CompactionRequest, row: SessionRow, reason: str) -> Report:
    """Remember that a compaction failed, emit it, and return its report."""
    try:
        remember_failure(core, ask, row)
    except CompactorError as second:  # the store that failed may fail again
        reason = f"{reason}; and this could not be noted: {second}"
    core.emit("compaction.failed", reason=reason, level=ask.level)
    tokens = read_session_state(core.row().state).gauge.tokens
    report = refused_report(core, ask, reason, tokens, len(core.current_context().items))
    return structs.replace(report, status="failed")


def remember_failure(core: Core, ask: CompactionRequest, row: SessionRow) -> None:
    """From now on a compaction of this context is tried again only after a wait."""
    what = _fingerprint(core, ask, row.head)
    now = core.seconds()
    core.change(lambda state: structs.replace(state, guard=state.guard.failed(what, now), failed_at=now))
