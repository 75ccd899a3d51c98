"""What the buttons do: compact or preview, undo, redo, put an original back, delete. Each says what came of it."""

from __future__ import annotations

from context_compactor.api import CompactBody
from context_compactor.markup import Markup, element, join
from context_compactor.report import Report
from context_compactor.server.dashboard.pieces import text
from context_compactor.server.dashboard.reports import outcome, targets
from context_compactor.server.dashboard.sending import Page
from context_compactor.server.dashboard.visit import NoForm, Visit
from context_compactor.server.dashboard.words import path
from context_compactor.session.session import Session


async def compact(visit: Visit[CompactBody, NoForm]) -> Page:
    """Compact now as the form says; a preview changes nothing."""
    form = visit.body
    report = await visit.beside(
        lambda session: session.compact(form.focus, form.level, form.dry_run, preserve=form.preserve), can_cancel=True
    )
    return Page(body=_compacted(visit, report), tell=not form.dry_run)


def _compacted(visit: Visit[CompactBody, NoForm], report: Report) -> Markup:
    if visit.body.dry_run:
        title = "Preview: nothing was changed" if report.changed else "Preview: nothing would change"
        return join((_note(title, report.reason), outcome(report), targets(report, visit.id)))
    if not report.changed:
        return _note("Nothing was compacted", report.reason)
    first, *rest = report.short().splitlines()
    link = element("a", "Report", href=path("sessions", visit.id, "compactions", report.compaction_id))
    return join((_note(first, *rest, more=link), outcome(report)))


def _note(title: str, *lines: str, more: str = "") -> Markup:
    told = (element("p", text(line)) for line in lines if line)
    return element("div", element("strong", title), *told, more, class_="note")


async def undo(visit: Visit[NoForm, NoForm]) -> Page:
    """Take the last compaction back."""
    report = await visit.session(Session.undo)
    return _turned(report, "Taken back", "There is no compaction to take back")


async def redo(visit: Visit[NoForm, NoForm]) -> Page:
    """Take the last undo back."""
    return _turned(await visit.session(Session.redo), "Counts again", "There is no undo to take back")


def _turned(report: Report | None, done: str, not_done: str) -> Page:
    return Page(body=_note(f"{done}: {report.compaction_id}" if report else not_done), tell=True)


async def restore(visit: Visit[NoForm, NoForm]) -> Page:
    """Put an original back into the context."""
    restored = await visit.session(lambda session: session.restore(visit.ref))
    room = "; room was made for it" if restored.compacted else ""
    told = f"{restored.ref} stands in the context again: {restored.tokens:,} tokens{room}"
    return Page(body=_note(told), tell=True)


async def delete(visit: Visit[NoForm, NoForm]) -> Page:
    """Delete the session, and go back to the others."""
    await visit.service.delete(visit.store_id)
    visit.kept.listing.forget(visit.scope)
    return Page(body=_note("The session is deleted"), headers={"HX-Redirect": path()})
