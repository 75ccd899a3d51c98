"""The pages about compactions: the list, one report, before and after, and the plan."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Literal

from msgspec import Meta, Struct

from context_compactor.engine.report import Report
from context_compactor.errors import UnknownReference
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.server.dashboard.session import session_page
from context_compactor.server.open_sessions import SessionHandle
from context_compactor.sessions.log import LoggedCompaction
from context_compactor.sessions.views import ContextDiff, diff, report_of
from context_compactor.settings import Level

_PAGE_SIZE = 20
_MAX_CHANGES = 300


class PageNumber(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of a list."""

    page: Annotated[int, Meta(ge=1, le=10**6)] = 1


class PlanPageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """At which level."""

    level: Literal["soft", "aggressive", "emergency"] = "soft"


async def compactions(request: PageRequest[NoForm, PageNumber]) -> HtmlPage:
    """All compactions, the newest first."""

    def read(opened: SessionHandle) -> tuple[int, list[tuple[LoggedCompaction, Report]]]:
        made = opened.core.context_reader.log_state().compactions
        first = (request.query.page - 1) * _PAGE_SIZE
        return len(made), [(each, report_of(opened.core, each)) for each in made[::-1][first : first + _PAGE_SIZE]]

    total, reports = await request.with_handle(read)
    values = {"reports": reports, "pages": -(-total // _PAGE_SIZE)}
    if request.part == "compactions":
        return HtmlPage(template="compactions.html", part="compactions", values=values)
    return await session_page(request, "compactions.html", "compactions", brief=False, **values)


async def compaction(request: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """The report of one compaction."""

    def read(opened: SessionHandle) -> tuple[LoggedCompaction, Report]:
        found = _find_compaction(opened, request.ref)
        return found, report_of(opened.core, found)

    found, report = await request.with_handle(read)
    return await session_page(request, "compaction.html", "compactions", compaction=found, report=report)


def _find_compaction(opened: SessionHandle, compaction_id: str) -> LoggedCompaction:
    made = opened.core.context_reader.log_state().compactions
    found = next((each for each in made if each.note.id == compaction_id), None)
    if found is None:
        raise UnknownReference(f"this session has no compaction {compaction_id[:60]!r}")
    return found


async def changes(request: PageRequest[NoForm, NoForm]) -> HtmlPage:
    """What a compaction took away and what it wrote: neighbours that went or came are one piece."""
    shown = await request.with_handle(lambda opened: _diff_around(request, opened))
    by_kind = groupby(shown.rows[:_MAX_CHANGES], lambda row: row.change in ("removed", "added"))
    groups = [(is_replaced, list(rows)) for is_replaced, rows in by_kind]
    rest = len(shown.rows) - _MAX_CHANGES
    return await session_page(request, "changes.html", "compactions", diff=shown, groups=groups, rest=rest)


def _diff_around(request: PageRequest[NoForm, NoForm], opened: SessionHandle) -> ContextDiff:
    """Exactly around the compaction that counts; around another one from one message to the next."""
    found, last = _find_compaction(opened, request.ref), opened.core.context_reader.log_state().last
    if last is not None and last.note.id == found.note.id:
        return diff(opened.core, None, None)
    at = request.caches.token_series.weighed(opened.core).messages_at(found.position)
    return diff(opened.core, max(at - 1, 0), at)


async def plan(request: PageRequest[NoForm, PlanPageQuery]) -> HtmlPage:
    """The turns by tier, with reasons: the page first, the plan when it is ready."""
    if request.part != "plan":
        return await session_page(request, "plan.html", "plan")
    level = request.query.level
    report = await request.run_compaction(lambda session: session.compact(level=level, dry_run=True))
    levels = [(each.value, each.value) for each in Level]
    return HtmlPage(template="planned.html", values={"report": report, "levels": levels})
