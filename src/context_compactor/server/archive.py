"""Handlers of the archive: originals, recall, restore, search, and facts."""

from __future__ import annotations

from context_compactor.archive.search.passages import render_hits
from context_compactor.errors import BadSetting
from context_compactor.server.open_sessions import SessionHandle
from context_compactor.server.requests import RequestContext, handles
from context_compactor.server.responses import JsonResponse, json_response, page_of, read_cursor
from context_compactor.sessions import recall as recalled
from context_compactor.sessions import schemas
from context_compactor.sessions.session import Session
from context_compactor.sessions.verbs import Verbs


@handles(Verbs.archive)
async def archive(request: RequestContext[schemas.PageQuery]) -> JsonResponse[schemas.ArchivePage]:
    limit = request.params.limit

    def look(handle: SessionHandle) -> JsonResponse[schemas.ArchivePage]:
        found = handle.core.store.originals(handle.id, after=read_cursor(request.params.after), limit=limit + 1)
        following = str(found[limit - 1].number) if len(found) > limit else None
        originals = [schemas.struct_from(schemas.OriginalAnswer, each, id=each.ref) for each in found[:limit]]
        return json_response(schemas.ArchivePage(originals=originals, next=following))

    return await request.with_handle(look)


@handles(Verbs.recall)
async def recall(request: RequestContext[schemas.RecallQuery]) -> JsonResponse[schemas.RecallAnswer]:
    query = request.params
    if query.lines and query.page:
        raise BadSetting("lines and page exclude each other. Try: one of them.")

    def look(handle: SessionHandle) -> schemas.RecallAnswer:
        tell, raw = request.scope.may_write, query.form == "original"
        if query.page:
            page = recalled.recall_page(handle.core, request.ref, query.page, query.tokens, emit=tell, raw=raw)
            return schemas.struct_from(schemas.RecallAnswer, page, page=page.number)
        lines = _lines(query.lines)
        first, last = lines or (None, None)
        text = recalled.recall(handle.core, request.ref, lines, emit=tell, raw=raw)
        return schemas.RecallAnswer(id=request.ref, text=text, first_line=first, last_line=last)

    return await request.with_handle(lambda handle: json_response(look(handle)))


def _lines(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, _, last = text.partition("-")
    return int(first), int(last or first)


@handles(Verbs.restore)
async def restore(request: RequestContext[schemas.RestoreBody]) -> schemas.RestoreAnswer:
    restored = await request.session(lambda session: session.restore(request.params.ref))
    return schemas.struct_from(schemas.RestoreAnswer, restored)


@handles(Verbs.search)
async def search(request: RequestContext[schemas.SearchQuery]) -> JsonResponse[schemas.SearchAnswer]:
    query = request.params

    def look(session: Session) -> JsonResponse[schemas.SearchAnswer]:
        hits = session.search(
            query.q, limit=query.limit, tokens=query.tokens, kind=query.kind, since=query.since, until=query.until
        )
        return json_response(schemas.SearchAnswer(hits=hits, text=render_hits(hits)))

    return await request.session(look)


@handles(Verbs.facts)
async def facts(request: RequestContext[schemas.FactsQuery]) -> JsonResponse[schemas.FactsAnswer]:
    query = request.params

    def look(session: Session) -> JsonResponse[schemas.FactsAnswer]:
        found, following = page_of(session.facts(query.kind), query.after, query.limit)
        return json_response(schemas.FactsAnswer(facts=found, next=following))

    return await request.session(look)
