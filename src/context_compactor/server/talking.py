"""Sessions and messages over HTTP. The docstring of a verb is its text in the OpenAPI document."""

from __future__ import annotations

import hashlib
import logging
import secrets

from litestar.response.base import ASGIResponse
from msgspec import structs

from context_compactor import __version__
from context_compactor.api import (
    PROBLEM_TYPE,
    AppendAnswer,
    AppendBody,
    ContextAnswer,
    ContextQuery,
    CreateBody,
    HealthAnswer,
    HistoryAnswer,
    HistoryQuery,
    NoQuery,
    PageQuery,
    Problem,
    SessionAnswer,
    SessionDetail,
    SessionPage,
    encode,
)
from context_compactor.errors import BadSetting, StoreError, UnknownSession
from context_compactor.protocols import Store
from context_compactor.server.asked import Asked
from context_compactor.server.describing import describe, detail, level_named
from context_compactor.server.open_sessions import Opened
from context_compactor.server.problems import problem_response
from context_compactor.server.reports import outside
from context_compactor.server.sending import Sent, sent
from context_compactor.server.session_settings import allowed_settings
from context_compactor.server.tags import is_known, tag_of
from context_compactor.session import views
from context_compactor.session.append import Ready
from context_compactor.session.fill import Rules
from context_compactor.session.lens import Raw
from context_compactor.session.pages import history_page
from context_compactor.session.session import Session
from context_compactor.session.values import read_state
from context_compactor.session.watch import Watched, share_now

_log = logging.getLogger("context_compactor")
# Bytes of a body whose messages are made ready in another thread than the one that writes, which all appends share.
_LARGE = 1 << 16


async def create(asked: Asked[CreateBody, NoQuery]) -> Sent[SessionAnswer]:
    """Open a session; it is made when there is none. One that exists goes on where it stood."""
    body = asked.body
    store_id = asked.scope.made(body.id or f"s-{secrets.token_hex(8)}")
    given = body.settings
    settings = None if given is None else await asked.service.run(lambda: allowed_settings(given))

    def make(opened: Opened) -> tuple[SessionAnswer, bool]:
        opened.close()
        store, is_new = asked.service.store, not _is_there(asked.service.store, store_id)
        with Session.open(
            store_id,
            window=body.window,
            store=store,
            dialect=body.dialect,
            model=body.model,
            settings=settings,
            bus=asked.service.bus,
            schedule=asked.service.schedule,
        ) as session:
            row = store.session(session.id)
        if row.messages:
            opened.session().context()  # a window that has shrunk may have to be answered
            row = store.session(store_id)
        return describe(row, asked.scope), is_new

    answer, is_new = await asked.service.in_session(store_id, make)
    return sent(answer, status=201 if is_new else 200)


def _is_there(store: Store, store_id: str) -> bool:
    try:
        store.session(store_id)
    except UnknownSession:
        return False
    return True


async def sessions(asked: Asked[None, PageQuery]) -> SessionPage:
    """List the sessions of the token's namespace by their ids, page by page."""
    limit = asked.query.limit
    rows = await asked.service.run(lambda: asked.scope.sessions(asked.service.store, asked.query.after, limit + 1))
    rules = Rules()
    found = await asked.service.run(lambda: [describe(row, asked.scope, rules) for row in rows[:limit]])
    return SessionPage(sessions=found, next=found[-1].id if len(rows) > limit else None)


async def session(asked: Asked[None, NoQuery]) -> SessionDetail:
    """Tell what a session is, how full its context is by section, and what its compactions have saved."""
    store_id, store = asked.store_id, asked.service.store
    return await asked.session(lambda session: detail(session, store.session(store_id), asked.scope))


async def delete_session(asked: Asked[None, NoQuery]) -> Sent[SessionAnswer]:
    """Delete a session for good, with its history, archive, facts and events; nothing brings it back.

    What is under way in it is ended. Contents that other sessions have too stay for them. The answer is 204, with
    nothing in it.
    """
    await asked.service.delete(asked.store_id)
    return sent(b"", status=204)


async def append(asked: Asked[AppendBody, NoQuery]) -> Sent[AppendAnswer]:
    """Append messages, all or none; they are on the disk when this is answered.

    With the header `Idempotency-Key` a request that is sent again appends nothing and is answered as the first time.
    """
    key, body_hash = asked.key, hashlib.sha256(asked.raw).hexdigest() if asked.key else ""
    answers = asked.service.desk.answers

    def write(opened: Opened, messages: list[Raw] | Ready) -> tuple[bytes, Watched | None]:
        session = opened.as_known()
        if not key:
            watched = session.record(messages, asked.body.usage)
            return encode(_appended(asked, watched)), watched
        with opened.core.writing():
            if not answers.take(opened.id, key, body_hash, opened.core.now()):
                kept = answers.find(opened.id, key, body_hash)
                return (kept.answer.encode() if kept else b""), None
            watched = session.record(messages, asked.body.usage)
            content = encode(_appended(asked, watched))
            answers.keep(opened.id, key, content.decode())
        return content, watched

    if not asked.body.messages:
        if asked.body.usage is not None:
            raise BadSetting("usage: it is of a reply, and no message came with it. Try: both together, or neither.")
        return sent(await asked.opened(lambda opened: _as_it_is(asked, opened)))
    is_large = len(asked.raw) > _LARGE
    content, watched = await asked.service.append(asked.store_id, write, asked.body.messages, is_large=is_large)
    if watched is None:
        return sent(content, headers={"Idempotency-Replayed": "true"})
    if watched.is_quiet:
        return sent(content)
    try:
        return sent(await asked.opened(lambda opened: _answered(asked, opened, watched)))
    except StoreError as error:  # the messages are written, and what follows from them is seen again at the next look
        _log.warning("what follows an append to %r is put off: %s", asked.store_id, error)
        await asked.service.let_go(asked.store_id)
        return sent(content)


