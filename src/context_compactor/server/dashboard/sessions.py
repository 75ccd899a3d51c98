"""The first page: all sessions, to be filtered and sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard.caches import MAX_SESSIONS, SessionSummary, compactions_of, filter_and_sort
from context_compactor.server.dashboard.components import (
    LEVEL_SIGNS,
    badge,
    bounded_text,
    empty_state,
    gauge_bar,
    level_class,
    live_attributes,
    page_path,
    pager,
    select_field,
    sparkline,
    time_ago,
)
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.sessions.log import LogState
from context_compactor.sessions.token_series import compaction_corners
from context_compactor.settings import Level
from context_compactor.text import format_count, percent, plural, short_count


def session_row(visit: PageRequest[Any, Any], listed: SessionSummary, log_state: LogState | None) -> Markup:
    """How full a session is, what was saved in it, and how it went."""
    name = element(
        "a", bounded_text(listed.id, 200), href=page_path("sessions", listed.id), class_="name", title=listed.id
    )
    window = f" · {short_count(listed.window)} window" if listed.window else ""
    cells = {
        "Session": join((name, element("span", bounded_text(listed.model, 60), window, class_="faint under"))),
        "Fill": element(
            "div",
            gauge_bar(listed.share, listed.levels),
            element("span", percent(listed.share), class_="share"),
            badge(listed.level),
            class_="fill-cell",
        ),
        "Tokens": format_count(listed.tokens),
        "Messages": format_count(listed.messages),
        "Saved": _saved(visit, log_state),
        "Course": _trend(listed, log_state),
        "Last change": time_ago(listed.updated_at, visit.now),
    }
    return element(
        "tr", *(element("td", cell, data_name=name) for name, cell in cells.items()), class_=level_class(listed.level)
    )


def _saved(visit: PageRequest[Any, Any], log_state: LogState | None) -> Markup:
    if log_state is None or not log_state.compactions:
        return element("span", "nothing yet", class_="faint")
    made = [each.note for each in log_state.compactions if each.is_active]
    saved = sum(note.tokens_before - note.tokens_after for note in made)
    undone = len(log_state.compactions) - len(made)
    told = plural(len(made), "compaction") + (f", {undone:,} undone" if undone else "")
    last = time_ago(log_state.compactions[-1].created_at, visit.now)
    return element("span", f"{short_count(saved)} tokens", element("span", f"{told} · ", last, class_="faint under"))


def _trend(listed: SessionSummary, log_state: LogState | None) -> Markup:
    """Nothing is known of the way to here before the first compaction, so nothing is drawn."""
    made = [(each.position, each.note) for each in (log_state.compactions if log_state else ()) if each.is_active]
    if not made:
        return Markup()
    return sparkline(compaction_corners(made, listed.head, listed.tokens), f"{plural(len(made), 'compaction')} so far")


def no_sessions(visit: PageRequest[Any, Any]) -> Markup:
    """How to begin, for whoever may."""
    words = "The first one appears here by itself, as soon as an agent begins one"
    if not visit.may_write:
        return empty_state("No session yet.", f"{words}.")
    scheme = "https" if visit.headers.get("x-forwarded-proto", "") == "https" else "http"
    host = visit.headers.get("host", "127.0.0.1:8377")
    token = ', token="cct_…"' if visit.service.authenticator.requires_token else ""
    code = (
        "from context_compactor.client import Client\n\n"
        f'with Client("{scheme}://{host}"{token}) as client:\n'
        '    client.create("run-42", window=200_000)\n'
        '    client.append("run-42", {"role": "user", "content": "Hello"})'
    )
    return element(
        "div",
        element("p", "No session yet.", class_="title"),
        element("p", f"{words}:"),
        element("pre", code, tabindex=0),
        class_="empty",
    )


_PAGE_SIZE = 25
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

_DEFAULT_SORT: _Sort = "-updated"
_ORDERS = (
    (_DEFAULT_SORT, "changed last"),
    ("-fill", "fullest first"),
    ("-tokens", "most tokens"),
    ("-messages", "most messages"),
    ("name", "by name"),
)
_INTRODUCTION = (
    "Each bar is the context of one agent. When it reaches a mark, older turns are shortened and their originals go "
    "to the archive: the agent never runs out of room, and nothing is lost."
)


class ListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which sessions are shown, in which order."""

    q: Annotated[str, Meta(max_length=200)] = ""
    level: Literal["", "any", "soft", "aggressive", "emergency"] = ""
    sort: _Sort = _DEFAULT_SORT
    page: Annotated[int, Meta(ge=1, le=10**6)] = 1

    def address(self, **other: object) -> str:
        """The address of the same list with something changed."""
        asked = {"q": self.q, "level": self.level, "sort": self.sort, "page": self.page} | other
        return page_path("", **{name: value for name, value in asked.items() if value not in ("", _DEFAULT_SORT, 1)})


