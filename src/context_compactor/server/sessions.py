"""Handlers of sessions and messages: create, list, delete, append, context and history."""

from __future__ import annotations

import hashlib
import logging
import secrets
from typing import Any

from msgspec import structs

from context_compactor.errors import BadSetting, StoreError, UnknownSession
from context_compactor.protocols import Store
from context_compactor.server.open_sessions import SessionHandle
from context_compactor.server.requests import RequestContext, handles
from context_compactor.server.responses import JsonResponse, etag_of, json_response, matches_etag, public_report
from context_compactor.server.tokens import Scope
from context_compactor.sessions import schemas, views
from context_compactor.sessions.append import AppendOutcome, ReadyMessages, share_now
from context_compactor.sessions.log import Raw
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_session_state
from context_compactor.sessions.token_series import FillRules
from context_compactor.sessions.verbs import Verbs
from context_compactor.sessions.views import history_page
from context_compactor.settings import Level, Settings, current_names, load_settings, read_value
from context_compactor.store.rows import SessionRow
from context_compactor.summarize.clients.client import without_userinfo

SERVER_ONLY_SETTINGS = frozenset(
    {
        # They name places of the server, or are about more than one session.
        "store",
        "archive_dir",
        "compact_prompt_file",
        "retention_days",
        "proxy_mode",
        "proxy_holdout",
        # They say who writes summaries, what is sent there, and what is taken as its price.
        "summarizer",
        "summarizer_window",
        "summarizer_input_tokens",
        "agent_request",
        "models",
    }
)
LIMIT_SETTINGS = frozenset(
    {
        "spend_limit",
        "session_spend_limit",
        "attempt_limit",
        "session_attempt_limit",
        "deadline_seconds",
        "summarizer_parallel_calls",
        "summarize_ahead",
    }
)
"""What the summarizer may take: a session may have less of it than the server allows, never more."""


def allowed_settings(given: dict[str, Any]) -> Settings:
    """The settings that were given, and none besides: what the server is set to may change later. Blocks."""
    named = {name: value for name, value in current_names(given, "settings").items() if value is not None}
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


