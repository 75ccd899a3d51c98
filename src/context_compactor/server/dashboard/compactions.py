"""The compactions of a session: a list, the report of each, and the context before and after it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from context_compactor.errors import UnknownReference
from context_compactor.figures import count, percent
from context_compactor.markup import Markup, element, join
from context_compactor.report import Report
from context_compactor.server.dashboard import session as session_page
from context_compactor.server.dashboard.pieces import card, empty, grid, live, pager, text
from context_compactor.server.dashboard.reports import outcome, targets
from context_compactor.server.dashboard.sending import Page
from context_compactor.server.dashboard.visit import NoForm, Visit
from context_compactor.server.dashboard.words import path, when
from context_compactor.server.open_sessions import Opened
from context_compactor.session.log import Compacted
from context_compactor.session.views import report_of

_ON_A_PAGE = 20


class PageNumber(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of a list."""

    page: Annotated[int, Meta(ge=1, le=10**6)] = 1


async def compactions(visit: Visit[NoForm, PageNumber]) -> Page:
    """All compactions, the newest first."""
    made, reports = await visit.opened(lambda opened: _some(opened, visit.query.page))
    content = element(
        "div",
        _list(visit, made, reports),
        **live("compactions", path("sessions", visit.id, "compactions", page=visit.query.page)),
    )
    if visit.part == "compactions":
        return Page(body=content)
    chart = session_page.chart(visit)
    return await session_page.around(visit, "compactions", join((chart, content)), brief=False)


def _some(opened: Opened, page: int) -> tuple[tuple[Compacted, ...], list[tuple[Compacted, Report]]]:
    made = opened.core.lens.sight().compactions
    first = (page - 1) * _ON_A_PAGE
    return made, [(each, report_of(opened.core, each)) for each in made[::-1][first : first + _ON_A_PAGE]]


def _list(
    visit: Visit[NoForm, PageNumber], made: tuple[Compacted, ...], reports: list[tuple[Compacted, Report]]
) -> Markup:
    if not made:
        return empty(
            "Nothing was compacted yet.",
            "It happens by itself when a level is reached, or with Compact now; Plan shows what it would do.",
        )
    rows = [_row(visit, compacted, report) for compacted, report in reports]
    names = ("Compaction", "When", "Why", "Tokens", "Saved", "Readable", "Reachable", "Failures kept")
    pages = -(-len(made) // _ON_A_PAGE)
    table = element("div", grid("Compactions, the newest first", names, rows, "compactions"), class_="card flush")
    return join((table, pager(["sessions", visit.id, "compactions"], visit.query.page, pages)))


def _row(visit: Visit[NoForm, PageNumber], compacted: Compacted, report: Report) -> tuple[str, ...]:
    link = element(
        "a", compacted.note.id, href=path("sessions", visit.id, "compactions", compacted.note.id), class_="ref"
    )
    undone = Markup() if compacted.is_active else element("span", "undone", class_="tag")
    checked = report.fidelity.checked or 1
    return (
        join((link, " ", undone)),
        when(compacted.created_at, visit.now),
        " · ".join(filter(None, (report.trigger, report.level))),
        f"{report.tokens_before:,} → {report.tokens_after:,}",
        f"{count(report.tokens_saved)} ({report.reduction_percent:.0f} %)",
        percent(report.fidelity.retained / checked if report.fidelity.checked else None),
        percent((report.fidelity.retained + report.fidelity.reachable) / checked if report.fidelity.checked else None),
        percent(report.metrics.failures_share),
    )


async def compaction(visit: Visit[NoForm, NoForm]) -> Page:
    """The report of one compaction."""
    compacted, report = await visit.opened(lambda opened: _one(opened, visit.ref))
    changes = path("sessions", visit.id, "compactions", visit.ref, "changes")
    state = "" if compacted.is_active else " · undone"
    told = element(
        "p", when(compacted.created_at, visit.now), f" · {report.trigger} {report.level or ''}{state}", class_="faint"
    )
    content = join(
        (
            card(
                compacted.note.id,
                told,
                outcome(report),
                _told_by(report),
                more=element("a", "Before and after", href=changes),
            ),
            targets(report, visit.id),
        )
    )
    return await session_page.around(visit, "compactions", content)


def _told_by(report: Report) -> Markup:
    lines = [
        each for each in (report.reason, f"The story was told by {report.told_by}." if report.told_by else "") if each
    ]
    missing = [f"Missing: {each.kind} {each.value}" for each in report.fidelity.missing[:20]]
    return join(element("p", text(line)) for line in [*lines, *missing])


def _one(opened: Opened, compaction_id: str) -> tuple[Compacted, Report]:
    compacted = find(opened, compaction_id)
    return compacted, report_of(opened.core, compacted)


def find(opened: Opened, compaction_id: str) -> Compacted:
    """The compaction with this id."""
    made = opened.core.lens.sight().compactions
    found = next((each for each in made if each.note.id == compaction_id), None)
    if found is None:
        raise UnknownReference(f"this session has no compaction {compaction_id[:60]!r}")
    return found
