"""What a compaction would do now, and why, without doing it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from context_compactor.levels import Level
from context_compactor.markup import Markup, element
from context_compactor.server.dashboard import session as session_page
from context_compactor.server.dashboard.pieces import card, choice
from context_compactor.server.dashboard.reports import outcome, targets
from context_compactor.server.dashboard.sending import Page
from context_compactor.server.dashboard.visit import NoForm, Visit
from context_compactor.server.dashboard.words import path


class PlanQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """At which level."""

    level: Literal["soft", "aggressive", "emergency"] = "soft"


async def plan(visit: Visit[NoForm, PlanQuery]) -> Page:
    """The turns by tier, with reasons: the page first, the plan when it is ready."""
    if visit.part == "plan":
        return Page(body=await _planned(visit))
    place = path("sessions", visit.id, "plan", level=visit.query.level)
    waiting = element(
        "div",
        element("p", "Planning…", class_="faint waiting"),
        id="plan",
        hx_get=place,
        hx_trigger="load",
        hx_target="this",
        hx_swap="outerHTML",
    )
    return await session_page.around(visit, "plan", waiting)


async def _planned(visit: Visit[NoForm, PlanQuery]) -> Markup:
    level = visit.query.level
    report = await visit.beside(lambda session: session.compact(level=level, dry_run=True))
    form = element(
        "form",
        choice("level", "If compacted now at", [(each.value, each.value) for each in Level], level),
        element("button", "Plan", class_="quiet"),
        method="get",
        action=path("sessions", visit.id, "plan"),
        class_="filter",
    )
    return element(
        "div", card("Plan", outcome(report), more=form), targets(report, visit.id), id="plan", class_="stack"
    )
