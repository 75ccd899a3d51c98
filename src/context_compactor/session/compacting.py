"""One compaction of a session: run the engine, archive, commit, tell. Whatever fails leaves the old context."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from context_compactor import app
from context_compactor.ask import Ask
from context_compactor.errors import BadSetting, CompactorError, MissingExtra, StaleBase
from context_compactor.events.event import Event, EventType, make_event
from context_compactor.llm.model import Control
from context_compactor.llm.retry import check
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.dialect import Dialect
from context_compactor.price import Spent
from context_compactor.report import ModelCall, Report
from context_compactor.session import checkpoints, keep
from context_compactor.session.after import export_new
from context_compactor.session.core import Core, raws_of
from context_compactor.session.following import followed
from context_compactor.session.lens import Seen
from context_compactor.session.memory import keep_facts, promote, with_times
from context_compactor.session.values import State, read_state
from context_compactor.session.watch import settled
from context_compactor.settle import Storyteller
from context_compactor.tracing import traced

if TYPE_CHECKING:
    from context_compactor.session.telling import Telling


class Made(Struct, frozen=True):
    """A compaction before it is committed: what came out, what it was made from, and what ends it."""

    result: app.Compaction
    seen: Seen
    dialect: Dialect
    counter: MessageCounter
    control: Control
    is_ahead: bool
    """Whether it holds what a model told ahead."""
    asked: tuple[ModelCall, ...] = ()
    """The calls that it has made itself."""
    within: Callable[[State], State] = lambda state: state
    """What else goes into its transaction, and the state from then on."""

    @property
    def report(self) -> Report:
        """What it did."""
        return self.result.report


@traced("compact", app.told_of)
def compact(
    core: Core, ask: Ask, *, dry_run: bool = False, with_model: bool = True, why: str = "", seen: Seen | None = None
) -> Report:
    """Compact as asked. The report says what happened, and `why` now; when nothing did, the context is as it was.

    `seen` is the context that the caller has measured, else it is the one of now: when it has been replaced by the
    time of the commit, what was made of it is dropped.
    A dry run asks no model: its report says what would be asked. When nobody asked for the compaction, or a server did
    so for somebody who cannot put it right, a model that cannot be opened is done without. One that is cancelled raises
    `ModelStopped` and leaves everything as it was.
    """
    with core.running.begin("compaction") as control:
        if not dry_run:
            core.running.cancel("ahead")  # what is told now would come too late
        telling, missing = _telling(core, ask, control, dry_run) if with_model else (None, "")
        seen = seen or core.seen()
        dialect = core.dialect(seen.raws)
        result = run_engine(core, ask, seen, telling, dry_run=dry_run)
        result = structs.replace(result, report=_with_reason(result.report, why, missing))
        if dry_run:
            return result.report
        check(control)
        if not result.report.changed:
            _note_no_gain(core, result.report)
            return result.report
        told = (telling.is_ahead, telling.asked) if telling else (False, ())
        report = commit_made(core, ask, Made(result, seen, dialect, core.counter(dialect), control, *told))
    _notify(core, report)
    return report


def _notify(core: Core, report: Report) -> None:
    """Tell who sits here, if they want that. A core that queues jobs is a server's."""
    if core.settings.notify_on_compact and core.schedule is None:
        from context_compactor.session.notice import notify

        notify(report)


def run_engine(
    core: Core, ask: Ask, seen: Seen, teller: Storyteller | None, *, dry_run: bool = False
) -> app.Compaction:
    """What a compaction of a context would be. Nothing is written."""
    dialect = core.dialect(seen.raws)

    @cache  # a model's story is weighed against the same archive several times
    def archived() -> frozenset[str]:
        return frozenset(each.ref for each in core.store.originals(core.id) if each.content)

    return app.run(
        raws_of(seen),
        _beside(core, ask, seen, core.counter(dialect)),
        dialect=dialect.name,
        count_tokens=core.count_tokens,
        session_id=core.id,
        location=f"archive of {core.store.path}",
        teller=teller,
        dry_run=dry_run,
        archived=archived,
    )


def _telling(core: Core, ask: Ask, control: Control, dry_run: bool) -> tuple[Telling | None, str]:
    """Who tells the story, or why nobody can."""
    try:
        teller = core.expecting() if dry_run else core.teller()
    except (BadSetting, MissingExtra) as error:
        if ask.is_wanted and core.schedule is None:
            raise
        core.emit("job.dropped", what="summary by a model", reason=str(error))
        return None, f"no model was asked: {error}"
    if teller is None:
        return None, ""
    from context_compactor.session.telling import Telling  # what checks a model's words is loaded where there is one

    return Telling(core, teller, control.cancel, is_wanted=ask.is_wanted), ""


def _with_reason(report: Report, why: str, more: str) -> Report:
    reason = "; ".join(text for text in (why, report.reason, more) if text)
    return structs.replace(report, reason=reason) if report.changed else report


