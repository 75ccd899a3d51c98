"""Handlers of the archive: originals, recall, restore, search, and facts."""

from __future__ import annotations

from context_compactor.archive.search.passages import render_hits
from context_compactor.errors import BadSetting
from context_compactor.server.open_sessions import SessionHandle
from context_compactor.server.requests import RequestContext
from context_compactor.server.responses import JsonResponse, json_response, page_of, read_cursor
from context_compactor.sessions import recall as recalled
from context_compactor.sessions.api import (
    ArchivePage,
    FactsAnswer,
    FactsQuery,
    NoQuery,
    OriginalAnswer,
    PageQuery,
    RecallAnswer,
    RecallQuery,
    RestoreAnswer,
    RestoreBody,
    SearchAnswer,
    SearchQuery,
)
from context_compactor.sessions.session import Session
from context_compactor.store.rows import OriginalRow


async def archive(asked: RequestContext[None, PageQuery]) -> JsonResponse[ArchivePage]:
    """List the originals of a session in the order in which they were archived, page by page."""
    limit = asked.query.limit

    def look(opened: SessionHandle) -> JsonResponse[ArchivePage]:
        found = opened.core.store.originals(opened.id, after=read_cursor(asked.query.after), limit=limit + 1)
        following = str(found[limit - 1].number) if len(found) > limit else None
        return json_response(ArchivePage(originals=[_original_answer(each) for each in found[:limit]], next=following))

    return await asked.opened(look)


def _original_answer(shelved: OriginalRow) -> OriginalAnswer:
    known = {name: getattr(shelved, name) for name in OriginalAnswer.__struct_fields__ if name != "id"}
    return OriginalAnswer(id=shelved.ref, **known)


async def recall(asked: RequestContext[None, RecallQuery]) -> JsonResponse[RecallAnswer]:
    """Give an original back, byte for byte, or some lines or one page of it; or a turn as a conversation.

    It makes an event `item.recalled`, unless the token may only read.
    """
    query = asked.query
    if query.lines and query.page:
        raise BadSetting("lines and page exclude each other. Try: one of them.")

    def look(opened: SessionHandle) -> RecallAnswer:
        tell, raw = asked.scope.may_write, query.form == "original"
        if query.page:
            page = recalled.recall_page(opened.core, asked.ref, query.page, query.tokens, tell=tell, raw=raw)
            return RecallAnswer(
                id=page.id,
                text=page.text,
                page=page.number,
                pages=page.pages,
                first_line=page.first_line,
                last_line=page.last_line,
            )
        lines = _lines(query.lines)
        first, last = lines or (None, None)
        text = recalled.recall(opened.core, asked.ref, lines, tell=tell, raw=raw)
        return RecallAnswer(id=asked.ref, text=text, first_line=first, last_line=last)

    return await asked.opened(lambda opened: json_response(look(opened)))


def _lines(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, _, last = text.partition("-")
    return int(first), int(last or first)


async def restore(asked: RequestContext[RestoreBody, NoQuery]) -> RestoreAnswer:
    """Put an original back into the context, with room made for it when there is none."""
    restored = await asked.session(lambda session: session.restore(asked.body.ref))
    return RestoreAnswer(**{name: getattr(restored, name) for name in RestoreAnswer.__struct_fields__})


async def search(asked: RequestContext[None, SearchQuery]) -> JsonResponse[SearchAnswer]:
    """Search all originals of a session: lines that answer a question, best first."""
    query = asked.query

    def look(session: Session) -> JsonResponse[SearchAnswer]:
        hits = session.search(
            query.q, limit=query.limit, tokens=query.tokens, kind=query.kind, since=query.since, until=query.until
        )
        return json_response(SearchAnswer(hits=hits, text=render_hits(hits)))

    return await asked.session(look)


async def facts(asked: RequestContext[None, FactsQuery]) -> JsonResponse[FactsAnswer]:
    """List what must outlive the text: decisions, errors, failures, file states and so on, by turn.

    Each tells when it was first and last seen. `kind=error` gives failures as well. With `limit`, page by page.
    """
    query = asked.query

    def look(session: Session) -> JsonResponse[FactsAnswer]:
        found, following = page_of(session.facts(query.kind), query.after, query.limit)
        return json_response(FactsAnswer(facts=found, next=following))

    return await asked.session(look)
