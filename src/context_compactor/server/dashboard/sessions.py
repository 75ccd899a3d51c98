"""The first page: all sessions, how full each is, and what was done about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from context_compactor.levels import Level
from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard.drawings import SIGNS, badge, gauge, level_class, spark
from context_compactor.server.dashboard.listing import MOST, Listed, chosen
from context_compactor.server.dashboard.pieces import choice, empty, live, pager, text
from context_compactor.server.dashboard.saw import skeleton
from context_compactor.server.dashboard.sending import Page
from context_compactor.server.dashboard.visit import NoForm, Visit
from context_compactor.server.dashboard.words import count, path, percent, plural, short_count, when
from context_compactor.session.lens import Lens
from context_compactor.session.log import Sight

_ON_A_PAGE = 25
_COLUMNS = (
    ("Session", "name"),
    ("Fill", "-fill"),
    ("Tokens", "-tokens"),
    ("Messages", "-messages"),
    ("Last compaction", ""),
    ("Course", ""),
    ("Last change", "-updated"),
)
_Sort = Literal["name", "-name", "fill", "-fill", "tokens", "-tokens", "messages", "-messages", "updated", "-updated"]

_USUAL: _Sort = "-updated"


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


async def sessions(visit: Visit[NoForm, ListQuery]) -> Page:
    """All sessions of the namespace."""
    every, shown, sights = await visit.service.run(lambda: _look(visit))
    body = element(
        "div",
        _summary(every),
        _list(visit, every, shown, sights),
        class_="stack",
        **live("sessions", visit.query.address()),
    )
    if visit.part == "sessions":
        return Page(body=body)
    heading = element("div", element("h1", "Sessions"), _filter(visit.query), class_="title-row")
    return Page(title="Sessions", place="Sessions", body=join((heading, body)))


def _look(visit: Visit[NoForm, ListQuery]) -> tuple[list[Listed], list[Listed], dict[str, Sight]]:
    store, query = visit.service.store, visit.query
    every = visit.kept.listing.sessions(visit.scope, store)
    shown = chosen(every, query.q, query.level, query.sort)
    first = (query.page - 1) * _ON_A_PAGE
    on_page = shown[first : first + _ON_A_PAGE]
    return every, shown, {each.id: Lens(store, each.store_id).sight() for each in on_page if each.view}


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
        element("input", type="hidden", name="sort", value=query.sort),
        element("button", "Show", class_="quiet"),
        class_="filter",
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


def _list(
    visit: Visit[NoForm, ListQuery], every: Sequence[Listed], shown: Sequence[Listed], sights: dict[str, Sight]
) -> Markup:
    query = visit.query
    if not every:
        return _nothing_yet(visit)
    if not shown:
        return empty("No session fits.", "Try fewer letters, or all levels.")
    first = (query.page - 1) * _ON_A_PAGE
    rows = [_row(visit, each, sights.get(each.id)) for each in shown[first : first + _ON_A_PAGE]]
    pages = -(-len(shown) // _ON_A_PAGE)
    table = element(
        "table",
        element("caption", f"{plural(len(shown), 'session')}", class_="unseen"),
        element("thead", element("tr", *(_heading(query, *column) for column in _COLUMNS))),
        element("tbody", *rows),
        class_="grid sessions",
    )
    known = {"q": query.q, "level": query.level, "sort": query.sort if query.sort != _USUAL else ""}
    more = (
        element("p", f"Only the first {MOST:,} sessions by name are looked at.", class_="faint")
        if len(every) >= MOST
        else ""
    )
    return join((element("div", table, class_="card flush"), pager([""], query.page, pages, **known), more))


def _nothing_yet(visit: Visit[NoForm, ListQuery]) -> Markup:
    host = visit.headers.get("host", "127.0.0.1:8377")
    code = (
        "from context_compactor.client import Client\n\n"
        f'with Client("http://{host}") as client:\n'
        '    client.create("run-42", window=200_000)\n'
        '    client.append("run-42", {"role": "user", "content": "Hello"})'
    )
    return element(
        "div",
        element("p", "No session yet.", class_="title"),
        element("p", "The first one appears here by itself, as soon as an agent appends a message:"),
        element("pre", code, tabindex=0),
        class_="empty",
    )


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


def _row(visit: Visit[NoForm, ListQuery], listed: Listed, sight: Sight | None) -> Markup:
    made = sight.compactions if sight else ()
    name = element("a", text(listed.id, 120), href=path("sessions", listed.id), class_="name")
    window = f" · {short_count(listed.window)} window" if listed.window else ""
    cells = {
        "Session": join((name, element("span", text(listed.model, 60), window, class_="faint under"))),
        "Fill": element(
            "div",
            gauge(listed.share, listed.levels),
            element("span", percent(listed.share), class_="share"),
            badge(listed.level),
            class_="fill-cell",
        ),
        "Tokens": count(listed.tokens),
        "Messages": count(listed.messages),
        "Last compaction": _last(visit, sight),
        "Course": spark(
            skeleton([(each.position, each.note) for each in made if each.is_active], listed.head, listed.tokens),
            f"{plural(len(made), 'compaction')} so far",
        ),
        "Last change": when(listed.updated_at, visit.now),
    }
    return element(
        "tr", *(element("td", cell, data_name=name) for name, cell in cells.items()), class_=level_class(listed.level)
    )


def _last(visit: Visit[NoForm, ListQuery], sight: Sight | None) -> Markup:
    if sight is None or not sight.compactions:
        return element("span", "none yet", class_="faint")
    last = sight.compactions[-1]
    saved = last.note.tokens_before - last.note.tokens_after
    told = f"−{short_count(saved)}" if last.is_active else "undone"
    return element(
        "span",
        when(last.created_at, visit.now),
        element("span", f"{told} · {plural(len(sight.compactions), 'compaction')}", class_="faint under"),
    )
