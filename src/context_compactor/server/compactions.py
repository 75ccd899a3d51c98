"""Handlers of compactions: compact, cancel, plan, tiers, undo and redo, checkpoints and handoffs."""

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
from context_compactor.server.requests import RequestContext, handles
from context_compactor.server.responses import JsonResponse, json_response, page_of, public_report
from context_compactor.sessions import checkpoints, schemas
from context_compactor.sessions.session import Session
from context_compactor.sessions.verbs import Verbs
from context_compactor.sessions.views import report_of


@handles(Verbs.compact)
async def compact(request: RequestContext[schemas.CompactBody]) -> JsonResponse[schemas.CompactAnswer]:
    body = request.params

    def work(session: Session) -> JsonResponse[schemas.CompactAnswer]:
        report = session.compact(
            body.focus, body.level, body.dry_run, target_tokens=body.target_tokens, preserve=body.preserve
        )
        compacted, shown = report.changed and not body.dry_run, public_report(report, request.id)
        return json_response(
            schemas.struct_from(schemas.CompactAnswer, report, compacted=compacted, dry_run=body.dry_run, report=shown)
        )

    return await request.run_compaction(work, can_cancel=True)


@handles(Verbs.cancel)
async def cancel(request: RequestContext[schemas.NoQuery]) -> schemas.CancelAnswer:
    here, elsewhere = await request.service.cancel(request.store_id)
    return schemas.CancelAnswer(session_id=request.id, cancelled=here, elsewhere=elsewhere)


@handles(Verbs.compactions)
async def compactions(request: RequestContext[schemas.PageQuery]) -> JsonResponse[schemas.CompactionPage]:
    def look(handle: SessionHandle) -> JsonResponse[schemas.CompactionPage]:
        core = handle.core
        found, following = page_of(
            core.context_reader.log_state().compactions, request.params.after, request.params.limit
        )
        reports = [public_report(report_of(core, each), request.id) for each in found]
        return json_response(
            schemas.CompactionPage(compactions=reports, totals=handle.session().totals(), next=following)
        )

    return await request.with_handle(look)


@handles(Verbs.undo)
async def undo(request: RequestContext[schemas.NoQuery]) -> schemas.UndoAnswer:
    return _undo_answer(request, await request.session(Session.undo), "there is no compaction to take back")


@handles(Verbs.redo)
async def redo(request: RequestContext[schemas.NoQuery]) -> schemas.UndoAnswer:
    return _undo_answer(request, await request.session(Session.redo), "there is no undo to take back")


def _undo_answer(request: RequestContext[schemas.NoQuery], report: Report | None, why_not: str) -> schemas.UndoAnswer:
    if report is None:
        return schemas.UndoAnswer(changed=False, reason=why_not)
    return schemas.UndoAnswer(changed=True, report=public_report(report, request.id))


@handles(Verbs.checkpoint)
async def checkpoint(request: RequestContext[schemas.NoQuery]) -> JsonResponse[schemas.CheckpointAnswer]:
    return await request.with_handle(
        lambda handle: _checkpoint_answer(request, checkpoints.current_checkpoint(handle.core), handle.id)
    )


@handles(Verbs.write_checkpoint)
async def write_checkpoint(request: RequestContext[schemas.CheckpointBody]) -> JsonResponse[schemas.CheckpointAnswer]:
    note = request.params.note
    return await request.with_handle(
        lambda handle: _checkpoint_answer(request, handle.session().checkpoint(note), handle.id)
    )


def _checkpoint_answer(
    request: RequestContext[Any], checkpoint: Checkpoint, store_id: str
) -> JsonResponse[schemas.CheckpointAnswer]:
    """A checkpoint as its caller may read it: with the session's own name."""
    lines = tuple(request.scope.public_text(line, store_id) for line in checkpoint.recovery)
    made = structs.replace(checkpoint, session_id=request.id, recovery=lines)
    return json_response(schemas.CheckpointAnswer(checkpoint=made, markdown=render_checkpoint(made)))


@handles(Verbs.handoff)
async def handoff(request: RequestContext[schemas.HandoffBody]) -> schemas.HandoffAnswer:
    body = request.params

    def work(session: Session) -> schemas.HandoffAnswer:
        return schemas.HandoffAnswer(
            request=session.handoff(body.phase, body.task, body.task_id, feature=body.feature, spec_path=body.spec_path)
        )

    return await request.run_compaction(work, can_cancel=True)


@handles(Verbs.receive)
async def receive(request: RequestContext[schemas.ReceiveBody]) -> schemas.ReceiveAnswer:
    taken = await request.session(lambda session: session.receive(request.params.answer))
    return schemas.struct_from(schemas.ReceiveAnswer, taken, id=taken.original.id if taken.original else None)


@handles(Verbs.plan)
async def plan(request: RequestContext[schemas.PlanQuery]) -> JsonResponse[schemas.PlanAnswer]:
    query = request.params

    def work(session: Session) -> JsonResponse[schemas.PlanAnswer]:
        made = session.plan(query.focus, query.level, query.target_tokens, tiers=query.tiers())
        report = public_report(made.report, request.id)
        return json_response(
            schemas.PlanAnswer(decisions=list(made.decisions), report=report, tiers=_turn_tiers(made.tiers))
        )

    return await request.run_compaction(work)


@handles(Verbs.tiers)
async def tiers(request: RequestContext[schemas.NoQuery]) -> schemas.TiersAnswer:
    return schemas.TiersAnswer(session_id=request.id, tiers=_turn_tiers(await request.session(Session.tiers)))


@handles(Verbs.set_tier)
async def set_tier(request: RequestContext[schemas.TierBody]) -> schemas.TiersAnswer:
    body = request.params
    if body.turn is None and body.tier is not None:
        raise BadSetting(f"tier is {body.tier} but turn is missing. Try: give both, or neither to clear all tiers.")

    def work(session: Session) -> dict[int, Tier]:
        if body.turn is not None and body.tier is not None:
            session.set_tier(body.turn, body.tier)
        else:
            session.clear_tier(body.turn)
        return session.tiers()

    return schemas.TiersAnswer(session_id=request.id, tiers=_turn_tiers(await request.session(work)))


def _turn_tiers(tiers: Mapping[int, Tier]) -> list[schemas.TurnTier]:
    return [schemas.TurnTier(turn=turn, tier=tier) for turn, tier in tiers.items()]
