"""The pages of a session's archive and its facts."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, get_args

from msgspec import Meta, Struct

from context_compactor.facts.fact import FactKind, expand_kind
from context_compactor.server.dashboard.layout import HtmlPage
from context_compactor.server.dashboard.requests import NoForm, PageRequest
from context_compactor.server.dashboard.session import session_page
from context_compactor.server.open_sessions import SessionHandle
from context_compactor.sessions.recall import RecallPage, recall_page
from context_compactor.store.rows import OriginalRow

_PAGE_SIZE = 50
_MAX_HITS = 10
_SEARCH_TOKENS = 4_000
_MAX_FACTS = 300


class ArchiveQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What is searched for, or which page of all originals is shown."""

    q: Annotated[str, Meta(max_length=500)] = ""
    page: Annotated[int, Meta(ge=1, le=10**6)] = 1


class OriginalPageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of an original."""

    page: Annotated[int, Meta(ge=1, le=10**6)] = 1


class FactsPageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Facts of one kind only."""

    kind: FactKind | None = None


async def archive(request: PageRequest[NoForm, ArchiveQuery]) -> HtmlPage:
    """A search over all originals, or the list of them."""
    query = request.query
    values: dict[str, Any] = {"hits": None, "originals": (), "pages": 0}
    if query.q.strip():
        values["hits"] = await request.session(
            lambda session: session.search(query.q, limit=_MAX_HITS, tokens=_SEARCH_TOKENS)
        )
    else:
        every = await request.with_handle(lambda opened: opened.core.store.originals(opened.id))
        first = (query.page - 1) * _PAGE_SIZE
        values |= {"originals": every[::-1][first : first + _PAGE_SIZE], "pages": -(-len(every) // _PAGE_SIZE)}
    if request.part == "found":
        return HtmlPage(template="archive.html", part="found", values=values)
    return await session_page(request, "archive.html", "archive", **values)


async def recall(request: PageRequest[NoForm, OriginalPageQuery]) -> HtmlPage:
    """One original, page by page."""

    def read(opened: SessionHandle) -> tuple[RecallPage, OriginalRow | None]:
        page = recall_page(opened.core, request.ref, request.query.page, emit=request.may_write)
        return page, opened.core.store.original(opened.id, page.id)

    page, original = await request.with_handle(read)
    return await session_page(request, "original.html", "archive", page=page, original=original)


async def facts(request: PageRequest[NoForm, FactsPageQuery]) -> HtmlPage:
    """All facts, or those of a kind."""
    every = await request.session(lambda session: session.facts())
    kind = request.query.kind
    shown = [fact for fact in every if kind is None or fact.kind in expand_kind(kind)]
    counts = Counter(fact.kind for fact in every)
    counts["error"] += counts["failure"] if counts["error"] else 0
    kinds = {None: len(every)} | {kind: counts[kind] for kind in get_args(FactKind) if counts[kind]}
    return await session_page(
        request,
        "facts.html",
        "facts",
        total=len(every),
        kinds=kinds,
        facts=shown[-_MAX_FACTS:][::-1],
        older=len(shown) - _MAX_FACTS,
    )
