"""One session: how full it is, with what, how it went, and what can be done about it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, structs

from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard.dialog import compact_dialog, delete_dialog
from context_compactor.server.dashboard.pieces import card
from context_compactor.server.dashboard.sending import Page
from context_compactor.server.dashboard.standing import standing_of, standing_part
from context_compactor.server.dashboard.visit import NoForm, Visit
from context_compactor.server.dashboard.words import path
from context_compactor.server.open_sessions import Opened
from context_compactor.session.saw import saw_of
from context_compactor.session.views import usage

TABS = (("compactions", "Compactions"), ("plan", "Plan"), ("archive", "Archive"), ("facts", "Facts"))


class NowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How much is told above the pages of a session: on the first of them all, elsewhere what is needed beside it."""

    brief: bool = True


async def around(visit: Visit[Any, Any], tab: str, content: Markup, *, brief: bool = True) -> Page:
    """A page of a session: what is above all of its pages, and then `content`."""
    standing = await visit.opened(standing_of)
    body = join(
        (
            element("p", element("a", "← Sessions", href="/"), class_="way"),
            standing_part(visit, standing, brief=brief),
            element("div", id="answer", role="status", aria_live="polite"),
            _tabs(visit, tab),
            element("div", content, class_="stack", id="tab"),
            compact_dialog(visit.id, standing.levels) if visit.may_write else "",
            delete_dialog(visit.id, standing.messages) if visit.may_write else "",
        )
    )
    return Page(title=visit.id, place="Sessions", body=body)


async def now(visit: Visit[NoForm, NowQuery]) -> Page:
    """How the session stands: the part of its pages that changes."""
    return Page(body=standing_part(visit, await visit.opened(standing_of), brief=visit.query.brief))


async def series(visit: Visit[NoForm, NoForm]) -> dict[str, object]:
    """The points of the saw-tooth, at most some hundreds of them."""

    def look(opened: Opened) -> dict[str, object]:
        saw = saw_of(visit.kept.saws.weighed(opened.core))
        measured = usage(opened.core)
        return {
            "messages": [point[0] for point in saw.points],
            "tokens": [point[1] for point in saw.points],
            "teeth": [structs.asdict(tooth) for tooth in saw.teeth],
            "budget": measured.budget_tokens,
            "levels": msgspec.to_builtins(opened.core.settings.levels),
        }

    return await visit.opened(look)


def chart(visit: Visit[Any, Any]) -> Markup:
    """The saw-tooth, drawn when its numbers have come."""
    plot = element(
        "div",
        element("p", "Drawing…", class_="faint waiting"),
        class_="chart saw",
        data_chart="saw",
        data_from=path("sessions", visit.id, "series.json"),
        data_to=path("sessions", visit.id, "compactions"),
        role="img",
        aria_label="Tokens over messages, with compactions marked; the list of compactions has the same in numbers.",
    )
    return card("Tokens over messages", plot)


def _tabs(visit: Visit[Any, Any], tab: str) -> Markup:
    links = (
        element(
            "li",
            element("a", words, href=path("sessions", visit.id, name), aria_current="page" if name == tab else None),
        )
        for name, words in TABS
    )
    return element("nav", element("ul", *links), class_="tabs", aria_label="Parts of the session")
