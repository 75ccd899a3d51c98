"""Handlers of compactions: compact, cancel, plan, steering, undo and redo, checkpoints and handoffs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier
from context_compactor.errors import BadSetting
from context_compactor.handoff.checkpoint import Checkpoint
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.server.open_sessions import SessionHandle
from context_compactor.server.requests import RequestContext
from context_compactor.server.responses import JsonResponse, json_response, page_of, public_report
from context_compactor.sessions import checkpoints
from context_compactor.sessions.api import (
    CancelAnswer,
    CheckpointAnswer,
    CheckpointBody,
    CompactAnswer,
    CompactBody,
    CompactionPage,
    HandoffAnswer,
    HandoffBody,
    NoQuery,
    PageQuery,
    PlanAnswer,
    PlanQuery,
    ReceiveAnswer,
    ReceiveBody,
    SteerBody,
    SteeringAnswer,
    TurnSteer,
    UndoAnswer,
)
from context_compactor.sessions.session import Session
from context_compactor.sessions.views import report_of


async def compact(asked: RequestContext[CompactBody, NoQuery]) -> JsonResponse[CompactAnswer]:
    """Compact now, at any fill. "Not enough to compact" is an answer, with `compacted: false` and the reason.

    Messages can be appended meanwhile; they stay behind what was compacted.
    """
    body = asked.body

    def work(session: Session) -> JsonResponse[CompactAnswer]:
        report = session.compact(
            body.focus, body.level, body.dry_run, target_tokens=body.target_tokens, preserve=body.preserve
        )
        return json_response(_compact_answer(report, asked.id, dry_run=body.dry_run))

    return await asked.beside(work, can_cancel=True)


async def cancel(asked: RequestContext[None, NoQuery]) -> CancelAnswer:
    """End every compaction of a session that is under way or waits for its turn, whoever has asked for it.

    When this is answered nothing of it goes on here: whoever asked is told that it was cancelled, and the context is
    as it was, unless the compaction was done already. One that a job in another process is at hears of it within
    seconds, and stands when it was done before. A plan is not ended, since it changes nothing.
    """
    here, elsewhere = await asked.service.cancel(asked.store_id)
    return CancelAnswer(session_id=asked.id, cancelled=here, elsewhere=elsewhere)


def _compact_answer(report: Report, session_id: str, *, dry_run: bool) -> CompactAnswer:
    return CompactAnswer(
        compacted=report.changed and not dry_run,
        reason=report.reason,
        messages_removed=report.messages_removed,
        tokens_before=report.tokens_before,
        tokens_after=report.tokens_after,
        tokens_saved=report.tokens_saved,
        dry_run=dry_run,
        report=public_report(report, session_id),
    )


async def compactions(asked: RequestContext[None, PageQuery]) -> JsonResponse[CompactionPage]:
    """List the reports of all compactions, in order, page by page, and what all of them saved together."""

    def look(opened: SessionHandle) -> JsonResponse[CompactionPage]:
        core = opened.core
        found, following = page_of(core.context_reader.log_state().compactions, asked.query.after, asked.query.limit)
        reports = [public_report(report_of(core, each), asked.id) for each in found]
        return json_response(CompactionPage(compactions=reports, totals=opened.session().totals(), next=following))

    return await asked.opened(look)


async def undo(asked: RequestContext[None, NoQuery]) -> UndoAnswer:
    """Take the last compaction back: the context is again what it was, with everything appended since."""
    return _undo_answer(asked, await asked.session(Session.undo), "there is no compaction to take back")


async def redo(asked: RequestContext[None, NoQuery]) -> UndoAnswer:
    """Take the last undo back."""
    return _undo_answer(asked, await asked.session(Session.redo), "there is no undo to take back")


def _undo_answer(asked: RequestContext[None, NoQuery], report: Report | None, why_not: str) -> UndoAnswer:
    if report is None:
        return UndoAnswer(changed=False, reason=why_not)
    return UndoAnswer(changed=True, report=public_report(report, asked.id))


async def checkpoint(asked: RequestContext[None, NoQuery]) -> JsonResponse[CheckpointAnswer]:
    """Tell where the work stands, for whoever goes on with it in a fresh window."""

    return await asked.opened(
        lambda opened: _checkpoint_answer(asked, checkpoints.current_checkpoint(opened.core), opened.id)
    )


async def write_checkpoint(asked: RequestContext[CheckpointBody, NoQuery]) -> JsonResponse[CheckpointAnswer]:
    """Keep where the work stands, with a note of one's own, as every compaction does without one."""
    note = asked.body.note
    return await asked.opened(lambda opened: _checkpoint_answer(asked, opened.session().checkpoint(note), opened.id))