def _beside(core: Core, ask: Ask, seen: Seen, counter: MessageCounter) -> Ask:
    """The request with what is known of its context: what is sent beside the conversation, and what the user steers.

    Remembered things are sent beside it, and what only the provider counts.
    """
    kept = [raw for shown, raw in zip(seen.shown, seen.raws, strict=True) if shown.added == "memory"]
    beside = sum(counter.count_many(core.dialect(seen.raws).parse(kept)))
    state = read_state(core.row().state)
    steers = followed(core, seen, state) if ask.steers is None else ask.steers
    hidden = max(0, round(state.calibration.offset)) if state.calibration.replies else 0
    overhead = beside + max(ask.settings.overhead_tokens, hidden)
    settings = structs.replace(ask.settings, overhead_tokens=overhead)
    return structs.replace(ask, settings=settings, sent=tuple(seen.raws), steers=steers)


def _note_no_gain(core: Core, report: Report) -> None:
    if report.status == "failed":
        raise CompactorError(report.reason)
    if report.status == "partial":
        core.change(lambda state: structs.replace(state, guard=state.guard.gained_nothing(report.tokens_before)))


def commit_made(core: Core, ask: Ask, made: Made) -> Report:
    """Archive, commit and tell a compaction that was made; when somebody else was first, a report that says so.

    The checkpoint is written in between: it names ids of the archive, so these are there first.
    """
    originals = keep.as_logged(made.result.archive, made.result.spans, made.seen, core.store, core.id)
    attempts = keep.Attempts(core.settings.retry_attempts, core.settings.retry_delay_seconds, _retried(core))
    keep.archive(core, originals, attempts)
    made = made if made.report.checkpoint else _with_checkpoint(core, made)
    report, draft = made.report, keep.draft(made.result, made.seen, made.dialect)
    told: list[Event] = []
    try:
        keep.commit(core, draft, made.dialect, made.counter, _remember(core, made, told))
    except StaleBase as error:
        core.emit("compaction.refused", reason=str(error), level=report.level)
        row = core.row()
        tokens = read_state(row.state).gauge.tokens  # of the context that is there now, not of the one that was not
        left = refused(core, ask, str(error), tokens, len(core.seen(row).shown))
        return structs.replace(left, model_calls=made.asked)
    _drop_ahead(core)
    if made.asked and not report.told_by:
        core.emit("job.dropped", what="summary by a model", reason=report.reason)
    for event in told:
        core.bus.emit(event, is_kept=True)
    _afterwards(core)
    return report


def _with_checkpoint(core: Core, made: Made) -> Made:
    checkpoint = checkpoints.write_if_possible(core, checkpoints.make(core, live=made.result.facts))
    report = structs.replace(made.report, checkpoint=checkpoint)
    return structs.replace(made, result=structs.replace(made.result, report=report))


def _drop_ahead(core: Core) -> None:
    """What was told ahead of a compaction is of no use behind it."""
    if read_state(core.row().state).ahead:
        from context_compactor.session.telling import drop

        drop(core, "a compaction came that did not use it")


def _remember(core: Core, made: Made, told: list[Event]) -> Callable[[State], State]:
    """What goes with a compaction into its transaction; `told` are the events that are to be emitted behind it."""

    def remember(state: State) -> State:
        if core.settings.extract_facts:
            state = keep_facts(core, state, with_times(made.result.facts, made.seen, made.result.spans), made.seen)
        messages = core.row().messages
        ahead = "" if made.is_ahead else state.ahead
        state = structs.replace(state, guard=state.guard.succeeded(messages), held=False)
        state = structs.replace(state, ahead=ahead, ahead_spent=Spent(), ahead_calls=())
        told[:] = _events(core, made.report, state)
        for event in told:
            core.bus.keep(event)
        check(made.control)  # the last moment: what is written in this transaction is taken back
        return made.within(settled(core, state, made.counter))

    return remember


def _retried(core: Core) -> Callable[[int, str], None]:
    def tell(attempt: int, reason: str) -> None:
        core.emit("job.retried", what="archive", attempt=attempt, reason=reason)

    return tell


def _events(core: Core, report: Report, state: State) -> list[Event]:
    """What is told of a compaction."""
    payload = {
        "compaction_id": report.compaction_id,
        "trigger": report.trigger,
        "level": report.level,
        "status": report.status,
        "reason": report.reason,
        "tokens_before": report.tokens_before,
        "tokens_after": report.tokens_after,
        "tokens_saved": report.tokens_saved,
        "messages_removed": report.messages_removed,
        "duration_ms": report.duration_ms,
        "metrics": report.metrics,
        "model_calls": report.model_calls,
        "tool_calls": state.tool_calls,
    }
    kinds: tuple[EventType, ...] = ("summary.applied", "session.compacted")
    return [make_event(kind, core.id, payload, core.clock()) for kind in kinds]


def _afterwards(core: Core) -> None:
    """What follows a compaction and can be made again from the store: the index, the readable archive, memory."""
    core.index()
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
