"""The archive of a session: what is in it, what answers a question, and every original page by page."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from context_compactor.archive.search.hits import Hit
from context_compactor.figures import count, plural
from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard import session as session_page
from context_compactor.server.dashboard.pieces import card, empty, grid, pager, text
from context_compactor.server.dashboard.sending import Page
from context_compactor.server.dashboard.visit import NoForm, Visit
from context_compactor.server.dashboard.words import path, when
from context_compactor.server.open_sessions import Opened
from context_compactor.session import recall as recalled
from context_compactor.session.recall import Page as RecalledPage
from context_compactor.store.rows import Shelved

_ON_A_PAGE = 50
_HITS = 10
_SEARCH_TOKENS = 4_000
_HIT_TEXT = 3_000


class ArchiveQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What is searched for, or which page of all originals is shown."""

    q: Annotated[str, Meta(max_length=500)] = ""
    page: Annotated[int, Meta(ge=1, le=10**6)] = 1


class RecallQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of an original."""

    page: Annotated[int, Meta(ge=1, le=10**6)] = 1


async def archive(visit: Visit[NoForm, ArchiveQuery]) -> Page:
    """A search over all originals, or the list of them."""
    found = await _found(visit) if visit.query.q.strip() else await visit.opened(lambda opened: _list(visit, opened))
    content = element("div", found, id="found", class_="stack")
    if visit.part == "found":
        return Page(body=content)
    return await session_page.around(visit, "archive", join((_search(visit), content)))


def _search(visit: Visit[NoForm, ArchiveQuery]) -> Markup:
    here = path("sessions", visit.id, "archive")
    field = element(
        "label",
        element("span", "Search the archive"),
        element(
            "input",
            type="search",
            name="q",
            value=visit.query.q,
            maxlength=500,
            placeholder="a question, a name, an error",
        ),
    )
    return element(
        "form",
        field,
        element("button", "Search"),
        class_="filter wide",
        role="search",
        method="get",
        action=here,
        hx_get=here,
        hx_target="#found",
        hx_swap="outerHTML",
        data_address=here,
    )


async def _found(visit: Visit[NoForm, ArchiveQuery]) -> Markup:
    words = visit.query.q
    hits = await visit.session(lambda session: session.search(words, limit=_HITS, tokens=_SEARCH_TOKENS))
    if not hits:
        return empty(
            "Nothing in the archive answers that.", "Try other words. Only what has left the context is searched."
        )
    title = element("p", f"{plural(len(hits), 'hit')}, the best first", class_="faint", role="status")
    return join((title, *(_hit(visit, hit) for hit in hits)))


def _hit(visit: Visit[NoForm, ArchiveQuery], hit: Hit) -> Markup:
    link = element("a", hit.id, href=path("sessions", visit.id, "archive", hit.id), class_="ref")
    where = f"{hit.kind} · lines {hit.first_line:,}–{hit.last_line:,}"
    return element(
        "article",
        element("div", link, element("span", where, class_="faint"), class_="head"),
        element("pre", text(hit.text, _HIT_TEXT), tabindex=0),
        class_="card",
    )


def _list(visit: Visit[NoForm, ArchiveQuery], opened: Opened) -> Markup:
    every = opened.core.store.originals(opened.id)
    if not every:
        return empty("The archive is empty.", "Whatever leaves the context is put here first, byte for byte.")
    first = (visit.query.page - 1) * _ON_A_PAGE
    rows = [_row(visit, each) for each in every[::-1][first : first + _ON_A_PAGE]]
    pages = -(-len(every) // _ON_A_PAGE)
    table = grid("Originals, the newest first", ("Id", "Kind", "What", "Tokens", "Archived"), rows, "originals")
    return join(
        (element("div", table, class_="card flush"), pager(["sessions", visit.id, "archive"], visit.query.page, pages))
    )


def _row(visit: Visit[NoForm, ArchiveQuery], shelved: Shelved) -> tuple[str, ...]:
    link = element("a", shelved.ref, href=path("sessions", visit.id, "archive", shelved.ref), class_="ref")
    return link, shelved.kind, text(shelved.summary, 300), count(shelved.tokens), when(shelved.created_at, visit.now)


async def recall(visit: Visit[NoForm, RecallQuery]) -> Page:
    """One original, page by page."""

    def look(opened: Opened) -> RecalledPage:
        return recalled.page(opened.core, visit.ref, visit.query.page, tell=visit.may_write)

    page = await visit.opened(look)
    shelved = await visit.opened(lambda opened: opened.core.store.original(opened.id, page.id))
    content = card(
        page.id,
        element("p", text(shelved.summary if shelved else "It still stands in the context.", 300), class_="faint"),
        element("pre", text(page.text, len(page.text)), class_="original", tabindex=0, aria_label=f"Text of {page.id}"),
        pager(["sessions", visit.id, "archive", visit.ref], page.number, page.pages),
        more=_restore(visit, page) if visit.may_write and shelved else "",
    )
    return await session_page.around(visit, "archive", content)


def _restore(visit: Visit[NoForm, RecallQuery], page: RecalledPage) -> Markup:
    return element(
        "button",
        "Put back into the context",
        type="button",
        class_="quiet",
        hx_post=path("sessions", visit.id, "archive", page.id, "restore"),
        hx_target="#answer",
        hx_swap="innerHTML",
    )