def session_answer(row: SessionRow, scope: Scope, rules: FillRules | None = None) -> schemas.SessionAnswer:
    """What the store knows of a session, without opening it. `rules` are for who asks about many."""
    state, rule = read_session_state(row.state), (rules or FillRules()).of(row.profile)
    profile = rule.profile
    return schemas.SessionAnswer(
        id=scope.public_id(row.id),
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


def session_detail(session: Session, row: SessionRow, scope: Scope) -> schemas.SessionDetail:
    """A session with its usage and its compactions in numbers."""
    usage = session.usage()
    measured = {"tokens": usage.tokens, "share": usage.share, "level": usage.level}
    shown = schemas.struct_from(schemas.UsageAnswer, usage)
    return schemas.struct_from(
        schemas.SessionDetail, session_answer(row, scope), **measured, usage=shown, totals=session.totals()
    )


_log = logging.getLogger("context_compactor")
# Bytes of a body whose messages are made ready in another thread than the one that writes, which all appends share.
_LARGE_APPEND = 1 << 16


@handles(Verbs.create)
async def create(request: RequestContext[schemas.CreateBody]) -> JsonResponse[schemas.SessionAnswer]:
    body = request.params
    store_id = request.scope.new_store_id(body.id or f"s-{secrets.token_hex(8)}")
    given = body.settings
    settings = None if given is None else await request.service.run(lambda: allowed_settings(given))

    def make(handle: SessionHandle) -> tuple[schemas.SessionAnswer, bool]:
        handle.close()
        store, is_new = request.service.store, not _exists(request.service.store, store_id)
        with Session.open(
            store_id,
            window=body.window,
            store=store,
            dialect=body.dialect,
            model=body.model,
            tools=body.tools,
            system=body.system,
            settings=settings,
            bus=request.service.bus,
            schedule=request.service.schedule,
        ) as session:
            row = store.session(session.id)
        if row.messages:
            handle.session().context()  # a window that has shrunk may have to be answered
            row = store.session(store_id)
        return session_answer(row, request.scope), is_new

    answer, is_new = await request.service.with_session(store_id, make)
    return json_response(answer, status=201 if is_new else 200)


def _exists(store: Store, store_id: str) -> bool:
    try:
        store.session(store_id)
    except UnknownSession:
        return False
    return True


@handles(Verbs.sessions)
async def sessions(request: RequestContext[schemas.PageQuery]) -> schemas.SessionPage:
    limit = request.params.limit
    rows = await request.service.run(
        lambda: request.scope.sessions(request.service.store, request.params.after, limit + 1)
    )
    rules = FillRules()
    found = await request.service.run(lambda: [session_answer(row, request.scope, rules) for row in rows[:limit]])
    return schemas.SessionPage(sessions=found, next=found[-1].id if len(rows) > limit else None)


@handles(Verbs.session)
async def session(request: RequestContext[schemas.NoQuery]) -> schemas.SessionDetail:
    store_id, store = request.store_id, request.service.store
    return await request.session(lambda session: session_detail(session, store.session(store_id), request.scope))


@handles(Verbs.delete)
async def delete_session(request: RequestContext[schemas.NoQuery]) -> JsonResponse[None]:
    await request.service.delete(request.store_id)
    return JsonResponse(b"", 204)


@handles(Verbs.append)
async def append(request: RequestContext[schemas.AppendBody]) -> JsonResponse[schemas.AppendAnswer]:
    key, body_hash = request.key, hashlib.sha256(request.raw).hexdigest() if request.key else ""
    answers = request.service.service_store.answers

    def write(handle: SessionHandle, messages: list[Raw] | ReadyMessages) -> tuple[bytes, AppendOutcome | None]:
        session = handle.cached_session()
        if not key:
            watched = session.record(messages, request.params.usage)
            return schemas.encode(_append_answer(request, watched)), watched
        with handle.core.writing():
            if not answers.take(handle.id, key, body_hash, handle.core.now()):
                kept = answers.find(handle.id, key, body_hash)
                return (kept.answer.encode() if kept else b""), None
            watched = session.record(messages, request.params.usage)
            content = schemas.encode(_append_answer(request, watched))
            answers.keep(handle.id, key, content.decode())
        return content, watched

    if not request.params.messages:
        if request.params.usage is not None:
            raise BadSetting(
                "usage: it belongs to a reply, and no message was sent. Try: send both together, or neither."
            )
        return json_response(await request.with_handle(lambda handle: _unchanged_answer(request, handle)))
    is_large = len(request.raw) > _LARGE_APPEND
    content, watched = await request.service.append(request.store_id, write, request.params.messages, is_large=is_large)
    if watched is None:
        return json_response(content, headers={"Idempotency-Replayed": "true"})
    if watched.is_quiet:
        return json_response(content)
    try:
        return json_response(await request.with_handle(lambda handle: _append_outcome(request, handle, watched)))
    except StoreError as error:  # the messages are written, and what follows from them is seen again at the next look
        _log.warning("what follows an append to %r is put off: %s", request.store_id, error)
        await request.service.close_session(request.store_id)
        return json_response(content)


def _append_answer(request: RequestContext[schemas.AppendBody], watched: AppendOutcome) -> schemas.AppendAnswer:
    return schemas.AppendAnswer(
        session_id=request.id,
        appended=len(request.params.messages),
        messages=watched.messages,
        tokens=watched.tokens,
        share=watched.share,
        level=level_from_name(watched.fired),
    )


def _unchanged_answer(request: RequestContext[schemas.AppendBody], handle: SessionHandle) -> schemas.AppendAnswer:
    row = handle.core.store.session(handle.id)
    state = read_session_state(row.state)
    return schemas.AppendAnswer(
        session_id=request.id,
        appended=len(request.params.messages),
        messages=row.messages,
        tokens=state.gauge.tokens if row.messages else 0,
        share=share_now(handle.core, state) if row.messages else 0.0,
        level=level_from_name(state.fired),
    )


def _append_outcome(
    request: RequestContext[schemas.AppendBody], handle: SessionHandle, watched: AppendOutcome
) -> bytes:
    """What follows from messages that are written: events, and a compaction when it is to come at once."""
    report = handle.session().answer(watched)
    answer = structs.replace(
        _unchanged_answer(request, handle), report=public_report(report, request.id) if report else None
    )
    content = schemas.encode(answer)
    if request.key:
        request.service.service_store.answers.keep(handle.id, request.key, content.decode())
    return content


@handles(Verbs.context)
async def context(request: RequestContext[schemas.ContextQuery]) -> JsonResponse[schemas.ContextAnswer]:
    known = request.headers.get("if-none-match", "")

    def look(handle: SessionHandle) -> JsonResponse[schemas.ContextAnswer]:
        at = request.params.at
        if at is None and request.scope.may_write:  # whoever may only read leaves a level that is reached to others
            handle.session().check()
        core = handle.core
        row = core.store.session(handle.id)
        is_asked_for = core.profile, core.settings.enabled, at, request.params.sealed
        tag = etag_of(row.id, row.created_at, row.head, row.view, *is_asked_for)
        if matches_etag(tag, known):
            return json_response(b"", status=304, headers={"ETag": tag})
        seen = core.current_context(row) if at is None else views.context_at(core, at)
        now = read_session_state(row.state).gauge.tokens if row.messages else 0
        answer = schemas.ContextAnswer(
            session_id=request.id,
            messages=views.context(core, seen, sealed=request.params.sealed),
            tokens=now if at is None else views.tokens_of(core, seen),
            history_messages=row.messages if at is None else at,
        )
        return json_response(answer, headers={"ETag": tag, "Cache-Control": "private, no-cache"})

    return await request.with_handle(look)


@handles(Verbs.history)
async def history(request: RequestContext[schemas.HistoryQuery]) -> JsonResponse[schemas.HistoryAnswer]:
    after, limit = request.params.after, request.params.limit

    def look(handle: SessionHandle) -> JsonResponse[schemas.HistoryAnswer]:
        page = history_page(handle.core, after, limit)
        behind = after + len(page.messages)
        return json_response(
            schemas.HistoryAnswer(
                session_id=request.id,
                messages=page.messages,
                total=page.total,
                next=str(behind) if behind < page.total else None,
                compactions=page.compactions,
            )
        )

    return await request.with_handle(look)
