"""Handlers of sessions and messages: create, list, delete, append, context and history."""

from __future__ import annotations

import hashlib
import logging
import secrets
from typing import Any

from litestar.response.base import ASGIResponse
from msgspec import structs

from context_compactor import __version__
from context_compactor.errors import BadSetting, StoreError, UnknownSession
from context_compactor.protocols import Store
from context_compactor.server.open_sessions import SessionHandle
from context_compactor.server.problems import problem_response
from context_compactor.server.requests import RequestContext
from context_compactor.server.responses import JsonResponse, etag_of, json_response, matches_etag, public_report
from context_compactor.server.tokens import Scope
from context_compactor.sessions import views
from context_compactor.sessions.api import (
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
    UsageAnswer,
    encode,
)
from context_compactor.sessions.append import AppendOutcome, ReadyMessages, share_now
from context_compactor.sessions.log import Raw
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_session_state
from context_compactor.sessions.token_series import FillRules
from context_compactor.sessions.views import history_page
from context_compactor.settings import Level, Settings, load_settings, read_value, without_retired
from context_compactor.store.rows import SessionRow
from context_compactor.summarize.clients.client import without_userinfo
from context_compactor.tokens.budget import Usage

SERVER_ONLY_SETTINGS = frozenset(
    {
        # They name places of the server, or are about more than one session.
        "store",
        "archive_dir",
        "compact_prompt_file",
        "retention_days",
        # They say who writes summaries, what is sent there, and what is counted as its price.
        "model",
        "model_window",
        "model_input_tokens",
        "agent_request",
        "prices",
    }
)
LIMIT_SETTINGS = frozenset(
    {
        "spend_limit",
        "session_spend_limit",
        "attempt_limit",
        "session_attempt_limit",
        "deadline_seconds",
        "model_parallel_calls",
        "summarize_ahead",
    }
)
"""What the model may take: a session may have less of it than the server allows, never more."""


def allowed_settings(given: dict[str, Any]) -> Settings:
    """The settings that were given, and none besides: what the server is set to may change later. Blocks."""
    named = {name: value for name, value in without_retired(given, "settings").items() if value is not None}
    own = sorted(SERVER_ONLY_SETTINGS & set(named))
    if own:
        raise BadSetting(f"settings: {own[0]} can only be set on the server. Try: leave it out.")
    load_settings(named)  # all of them together must make sense
    values = {name: read_value(name, value, "settings") for name, value in named.items()}
    servers = load_settings().settings
    for name in sorted(LIMIT_SETTINGS & set(values)):
        most = getattr(servers, name)
        if most is not None and (values[name] is None or values[name] > most):
            raise BadSetting(
                f"settings: {name} is {most} on this server, and a session can only lower it. Try: leave it out."
            )
    return Settings(**values)


def session_answer(row: SessionRow, scope: Scope, rules: FillRules | None = None) -> SessionAnswer:
    """What the store knows of a session, without opening it. `rules` are for who asks about many."""
    state, rule = read_session_state(row.state), (rules or FillRules()).of(row.profile)
    profile = rule.profile
    return SessionAnswer(
        id=scope.outside(row.id),
        created_at=row.created_at,
        updated_at=row.updated_at,
        messages=row.messages,
        tokens=state.gauge.tokens if row.messages else 0,
        share=rule.fill(row, state).share,
        level=level_from_name(state.fired),
        window=profile.window,
        dialect=profile.dialect,
        model=without_userinfo(profile.model) if profile.model else None,
        settings={name: _without_secrets(value) for name, value in profile.settings.items()},
    )


def _without_secrets(value: Any) -> Any:
    return without_userinfo(value) if isinstance(value, str) else value


def level_from_name(name: str) -> Level | None:
    """The level of a stored name; none has none."""
    return Level(name) if name else None


def session_detail(session: Session, row: SessionRow, scope: Scope) -> SessionDetail:
    """A session with its usage and its compactions in numbers."""
    usage = session.usage()
    known = structs.asdict(session_answer(row, scope)) | {
        "tokens": usage.tokens,
        "share": usage.share,
        "level": usage.level,
    }
    return SessionDetail(**known, usage=usage_answer(usage), totals=session.totals())