def _appended(asked: Asked[AppendBody, NoQuery], watched: Watched) -> AppendAnswer:
    return AppendAnswer(
        session_id=asked.id,
        appended=len(asked.body.messages),
        messages=watched.messages,
        tokens=watched.tokens,
        share=watched.share,
        level=level_named(watched.fired),
    )


def _as_it_is(asked: Asked[AppendBody, NoQuery], opened: Opened) -> AppendAnswer:
    row = opened.core.store.session(opened.id)
    state = read_state(row.state)
    return AppendAnswer(
        session_id=asked.id,
        appended=len(asked.body.messages),
        messages=row.messages,
        tokens=state.gauge.tokens if row.messages else 0,
        share=share_now(opened.core, state) if row.messages else 0.0,
        level=level_named(state.fired),
    )


def _answered(asked: Asked[AppendBody, NoQuery], opened: Opened, watched: Watched) -> bytes:
    """What follows from messages that are written: events, and a compaction when it is to come at once."""
    report = opened.session().answer(watched)
    answer = structs.replace(_as_it_is(asked, opened), report=outside(report, asked.id) if report else None)
    content = encode(answer)
    if asked.key:
        asked.service.desk.answers.keep(opened.id, asked.key, content.decode())
    return content


async def context(asked: Asked[None, ContextQuery]) -> Sent[ContextAnswer]:
    """Give the messages to send next. With `If-None-Match` nothing is sent when they are the same as last time."""
    known = asked.headers.get("if-none-match", "")

    def look(opened: Opened) -> Sent[ContextAnswer]:
        at = asked.query.at
        if at is None and asked.scope.may_write:  # whoever may only read leaves a level that is reached to others
            opened.session().check()
        core = opened.core
        row = core.store.session(opened.id)
        is_asked_for = core.profile, core.settings.enabled, at, asked.query.sealed
        tag = tag_of(row.id, row.created_at, row.head, row.view, *is_asked_for)
        if is_known(tag, known):
            return sent(b"", status=304, headers={"ETag": tag})
        seen = core.seen(row) if at is None else views.seen_at(core, at)
        now = read_state(row.state).gauge.tokens if row.messages else 0
        answer = ContextAnswer(
            session_id=asked.id,
            messages=views.context(core, seen, sealed=asked.query.sealed),
            tokens=now if at is None else views.tokens_of(core, seen),
            history_messages=row.messages if at is None else at,
        )
        return sent(answer, headers={"ETag": tag, "Cache-Control": "private, no-cache"})

    return await asked.opened(look)


async def history(asked: Asked[None, HistoryQuery]) -> Sent[HistoryAnswer]:
    """Give everything that was appended, in order and equal to what went in; with `limit`, page by page."""
    after, limit = asked.query.after, asked.query.limit

    def look(opened: Opened) -> Sent[HistoryAnswer]:
        page = history_page(opened.core, after, limit)
        behind = after + len(page.messages)
        return sent(
            HistoryAnswer(
                session_id=asked.id,
                messages=page.messages,
                total=page.total,
                next=str(behind) if behind < page.total else None,
                compactions=page.compactions,
            )
        )

    return await asked.opened(look)


async def healthz(asked: Asked[None, NoQuery]) -> HealthAnswer:  # noqa: ARG001  it looks at nothing
    """Tell that the server answers, whatever its store does."""
    return HealthAnswer(status="ok", version=__version__)


async def readyz(asked: Asked[None, NoQuery]) -> HealthAnswer | ASGIResponse:
    """Tell whether the server can do its work: something small is written to its store and read again.

    Within a second it is answered with 200, or with 503 and what fails, `write` or `read` or both.
    """
    failing = await asked.service.readiness.failing()
    if not failing:
        return HealthAnswer(status="ok", version=__version__)
    what = ", ".join(sorted(failing))
    more = "" if "read" in failing else " What is stored can still be read."
    detail = f"The store fails to {what.replace(', ', ' and to ')}.{more} The server's log says why."
    return problem_response(Problem(type=f"{PROBLEM_TYPE}not-ready", title="Not ready", status=503, detail=detail))