def _checkpoint_answer(
    asked: RequestContext[Any, NoQuery], checkpoint: Checkpoint, store_id: str
) -> JsonResponse[CheckpointAnswer]:
    """A checkpoint as its caller may read it: with the session's own name."""
    lines = tuple(asked.scope.told(line, store_id) for line in checkpoint.recovery)
    made = structs.replace(checkpoint, session_id=asked.id, recovery=lines)
    return json_response(CheckpointAnswer(checkpoint=made, markdown=render_checkpoint(made)))


async def handoff(asked: RequestContext[HandoffBody, NoQuery]) -> HandoffAnswer:
    """Write what a sub-agent or the next phase is given, with a summary of at most 500 tokens. Compacts first."""
    body = asked.body

    def work(session: Session) -> HandoffAnswer:
        return HandoffAnswer(
            request=session.handoff(body.phase, body.task, body.task_id, feature=body.feature, spec_path=body.spec_path)
        )

    return await asked.beside(work, can_cancel=True)


async def receive(asked: RequestContext[ReceiveBody, NoQuery]) -> ReceiveAnswer:
    """Take in a sub-agent's answer to a handoff, which the next phase is then given; all of it is archived."""
    taken = await asked.session(lambda session: session.receive(asked.body.answer))
    return ReceiveAnswer(
        id=taken.original.id if taken.original else None,
        decision=taken.decision,
        context_summary=taken.context_summary,
        files_of_interest=list(taken.files_of_interest),
        files_changed=list(taken.files_changed),
        errors=list(taken.errors),
        asked=taken.asked,
        reference=taken.reference,
        tokens_raw=taken.tokens_raw,
        tokens_kept=taken.tokens_kept,
    )


async def plan(asked: RequestContext[None, PlanQuery]) -> JsonResponse[PlanAnswer]:
    """Tell what a compaction would do now, target by target; nothing is changed, and no model is asked.

    With turns for tiers, such as `keep=12,15&drop=9`, it tells what would come of deciding so.
    """
    query = asked.query

    def work(session: Session) -> JsonResponse[PlanAnswer]:
        made = session.plan(query.focus, query.level, query.target_tokens, steers=query.steers())
        report = public_report(made.report, asked.id)
        return json_response(
            PlanAnswer(decisions=list(made.decisions), report=report, steers=_turn_steers(made.steers))
        )

    return await asked.beside(work)


async def steering(asked: RequestContext[None, NoQuery]) -> SteeringAnswer:
    """List what was decided about turns that stand in the context."""
    return SteeringAnswer(session_id=asked.id, steers=_turn_steers(await asked.session(Session.steering)))


async def steer(asked: RequestContext[SteerBody, NoQuery]) -> SteeringAnswer:
    """Give a turn a tier, which every compaction follows, or leave it to the engine again."""
    body = asked.body
    if body.turn is None and body.tier is not None:
        raise BadSetting(f"tier is {body.tier} but turn is missing. Try: give both, or neither to clear all tiers.")

    def work(session: Session) -> dict[int, Tier]:
        if body.turn is not None and body.tier is not None:
            session.steer(body.turn, body.tier)
        else:
            session.unsteer(body.turn)
        return session.steering()

    return SteeringAnswer(session_id=asked.id, steers=_turn_steers(await asked.session(work)))


def _turn_steers(steers: Mapping[int, Tier]) -> list[TurnSteer]:
    return [TurnSteer(turn=turn, tier=tier) for turn, tier in steers.items()]