def usage_answer(usage: Usage) -> UsageAnswer:
    """How full a context is, with the forecast."""
    known = {name: getattr(usage, name) for name in UsageAnswer.__struct_fields__}
    return UsageAnswer(**known)


_log = logging.getLogger("context_compactor")
# Bytes of a body whose messages are made ready in another thread than the one that writes, which all appends share.
_LARGE_APPEND = 1 << 16


async def create(asked: RequestContext[CreateBody, NoQuery]) -> JsonResponse[SessionAnswer]:
    """Open a session; it is made when there is none. One that exists goes on where it stood."""
    body = asked.body
    store_id = asked.scope.made(body.id or f"s-{secrets.token_hex(8)}")
    given = body.settings
    settings = None if given is None else await asked.service.run(lambda: allowed_settings(given))

    def make(opened: SessionHandle) -> tuple[SessionAnswer, bool]:
        opened.close()
        store, is_new = asked.service.store, not _exists(asked.service.store, store_id)
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
        return session_answer(row, asked.scope), is_new

    answer, is_new = await asked.service.with_session(store_id, make)
    return json_response(answer, status=201 if is_new else 200)


def _exists(store: Store, store_id: str) -> bool:
    try:
        store.session(store_id)
    except UnknownSession:
        return False
    return True


async def sessions(asked: RequestContext[None, PageQuery]) -> SessionPage:
    """List the sessions of the token's namespace by their ids, page by page."""
    limit = asked.query.limit
    rows = await asked.service.run(lambda: asked.scope.sessions(asked.service.store, asked.query.after, limit + 1))
    rules = FillRules()
    found = await asked.service.run(lambda: [session_answer(row, asked.scope, rules) for row in rows[:limit]])
    return SessionPage(sessions=found, next=found[-1].id if len(rows) > limit else None)


async def session(asked: RequestContext[None, NoQuery]) -> SessionDetail:
    """Tell what a session is, how full its context is by section, and what its compactions have saved."""
    store_id, store = asked.store_id, asked.service.store
    return await asked.session(lambda session: session_detail(session, store.session(store_id), asked.scope))


async def delete_session(asked: RequestContext[None, NoQuery]) -> JsonResponse[SessionAnswer]:
    """Delete a session for good, with its history, archive, facts and events; nothing brings it back.

    What is under way in it is ended. Contents that other sessions have too stay for them. The answer is 204, with
    nothing in it.
    """
    await asked.service.delete(asked.store_id)
    return json_response(b"", status=204)


async def append(asked: RequestContext[AppendBody, NoQuery]) -> JsonResponse[AppendAnswer]:
    """Append messages, all or none; they are on the disk when this is answered.

    With the header `Idempotency-Key` a request that is sent again appends nothing and is answered as the first time.
    """
    key, body_hash = asked.key, hashlib.sha256(asked.raw).hexdigest() if asked.key else ""
    answers = asked.service.service_store.answers

    def write(opened: SessionHandle, messages: list[Raw] | ReadyMessages) -> tuple[bytes, AppendOutcome | None]:
        session = opened.cached_session()
        if not key:
            watched = session.record(messages, asked.body.usage)
            return encode(_append_answer(asked, watched)), watched
        with opened.core.writing():
            if not answers.take(opened.id, key, body_hash, opened.core.now()):
                kept = answers.find(opened.id, key, body_hash)
                return (kept.answer.encode() if kept else b""), None
            watched = session.record(messages, asked.body.usage)
            content = encode(_append_answer(asked, watched))
            answers.keep(opened.id, key, content.decode())
        return content, watched

    if not asked.body.messages:
        if asked.body.usage is not None:
            raise BadSetting(
                "usage: it belongs to a reply, and no message was sent. Try: send both together, or neither."
            )
        return json_response(await asked.opened(lambda opened: _unchanged_answer(asked, opened)))
    is_large = len(asked.raw) > _LARGE_APPEND
    content, watched = await asked.service.append(asked.store_id, write, asked.body.messages, is_large=is_large)
    if watched is None:
        return json_response(content, headers={"Idempotency-Replayed": "true"})
    if watched.is_quiet:
        return json_response(content)
    try:
        return json_response(await asked.opened(lambda opened: _append_outcome(asked, opened, watched)))
    except StoreError as error:  # the messages are written, and what follows from them is seen again at the next look
        _log.warning("what follows an append to %r is put off: %s", asked.store_id, error)
        await asked.service.let_go(asked.store_id)
        return json_response(content)


