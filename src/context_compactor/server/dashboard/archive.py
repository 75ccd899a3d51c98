"""The pages of a session's archive and its facts."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, get_args

from msgspec import Meta, Struct

from context_compactor.archive.search.passages import Hit
from context_compactor.facts.fact import Fact, FactKind, expand_kind
from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard import session as session_page
from context_compactor.server.dashboard.components import (
    bounded_text,
    card,
    data_table,
    empty_state,
    page_path,
    pager,
    time_ago,
)
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.server.open_sessions import SessionHandle
from context_compactor.sessions import recall as recalled
from context_compactor.sessions.recall import RecallPage as RecalledPage
from context_compactor.store.rows import OriginalRow
from context_compactor.text import format_count, plural

_PAGE_SIZE = 50
_MAX_HITS = 10
_SEARCH_TOKENS = 4_000
_MAX_HIT_TEXT = 3_000


class ArchiveQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What is searched for, or which page of all originals is shown."""

    q: Annotated[str, Meta(max_length=500)] = ""
    page: Annotated[int, Meta(ge=1, le=10**6)] = 1


class OriginalPageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of an original."""

    page: Annotated[int, Meta(ge=1, le=10**6)] = 1


async def archive(visit: PageRequest[NoForm, ArchiveQuery]) -> HtmlPage:
    """A search over all originals, or the list of them."""
    found = (
        await _search_results(visit)
        if visit.query.q.strip()
        else await visit.with_handle(lambda opened: _original_table(visit, opened))
    )
    content = element("div", found, id="found", class_="stack")
    if visit.part == "found":
        return HtmlPage(body=content)
    return await session_page.session_layout(visit, "archive", join((_search_form(visit), content)))


def _search_form(visit: PageRequest[NoForm, ArchiveQuery]) -> Markup:
    here = page_path("sessions", visit.id, "archive")
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


async def _search_results(visit: PageRequest[NoForm, ArchiveQuery]) -> Markup:
    words = visit.query.q
    hits = await visit.session(lambda session: session.search(words, limit=_MAX_HITS, tokens=_SEARCH_TOKENS))
    if not hits:
        return empty_state(
            "Nothing in the archive answers that.", "Try other words. Only what has left the context is searched."
        )
    title = element("p", f"{plural(len(hits), 'hit')}, the best first", class_="faint", role="status")
    return join((title, *(_search_hit(visit, hit) for hit in hits)))


def _search_hit(visit: PageRequest[NoForm, ArchiveQuery], hit: Hit) -> Markup:
    link = element("a", hit.id, href=page_path("sessions", visit.id, "archive", hit.id), class_="ref")
    where = f"{hit.kind} · lines {hit.first_line:,}–{hit.last_line:,}"
    return element(
        "article",
        element("div", link, element("span", where, class_="faint"), class_="head"),
        element("pre", bounded_text(hit.text, _MAX_HIT_TEXT), tabindex=0),
        class_="card",
    )


def _original_table(visit: PageRequest[NoForm, ArchiveQuery], opened: SessionHandle) -> Markup:
    every = opened.core.store.originals(opened.id)
    if not every:
        return empty_state("The archive is empty.", "Whatever leaves the context is put here first, byte for byte.")
    first = (visit.query.page - 1) * _PAGE_SIZE
    rows = [_original_row(visit, each) for each in every[::-1][first : first + _PAGE_SIZE]]
    pages = -(-len(every) // _PAGE_SIZE)
    table = data_table("Originals, the newest first", ("Id", "Kind", "What", "Tokens", "Archived"), rows, "originals")
    return join(
        (element("div", table, class_="card flush"), pager(["sessions", visit.id, "archive"], visit.query.page, pages))
    )


def _original_row(visit: PageRequest[NoForm, ArchiveQuery], shelved: OriginalRow) -> tuple[str, ...]:
    link = element("a", shelved.ref, href=page_path("sessions", visit.id, "archive", shelved.ref), class_="ref")
    return (
        link,
        shelved.kind,
        bounded_text(shelved.summary, 300),
        format_count(shelved.tokens),
        time_ago(shelved.created_at, visit.now),
    )


async def recall(visit: PageRequest[NoForm, OriginalPageQuery]) -> HtmlPage:
    """One original, page by page."""

    def look(opened: SessionHandle) -> RecalledPage:
        return recalled.recall_page(opened.core, visit.ref, visit.query.page, emit=visit.may_write)

    page = await visit.with_handle(look)
    shelved = await visit.with_handle(lambda opened: opened.core.store.original(opened.id, page.id))
    content = card(
        page.id,
        element(
            "p", bounded_text(shelved.summary if shelved else "It still stands in the context.", 300), class_="faint"
        ),
        element(
            "pre",
            bounded_text(page.text, len(page.text)),
            class_="original",
            tabindex=0,
            aria_label=f"Text of {page.id}",
        ),
        pager(["sessions", visit.id, "archive", visit.ref], page.number, page.pages),
        more=_restore_button(visit, page) if visit.may_write and shelved else "",
    )
    return await session_page.session_layout(visit, "archive", content)


def _restore_button(visit: PageRequest[NoForm, OriginalPageQuery], page: RecalledPage) -> Markup:
    return element(
        "button",
        "Put back into the context",
        type="button",
        class_="quiet",
        hx_post=page_path("sessions", visit.id, "archive", page.id, "restore"),
        hx_target="#answer",
        hx_swap="innerHTML",
    )


_MAX_FACTS = 300
_MAX_FACT_TEXT = 600


class FactsPageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Facts of one kind only."""

    kind: FactKind | None = None


