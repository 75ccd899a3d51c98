"""Compactions over HTTP: making one, listing them, taking them back, and handing on."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from context_compactor.api import (
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
    ReceiveAnswer,
    ReceiveBody,
    UndoAnswer,
)
from context_compactor.handoff.checkpoint import Checkpoint
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.report import Report
from context_compactor.server.asked import Asked
from context_compactor.server.open_sessions import Opened
from context_compactor.server.paging import page_of
from context_compactor.server.reports import outside
from context_compactor.server.sending import Sent, sent
from context_compactor.session import checkpoints
from context_compactor.session.session import Session
from context_compactor.session.views import report_of


async def compact(asked: Asked[CompactBody, NoQuery]) -> Sent[CompactAnswer]:
    """Compact now, at any fill. "Not enough to compact" is an answer, with `compacted: false` and the reason.

    Messages can be appended meanwhile; they stay behind what was compacted.
    """
    body = asked.body

    def work(session: Session) -> Sent[CompactAnswer]:
        report = session.compact(
            body.focus, body.level, body.dry_run, target_tokens=body.target_tokens, preserve=body.preserve
        )
        return sent(_compacted(report, asked.id, dry_run=body.dry_run))

    return await asked.beside(work, can_cancel=True)


async def cancel(asked: Asked[None, NoQuery]) -> CancelAnswer:
    """End every compaction of a session that is under way or waits for its turn, whoever has asked for it.

    When this is answered nothing of it goes on here: whoever asked is told that it was cancelled, and the context is
    as it was, unless the compaction was done already. One that a job in another process is at hears of it within
    seconds, and stands when it was done before. A plan is not ended, since it changes nothing.
    """
    here, elsewhere = await asked.service.cancel(asked.store_id)
    return CancelAnswer(session_id=asked.id, cancelled=here, elsewhere=elsewhere)


def _compacted(report: Report, session_id: str, *, dry_run: bool) -> CompactAnswer:
    return CompactAnswer(
        compacted=report.changed and not dry_run,
        reason=report.reason,
        messages_removed=report.messages_removed,
        tokens_before=report.tokens_before,
        tokens_after=report.tokens_after,
        tokens_saved=report.tokens_saved,
        dry_run=dry_run,
        report=outside(report, session_id),
    )


async def compactions(asked: Asked[None, PageQuery]) -> Sent[CompactionPage]:
    """List the reports of all compactions, in order, page by page, and what all of them saved together."""

    def look(opened: Opened) -> Sent[CompactionPage]:
        core = opened.core
        found, following = page_of(core.lens.sight().compactions, asked.query.after, asked.query.limit)
        reports = [outside(report_of(core, each), asked.id) for each in found]
        return sent(CompactionPage(compactions=reports, totals=opened.session().totals(), next=following))

    return await asked.opened(look)


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


async def checkpoint(asked: Asked[None, NoQuery]) -> Sent[CheckpointAnswer]:
    """Tell where the work stands, for whoever goes on with it in a fresh window."""

    return await asked.opened(lambda opened: _told(asked, checkpoints.make(opened.core), opened.id))


async def write_checkpoint(asked: Asked[CheckpointBody, NoQuery]) -> Sent[CheckpointAnswer]:
    """Keep where the work stands, with a note of one's own, as every compaction does without one."""
    note = asked.body.note
    return await asked.opened(lambda opened: _told(asked, opened.session().checkpoint(note), opened.id))


def _told(asked: Asked[Any, NoQuery], checkpoint: Checkpoint, store_id: str) -> Sent[CheckpointAnswer]:
    """A checkpoint as its caller may read it: with the session's own name."""
    lines = tuple(asked.scope.told(line, store_id) for line in checkpoint.recovery)
    made = structs.replace(checkpoint, session_id=asked.id, recovery=lines)
    return sent(CheckpointAnswer(checkpoint=made, markdown=render_checkpoint(made)))


async def handoff(asked: Asked[HandoffBody, NoQuery]) -> HandoffAnswer:
    """Write what a sub-agent or the next phase is given, with a summary of at most 500 tokens. Compacts first."""
    body = asked.body

    def work(session: Session) -> HandoffAnswer:
        return HandoffAnswer(
            request=session.handoff(body.phase, body.task, body.task_id, feature=body.feature, spec_path=body.spec_path)
        )

    return await asked.beside(work, can_cancel=True)


async def receive(asked: Asked[ReceiveBody, NoQuery]) -> ReceiveAnswer:
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
