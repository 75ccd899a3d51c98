"""What the buttons do: compact or preview, undo, redo, put an original back, delete. Each says what came of it."""

from __future__ import annotations

from typing import Any

from context_compactor.engine.report import Report
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.sessions.schemas import CompactBody
from context_compactor.sessions.session import Session


def _note(headline: str, *lines: str, report: Report | None = None, preview: bool = False, **more: Any) -> HtmlPage:
    values = {"headline": headline, "lines": lines, "report": report, "preview": preview}
    return HtmlPage(template="note.html", values=values, **more)


async def compact(request: PageRequest[CompactBody, NoForm]) -> HtmlPage:
    """Compact now as the form says; a preview changes nothing."""
    form = request.body
    report = await request.run_compaction(
        lambda session: session.compact(form.focus, form.level, form.dry_run, preserve=form.preserve), can_cancel=True
    )
    if form.dry_run:
        headline = "Preview: nothing was changed" if report.changed else "Preview: nothing would change"
        return _note(headline, report.reason, report=report, preview=True)
    if not report.changed:
        return _note("Nothing was compacted", report.reason, refresh=True)
    return _note(*report.short().splitlines(), report=report, refresh=True)


async def undo(request: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """Take the last compaction back."""
    report = await request.session(Session.undo)
    return _note(
        f"Taken back: {report.compaction_id}" if report else "There is no compaction to take back", refresh=True
    )


async def redo(request: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """Take the last undo back."""
    report = await request.session(Session.redo)
    return _note(f"Counts again: {report.compaction_id}" if report else "There is no undo to take back", refresh=True)


async def restore(request: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """Put an original back into the context."""
    restored = await request.session(lambda session: session.restore(request.ref))
    room = "; room was made for it" if restored.compacted else ""
    return _note(f"{restored.ref} stands in the context again: {restored.tokens:,} tokens{room}", refresh=True)


async def delete(request: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """Delete the session, and go back to the others."""
    await request.service.delete(request.store_id)
    request.caches.listing.forget(request.scope)
    return _note("The session is deleted", headers={"HX-Redirect": "/"})