async def facts(visit: PageRequest[NoForm, FactsPageQuery]) -> HtmlPage:
    """All facts, or those of a kind."""
    every = await visit.session(lambda session: session.facts())
    kind = visit.query.kind
    shown = [fact for fact in every if kind is None or fact.kind in expand_kind(kind)]
    content = join((_kind_filter(visit, every), _fact_table(visit, shown)))
    return await session_page.session_layout(visit, "facts", content)


def _kind_filter(visit: PageRequest[NoForm, FactsPageQuery], every: list[Fact]) -> Markup:
    counts = Counter(fact.kind for fact in every)
    counts["error"] += counts["failure"] if counts["error"] else 0
    known: list[FactKind | None] = [None, *(kind for kind in get_args(FactKind) if counts[kind])]
    links = (
        element(
            "li",
            element(
                "a",
                kind.replace("_", " ") if kind else "all",
                " ",
                element("small", format_count(counts[kind] if kind else len(every))),
                href=page_path("sessions", visit.id, "facts", kind=kind),
                aria_current="true" if kind == visit.query.kind else None,
            ),
        )
        for kind in known
    )
    return element("nav", element("ul", *links), class_="chips", aria_label="Kinds of facts") if every else Markup()


def _fact_table(visit: PageRequest[NoForm, FactsPageQuery], shown: list[Fact]) -> Markup:
    if not shown:
        return empty_state("No facts yet.", "Decisions, failures, file states and the like are noted as they are seen.")
    rows = [_fact_row(visit, fact) for fact in shown[-_MAX_FACTS:][::-1]]
    rest = len(shown) - len(rows)
    more = element("p", f"and {rest:,} older ones", class_="faint") if rest > 0 else ""
    table = data_table(
        "Facts, the newest first", ("Kind", "Fact", "State", "Turn", "Last seen", "Source"), rows, "facts"
    )
    return join((element("div", table, class_="card flush"), more))


def _fact_row(visit: PageRequest[NoForm, FactsPageQuery], fact: Fact) -> tuple[str, ...]:
    detail = element("span", bounded_text(fact.detail, _MAX_FACT_TEXT), class_="faint under") if fact.detail else ""
    link = (
        element("a", fact.ref, href=page_path("sessions", visit.id, "archive", fact.ref), class_="ref")
        if fact.ref
        else ""
    )
    times = f" ×{fact.count}" if fact.count > 1 else ""
    return (
        element("span", fact.kind.replace("_", " "), class_=f"tag kind-{fact.kind}"),
        join((bounded_text(fact.content, _MAX_FACT_TEXT), detail)),
        f"{fact.status}{times}",
        format_count(fact.turn),
        time_ago(fact.last_seen or "", visit.now),
        link,
    )
