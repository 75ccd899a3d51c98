"""The first page: all sessions, how full each is, and what was done about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from context_compactor.figures import count, plural
from context_compactor.levels import Level
from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard.drawings import SIGNS, level_class
from context_compactor.server.dashboard.listing import MOST, Listed, chosen, sight_of
from context_compactor.server.dashboard.pieces import choice, empty, live, pager
from context_compactor.server.dashboard.sending import Page
from context_compactor.server.dashboard.session_row import nothing_yet, session_row
from context_compactor.server.dashboard.visit import NoForm, Visit
from context_compactor.server.dashboard.words import path
from context_compactor.session.log import Sight

_ON_A_PAGE = 25
_COLUMNS = (
    ("Session", "name"),
    ("Fill", "-fill"),
    ("Tokens", "-tokens"),
    ("Messages", "-messages"),
    ("Saved", ""),
    ("Course", ""),
    ("Last change", "-updated"),
)
_Sort = Literal["name", "-name", "fill", "-fill", "tokens", "-tokens", "messages", "-messages", "updated", "-updated"]

_USUAL: _Sort = "-updated"
_ORDERS = (
    (_USUAL, "changed last"),
    ("-fill", "fullest first"),
    ("-tokens", "most tokens"),
    ("-messages", "most messages"),
    ("name", "by name"),
)
_LEAD = (
    "Each bar is the context of one agent. When it reaches a mark, older turns are shortened and their originals go "
    "to the archive: the agent never runs out of room, and nothing is lost."
)


class ListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which sessions are shown, in which order."""

    q: Annotated[str, Meta(max_length=200)] = ""
    level: Literal["", "any", "soft", "aggressive", "emergency"] = ""
    sort: _Sort = _USUAL
    page: Annotated[int, Meta(ge=1, le=10**6)] = 1

    def address(self, **other: object) -> str:
        """The address of the same list with something changed."""
        asked = {"q": self.q, "level": self.level, "sort": self.sort, "page": self.page} | other
        return path("", **{name: value for name, value in asked.items() if value not in ("", _USUAL, 1)})


class Found(Struct, frozen=True):
    """All sessions, those that were chosen, and those on the page that is shown."""

    every: list[Listed]
    shown: list[Listed]
    on_page: list[Listed]
    sights: dict[str, Sight]
    page: int
    pages: int


async def sessions(visit: Visit[NoForm, ListQuery]) -> Page:
    """All sessions of the namespace."""
    found = await visit.service.run(lambda: _look(visit))
    body = element(
        "div",
        _summary(found.every),
        _list(visit, found),
        class_="stack",
        **live("sessions", visit.query.address()),
    )
    if visit.part == "sessions":
        return Page(body=body)
    heading = element("div", element("h1", "Sessions"), _filter(visit.query), class_="title-row")
    lead = element("p", _LEAD, class_="lead")
    return Page(title="Sessions", place="Sessions", body=join((heading, lead, body)))


def _look(visit: Visit[NoForm, ListQuery]) -> Found:
    """What is asked for; of a list that has become shorter, the last page there is."""
    store, query = visit.service.store, visit.query
    every = visit.kept.listing.sessions(visit.scope, store)
    shown = chosen(every, query.q, query.level, query.sort)
    pages = max(-(-len(shown) // _ON_A_PAGE), 1)
    page = min(query.page, pages)
    on_page = shown[(page - 1) * _ON_A_PAGE : page * _ON_A_PAGE]
    sights = {each.id: sight_of(each, store) for each in on_page if each.view}
    return Found(every, shown, on_page, sights, page, pages)


def _summary(every: Sequence[Listed]) -> Markup:
    levels = Counter(each.level for each in every)
    cells = [element("li", element("b", count(len(every))), " sessions" if len(every) != 1 else " session")]
    for level in (*Level,):
        sign = element("span", SIGNS[level], aria_hidden="true")
        cells.append(
            element(
                "li",
                sign,
                " ",
                element("b", count(levels[level])),
                f" {level}",
                class_=level_class(level if levels[level] else None),
            )
        )
    return element("ul", *cells, class_="summary", aria_label="Sessions by level")


def _filter(query: ListQuery) -> Markup:
    levels = [("", "all levels"), ("any", "any level reached"), *((level.value, level.value) for level in Level)]
    words = element(
        "label",
        element("span", "Filter"),
        element("input", type="search", name="q", value=query.q, placeholder="name or model", maxlength=200),
    )
    return element(
        "form",
        words,
        choice("level", "Level", levels, query.level),
        element("div", choice("sort", "Order", _orders(query.sort), query.sort), class_="narrow"),
        element("button", "Show", class_="quiet"),
        class_="filter by-itself",
        role="search",
        method="get",
        action="/",
        hx_get="/",
        hx_trigger="submit, input delay:250ms, change",
        hx_target="#sessions",
        hx_swap="outerMorph",
        hx_sync="replace",
        data_address="/",
    )


def _orders(now: str) -> list[tuple[str, str]]:
    """Where there are no headings to click on; the order of now is among them, whichever it is."""
    known = dict(_ORDERS)
    return [*known.items(), *(() if now in known else ((now, "as it is"),))]


def _list(visit: Visit[NoForm, ListQuery], found: Found) -> Markup:
    query = visit.query
    if not found.every:
        return nothing_yet(visit)
    if not found.shown:
        return empty("No session fits.", "Try fewer letters, or all levels.")
    table = element(
        "table",
        element("caption", f"{plural(len(found.shown), 'session')}", class_="unseen"),
        element("thead", element("tr", *(_heading(query, *column) for column in _COLUMNS))),
        element("tbody", *(session_row(visit, each, found.sights.get(each.id)) for each in found.on_page)),
        class_="grid sessions",
    )
    known = {"q": query.q, "level": query.level, "sort": query.sort if query.sort != _USUAL else ""}
    more = (
        element("p", f"Only the first {MOST:,} sessions by name are looked at.", class_="faint")
        if len(found.every) >= MOST
        else ""
    )
    return join((element("div", table, class_="card flush"), pager([""], found.page, found.pages, **known), more))


def _heading(query: ListQuery, name: str, sort: str) -> Markup:
    if not sort:
        return element("th", name, scope="col")
    is_this = query.sort.lstrip("-") == sort.lstrip("-")
    is_down = query.sort.startswith("-")
    following = query.sort.lstrip("-") if is_down else f"-{query.sort}"
    mark = element("span", ("↓" if is_down else "↑") if is_this else "", aria_hidden="true", class_="mark-sort")
    link = element("a", name, mark, href=query.address(sort=following if is_this else sort, page=1))
    order = ("descending" if is_down else "ascending") if is_this else None
    return element("th", link, scope="col", aria_sort=order)