class SessionListPage(Struct, frozen=True):
    """All sessions, those that were chosen, and those on the page that is shown."""

    every: list[SessionSummary]
    shown: list[SessionSummary]
    on_page: list[SessionSummary]
    sights: dict[str, LogState]
    page: int
    pages: int


async def sessions(visit: PageRequest[NoForm, ListQuery]) -> HtmlPage:
    """All sessions of the namespace."""
    found = await visit.service.run(lambda: _find_sessions(visit))
    body = element(
        "div",
        _summary(found.every),
        _session_table(visit, found),
        class_="stack",
        **live_attributes("sessions", visit.query.address()),
    )
    if visit.part == "sessions":
        return HtmlPage(body=body)
    heading = element("div", element("h1", "Sessions"), _filter(visit.query), class_="title-row")
    lead = element("p", _INTRODUCTION, class_="lead")
    return HtmlPage(title="Sessions", place="Sessions", body=join((heading, lead, body)))


def _find_sessions(visit: PageRequest[NoForm, ListQuery]) -> SessionListPage:
    """What is asked for; of a list that has become shorter, the last page there is."""
    store, query = visit.service.store, visit.query
    every = visit.kept.listing.sessions(visit.scope, store)
    shown = filter_and_sort(every, query.q, query.level, query.sort)
    pages = max(-(-len(shown) // _PAGE_SIZE), 1)
    page = min(query.page, pages)
    on_page = shown[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE]
    sights = {each.id: compactions_of(each, store) for each in on_page if each.view}
    return SessionListPage(every, shown, on_page, sights, page, pages)


def _summary(every: Sequence[SessionSummary]) -> Markup:
    levels = Counter(each.level for each in every)
    cells = [element("li", element("b", format_count(len(every))), " sessions" if len(every) != 1 else " session")]
    for level in (*Level,):
        sign = element("span", LEVEL_SIGNS[level], aria_hidden="true")
        cells.append(
            element(
                "li",
                sign,
                " ",
                element("b", format_count(levels[level])),
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
        select_field("level", "Level", levels, query.level),
        element("div", select_field("sort", "Order", _orders(query.sort), query.sort), class_="narrow"),
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


def _session_table(visit: PageRequest[NoForm, ListQuery], found: SessionListPage) -> Markup:
    query = visit.query
    if not found.every:
        return no_sessions(visit)
    if not found.shown:
        return empty_state("No session fits.", "Try fewer letters, or all levels.")
    table = element(
        "table",
        element("caption", f"{plural(len(found.shown), 'session')}", class_="unseen"),
        element("thead", element("tr", *(_heading(query, *column) for column in _COLUMNS))),
        element("tbody", *(session_row(visit, each, found.sights.get(each.id)) for each in found.on_page)),
        class_="grid sessions",
    )
    known = {"q": query.q, "level": query.level, "sort": query.sort if query.sort != _DEFAULT_SORT else ""}
    more = (
        element("p", f"Only the first {MAX_SESSIONS:,} sessions by name are looked at.", class_="faint")
        if len(found.every) >= MAX_SESSIONS
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
