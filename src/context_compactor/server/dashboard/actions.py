"""What the buttons do: compact or preview, undo, redo, put an original back, delete. Each says what came of it."""

from __future__ import annotations

from context_compactor.engine.report import Report
from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard.compactions import report_numbers, target_table
from context_compactor.server.dashboard.components import bounded_text, page_path
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.sessions.api import CompactBody
from context_compactor.sessions.session import Session


async def compact(visit: PageRequest[CompactBody, NoForm]) -> HtmlPage:
    """Compact now as the form says; a preview changes nothing."""
    form = visit.body
    report = await visit.run_compaction(
        lambda session: session.compact(form.focus, form.level, form.dry_run, preserve=form.preserve), can_cancel=True
    )
    return HtmlPage(body=_compact_note(visit, report), tell=not form.dry_run)


def _compact_note(visit: PageRequest[CompactBody, NoForm], report: Report) -> Markup:
    if visit.body.dry_run:
        title = "Preview: nothing was changed" if report.changed else "Preview: nothing would change"
        return join((_note(title, report.reason), report_numbers(report), target_table(report, visit.id)))
    if not report.changed:
        return _note("Nothing was compacted", report.reason)
    first, *rest = report.short().splitlines()
    link = element("a", "Report", href=page_path("sessions", visit.id, "compactions", report.compaction_id))
    return join((_note(first, *rest, more=link), report_numbers(report)))


def _note(title: str, *lines: str, more: str = "") -> Markup:
    told = (element("p", bounded_text(line)) for line in lines if line)
    return element("div", element("strong", title), *told, more, class_="note")


async def undo(visit: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """Take the last compaction back."""
    report = await visit.session(Session.undo)
    return _undo_note(report, "Taken back", "There is no compaction to take back")


async def redo(visit: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """Take the last undo back."""
    return _undo_note(await visit.session(Session.redo), "Counts again", "There is no undo to take back")


def _undo_note(report: Report | None, done: str, not_done: str) -> HtmlPage:
    return HtmlPage(body=_note(f"{done}: {report.compaction_id}" if report else not_done), tell=True)


async def restore(visit: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """Put an original back into the context."""
    restored = await visit.session(lambda session: session.restore(visit.ref))
    room = "; room was made for it" if restored.compacted else ""
    told = f"{restored.ref} stands in the context again: {restored.tokens:,} tokens{room}"
    return HtmlPage(body=_note(told), tell=True)


async def delete(visit: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """Delete the session, and go back to the others."""
    await visit.service.delete(visit.store_id)
    visit.kept.listing.forget(visit.scope)
    return HtmlPage(body=_note("The session is deleted"), headers={"HX-Redirect": page_path()})
