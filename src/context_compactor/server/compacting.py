"""Compactions over HTTP: making one, listing them, taking them back, and handing on."""

from __future__ import annotations

from msgspec import structs

from context_compactor.api import (
    CheckpointAnswer,
    CompactAnswer,
    CompactBody,
    CompactionPage,
    HandoffAnswer,
    HandoffBody,
    NoQuery,
    PageQuery,
    UndoAnswer,
)
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.report import Report
from context_compactor.server.asked import Asked
from context_compactor.server.open_sessions import Opened
from context_compactor.server.paging import page_of
from context_compactor.server.reports import outside
from context_compactor.session import checkpoints
from context_compactor.session.session import Session


async def compact(asked: Asked[CompactBody, NoQuery]) -> CompactAnswer:
    """Compact now, at any fill. "Not enough to compact" is an answer, with `compacted: false` and the reason.

    Messages can be appended meanwhile; they stay behind what was compacted.
    """
    body = asked.body
    report = await asked.beside(
        lambda session: session.compact(
            body.focus, body.level, body.dry_run, target_tokens=body.target_tokens, preserve=body.preserve
        )
    )
    return CompactAnswer(
        compacted=report.changed and not body.dry_run,
        reason=report.reason,
        messages_removed=report.messages_removed,
        tokens_before=report.tokens_before,
        tokens_after=report.tokens_after,
        tokens_saved=report.tokens_saved,
        dry_run=body.dry_run,
        report=outside(report, asked.id),
    )


async def compactions(asked: Asked[None, PageQuery]) -> CompactionPage:
    """List the reports of all compactions, in order, and what they saved together."""

    def look(session: Session) -> CompactionPage:
        found, following = page_of(session.compactions(), asked.query)
        return CompactionPage(
            compactions=[outside(report, asked.id) for report in found], totals=session.totals(), next=following
        )

    return await asked.session(look)


async def undo(asked: Asked[None, NoQuery]) -> UndoAnswer:
    """Take the last compaction back: the context is again what it was, with everything appended since."""
    return _turned(asked, await asked.session(Session.undo), "there is no compaction to take back")


async def redo(asked: Asked[None, NoQuery]) -> UndoAnswer:
    """Take the last undo back."""
    return _turned(asked, await asked.session(Session.redo), "there is no undo to take back")


def _turned(asked: Asked[None, NoQuery], report: Report | None, why_not: str) -> UndoAnswer:
    if report is None:
        return UndoAnswer(changed=False, reason=why_not)
    return UndoAnswer(changed=True, report=outside(report, asked.id))


async def checkpoint(asked: Asked[None, NoQuery]) -> CheckpointAnswer:
    """Tell where the work stands, for whoever goes on with it in a fresh window."""

    def look(opened: Opened) -> CheckpointAnswer:
        made = structs.replace(checkpoints.make(opened.core), session_id=asked.id)
        told = tuple(asked.scope.told(line, opened.id) for line in made.recovery)
        made = structs.replace(made, recovery=told)
        return CheckpointAnswer(checkpoint=made, markdown=render_checkpoint(made))

    return await asked.opened(look)


async def handoff(asked: Asked[HandoffBody, NoQuery]) -> HandoffAnswer:
    """Write what a sub-agent or the next phase is given, with a summary of at most 500 tokens. Compacts first."""
    body, store_id = asked.body, asked.store_id
    request = await asked.beside(lambda session: session.handoff(body.phase, body.task, body.task_id))
    return HandoffAnswer(request=structs.replace(request, task_id=asked.scope.told(request.task_id, store_id)))
