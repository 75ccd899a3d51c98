"""The app: a route for every verb, behind authentication, with gzip, a limit for bodies, and problems as JSON."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from typing import Any

from litestar import Litestar, Request, Router
from litestar.config.compression import CompressionConfig
from litestar.config.cors import CORSConfig
from litestar.exceptions import HTTPException, InternalServerException, NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.middleware import DefineMiddleware
from litestar.middleware.compression import CompressionMiddleware
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, ControllerRouterHandler, ExceptionHandler
from msgspec import Struct

from context_compactor.errors import CompactorError, StoreError, StoreLocked, UnknownSession
from context_compactor.server import archive, compactions, events, health, sessions, webhooks  # noqa: F401  they register handlers
from context_compactor.server.middleware import guard_hosts_and_origins
from context_compactor.server.problems import (
    RequestRefused,
    on_compactor_error,
    on_http_exception,
    on_request_refused,
    on_unexpected_error,
    problem_of,
    problem_response,
)
from context_compactor.server.requests import HANDLERS, Handler, RequestContext, decode_body, decompress, read_query
from context_compactor.server.responses import (
    GZIP_LEVEL,
    GZIP_MIN_BYTES,
    LARGE_BODY,
    JsonResponse,
    asgi_response,
    json_response,
)
from context_compactor.server.service import Service
from context_compactor.server.tokens import Scope
from context_compactor.sessions.core import wall_clock
from context_compactor.sessions.verbs import VERBS, AnyVerb, ServerVerbs, Verbs
from context_compactor.store.rows import timestamp

_log = logging.getLogger("context_compactor")


def make_app(
    service: Service,
    routers: Sequence[ControllerRouterHandler] = (),
    on_not_found: ExceptionHandler[Any] = on_http_exception,
    verbs: Sequence[AnyVerb] = VERBS,
) -> ASGIApp:
    """The ASGI app of a service, which is closed when the app stops. Each verb has a handler; see `handles`."""

    @asynccontextmanager
    async def life(_: Litestar) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    origins = service.config.origins
    app = Litestar(
        [*(_endpoint(verb, service) for verb in verbs), _gzip_router([_openapi(service), *routers])],
        lifespan=[life],
        openapi_config=None,
        logging_config=None,
        cors_config=CORSConfig(allow_origins=list(origins), expose_headers=["ETag"]) if origins else None,
        request_max_body_size=service.config.max_body_bytes,
        exception_handlers={
            RequestRefused: on_request_refused,
            CompactorError: on_compactor_error,
            NotFoundException: on_not_found,
            HTTPException: on_http_exception,
            Exception: on_unexpected_error,
        },
    )
    return guard_hosts_and_origins(app, service.config.hosts, origins)


def _gzip_router(handlers: Sequence[ControllerRouterHandler]) -> Router:
    """Pages, whose answers the framework packs, in the event loop. Those of the verbs are packed by `asgi_response`."""
    config = CompressionConfig("gzip", minimum_size=GZIP_MIN_BYTES, gzip_compress_level=GZIP_LEVEL)
    return Router("/", route_handlers=handlers, middleware=[DefineMiddleware(CompressionMiddleware, config=config)])


def _endpoint(verb: AnyVerb, service: Service) -> HTTPRouteHandler:
    """The route of a verb as the framework knows it: authenticate, read, handle, answer."""
    handler = HANDLERS[verb]

    async def respond(request: Request[Any, Any, Any]) -> ASGIResponse:
        began = time.perf_counter()
        status = 500
        try:
            response = await answer(request)
            status = response.status_code
        except RequestRefused as refused:
            status = refused.status
            raise
        except HTTPException as refused:
            status = refused.status_code
            raise
        finally:
            service.metrics.observe_request(verb.path, verb.method, status, time.perf_counter() - began)
        return response

    async def answer(request: Request[Any, Any, Any]) -> ASGIResponse:
        context = await _request_context(verb, service, request)
        try:
            answer = await (_idempotent(verb, handler, context) if verb.writes else handler(context))
            return await asgi_response(answer, request.headers.get("accept-encoding", ""), service.run)
        except CompactorError as error:
            return problem_response(problem_of(error, _public_text(context.scope, context.id, error)))

    known = (verb.path, verb.former_path) if verb.former_path else (verb.path,)
    paths = [path.replace("{id}", "{id:str}").replace("{ref}", "{ref:str}") for path in known]
    # Of a stream the head alone cannot be asked for: it has no end to wait for.
    methods: Any = ["GET", "HEAD"] if verb.method == "GET" and verb is not ServerVerbs.events else [verb.method]
    return HTTPRouteHandler(paths, http_method=methods, name=verb.name, status_code=200)(respond)


async def _request_context(verb: AnyVerb, service: Service, request: Request[Any, Any, Any]) -> RequestContext[Any]:
    authenticate: Callable[[], Scope] = partial(service.authenticator.authenticate, request, writes=verb.writes)
    if verb.is_open or verb.path in service.config.open_paths:
        authenticate = Scope
    scope = authenticate()
    raw, body = await _read_body(verb.body, service, request) if verb.body else (b"", None)
    query = read_query(request.query_params, verb.query)
    names = request.path_params
    return RequestContext(
        service=service,
        scope=scope,
        raw=raw,
        params=body or query,
        headers=request.headers,
        id=names.get("id", ""),
        ref=names.get("ref", ""),
        authenticate=authenticate,
    )


async def _read_body(kind: type[Struct], service: Service, request: Request[Any, Any, Any]) -> tuple[bytes, Struct]:
    try:
        raw = await request.body()
    except InternalServerException as error:  # all that it can mean here
        raise RequestRefused(499, "The client went away before its request was complete.") from error
    content_type, encoding = (request.headers.get(name, "") for name in ("content-type", "content-encoding"))
    if encoding:  # a few bytes of it may be many
        raw = await service.run(partial(decompress, raw, encoding, service.config.max_body_bytes))
    read = partial(decode_body, raw, kind, content_type)
    return raw, await service.run(read) if len(raw) > LARGE_BODY else read()


async def _idempotent(verb: AnyVerb, handler: Handler[Any, Any], context: RequestContext[Any]) -> Any:
    """Do what is asked; when it was done before under the same key, answer as then.

    An append keeps its key with its messages, in one transaction. Of anything else it is noted that it was begun, then
    what it was answered: one that was broken off in between is never done again by itself.
    """
    key = "" if verb is Verbs.append else context.key
    if not key:
        return await handler(context)
    answers, run, prefix = context.service.service_store.answers, context.service.run, context.scope.prefix
    body_hash = sha256("\n".join((verb.name, context.id, context.ref, "")).encode() + context.raw).hexdigest()
    if not await run(lambda: answers.take(prefix, key, body_hash, timestamp(wall_clock()))):
        kept = await run(lambda: answers.find(prefix, key, body_hash))
        if kept is None or not kept.answer:
            raise RequestRefused(
                503,
                "A request with this Idempotency-Key is under way, or was broken off. "
                "Try: again in a moment; else look whether it was done, then use another key.",
            )
        status, _, content = kept.answer.partition(" ")
        return json_response(content.encode(), status=int(status), headers={"Idempotency-Replayed": "true"})
    try:
        answer: Any = await handler(context)
    except Exception as error:
        if not isinstance(error, StoreError) or isinstance(error, StoreLocked):  # else it may have been done
            await run(lambda: answers.release(prefix, key))
        raise
    out: JsonResponse[Struct] = answer if isinstance(answer, JsonResponse) else json_response(answer)
    try:
        await run(lambda: answers.keep(prefix, key, f"{out.status} {out.content.decode()}"))
    except StoreError as error:
        _log.warning("what %s was answered could not be kept: %s", verb.name, error)
    return out


def _public_text(scope: Scope, session_id: str, error: CompactorError) -> str:
    """An error's text as its caller may read it: with the session's own name, and nothing of other sessions."""
    if isinstance(error, UnknownSession) and session_id:
        return f"There is no session {session_id[:80]!r}. Try: GET /v1/sessions."
    return scope.public_text(str(error), scope.prefix + session_id) if session_id else str(error)


def _openapi(service: Service) -> HTTPRouteHandler:
    def make() -> bytes:
        from context_compactor.server.openapi import document  # its examples take a quarter of the time to start

        return document()

    async def openapi() -> ASGIResponse:
        return ASGIResponse(body=await service.run(make), media_type="application/json")

    return HTTPRouteHandler("/openapi.json", http_method=["GET", "HEAD"], name="openapi")(openapi)