def _append_answer(asked: RequestContext[AppendBody, NoQuery], watched: AppendOutcome) -> AppendAnswer:
    return AppendAnswer(
        session_id=asked.id,
        appended=len(asked.body.messages),
        messages=watched.messages,
        tokens=watched.tokens,
        share=watched.share,
        level=level_from_name(watched.fired),
    )


def _unchanged_answer(asked: RequestContext[AppendBody, NoQuery], opened: SessionHandle) -> AppendAnswer:
    row = opened.core.store.session(opened.id)
    state = read_session_state(row.state)
    return AppendAnswer(
        session_id=asked.id,
        appended=len(asked.body.messages),
        messages=row.messages,
        tokens=state.gauge.tokens if row.messages else 0,
        share=share_now(opened.core, state) if row.messages else 0.0,
        level=level_from_name(state.fired),
    )


def _append_outcome(asked: RequestContext[AppendBody, NoQuery], opened: SessionHandle, watched: AppendOutcome) -> bytes:
    """What follows from messages that are written: events, and a compaction when it is to come at once."""
    report = opened.session().answer(watched)
    answer = structs.replace(
        _unchanged_answer(asked, opened), report=public_report(report, asked.id) if report else None
    )
    content = encode(answer)
    if asked.key:
        asked.service.service_store.answers.keep(opened.id, asked.key, content.decode())
    return content


async def context(asked: RequestContext[None, ContextQuery]) -> JsonResponse[ContextAnswer]:
    """Give the messages to send next. With `If-None-Match` nothing is sent when they are the same as last time."""
    known = asked.headers.get("if-none-match", "")

    def look(opened: SessionHandle) -> JsonResponse[ContextAnswer]:
        at = asked.query.at
        if at is None and asked.scope.may_write:  # whoever may only read leaves a level that is reached to others
            opened.session().check()
        core = opened.core
        row = core.store.session(opened.id)
        is_asked_for = core.profile, core.settings.enabled, at, asked.query.sealed
        tag = etag_of(row.id, row.created_at, row.head, row.view, *is_asked_for)
        if matches_etag(tag, known):
            return json_response(b"", status=304, headers={"ETag": tag})
        seen = core.seen(row) if at is None else views.context_at(core, at)
        now = read_session_state(row.state).gauge.tokens if row.messages else 0
        answer = ContextAnswer(
            session_id=asked.id,
            messages=views.context(core, seen, sealed=asked.query.sealed),
            tokens=now if at is None else views.tokens_of(core, seen),
            history_messages=row.messages if at is None else at,
        )
        return json_response(answer, headers={"ETag": tag, "Cache-Control": "private, no-cache"})

    return await asked.opened(look)


async def history(asked: RequestContext[None, HistoryQuery]) -> JsonResponse[HistoryAnswer]:
    """Give everything that was appended, in order and equal to what went in; with `limit`, page by page."""
    after, limit = asked.query.after, asked.query.limit

    def look(opened: SessionHandle) -> JsonResponse[HistoryAnswer]:
        page = history_page(opened.core, after, limit)
        behind = after + len(page.messages)
        return json_response(
            HistoryAnswer(
                session_id=asked.id,
                messages=page.messages,
                total=page.total,
                next=str(behind) if behind < page.total else None,
                compactions=page.compactions,
            )
        )

    return await asked.opened(look)


async def healthz(asked: RequestContext[None, NoQuery]) -> HealthAnswer:  # noqa: ARG001  it looks at nothing
    """Tell that the server answers, whatever its store does."""
    return HealthAnswer(status="ok", version=__version__)


async def readyz(asked: RequestContext[None, NoQuery]) -> HealthAnswer | ASGIResponse:
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
