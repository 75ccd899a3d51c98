"""The first page: all sessions, to be filtered and sorted."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from context_compactor.server.dashboard.caches import MAX_SESSIONS, SessionSummary, compactions_of, filter_and_sort
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.rendering import page_path
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.sessions.log import LoggedCompaction
from context_compactor.settings import Level

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
_ORDERS: dict[str, str] = {
    _DEFAULT_SORT: "changed last",
    "-fill": "fullest first",
    "-tokens": "most tokens",
    "-messages": "most messages",
    "name": "by name",
}
_LEVELS = [("", "all levels"), ("any", "any level reached"), *((level.value, level.value) for level in Level)]


class ListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which sessions are shown, in which order."""

    q: Annotated[str, Meta(max_length=200)] = ""
    level: Literal["", "any", "soft", "aggressive", "emergency"] = ""
    sort: _Sort = _DEFAULT_SORT
    page: Annotated[int, Meta(ge=1, le=10**6)] = 1

    def filters(self) -> dict[str, object]:
        """The query of an address of the same list, without its page."""
        return {"q": self.q, "level": self.level, "sort": self.sort if self.sort != _DEFAULT_SORT else ""}

    def address(self, **other: object) -> str:
        """The address of the same list with something changed."""
        given = {**self.filters(), "page": self.page} | other
        return page_path("", **{name: value for name, value in given.items() if value not in (_DEFAULT_SORT, 1)})


class SessionListPage(Struct, frozen=True):
    """All sessions, those that were chosen, and those on the page that is shown, with their compactions by id."""

    every: list[SessionSummary]
    shown: list[SessionSummary]
    on_page: list[SessionSummary]
    compactions: dict[str, tuple[LoggedCompaction, ...]]
    page: int
    pages: int


async def sessions(request: PageRequest[NoForm, ListQuery]) -> HtmlPage:
    """All sessions of the namespace."""
    query = request.query
    found = await request.service.run(lambda: _find_sessions(request))
    counts = Counter(each.level for each in found.every)
    scheme = "https" if request.headers.get("x-forwarded-proto", "") == "https" else "http"
    values: dict[str, Any] = {
        "query": query,
        "found": found,
        "by_level": {level: counts[level] for level in Level},
        "levels": _LEVELS,
        # Where there are no headings to click on; the order of now is among them, whichever it is.
        "orders": (_ORDERS | {query.sort: _ORDERS.get(query.sort, "as it is")}).items(),
        "columns": _COLUMNS,
        "max_sessions": MAX_SESSIONS,
        "server_url": f"{scheme}://{request.headers.get('host', '127.0.0.1:8377')}",
    }
    if request.part == "sessions":
        return HtmlPage(template="sessions.html", part="sessions", values=values)
    return HtmlPage(template="sessions.html", title="Sessions", place="Sessions", values=values)


def _find_sessions(request: PageRequest[NoForm, ListQuery]) -> SessionListPage:
    """What is asked for; of a list that has become shorter, the last page there is."""
    store, query = request.service.store, request.query
    every = request.caches.listing.sessions(request.scope, store)
    shown = filter_and_sort(every, query.q, query.level, query.sort)
    pages = max(-(-len(shown) // _PAGE_SIZE), 1)
    page = min(query.page, pages)
    on_page = shown[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE]
    made = {each.id: compactions_of(each, store).compactions for each in on_page if each.view}
    return SessionListPage(every, shown, on_page, made, page, pages)
