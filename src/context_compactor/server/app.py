"""The app: every route of the table behind the gate, with gzip, a limit for bodies, and problems as JSON.

A router of its own (events, webhooks, metrics, the dashboard) is given to `make_app` and calls `Service.doorman.admit`
before it answers anybody.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
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

from context_compactor.errors import CompactorError, UnknownSession
from context_compactor.server.asked import Asked, decode, read_query
from context_compactor.server.gate import house_rules
from context_compactor.server.problems import (
    Refused,
    on_error,
    on_failure,
    on_http,
    on_refused,
    problem_of,
    problem_response,
)
from context_compactor.server.routes import ROUTES, Route
from context_compactor.server.scope import Scope
from context_compactor.server.sending import LARGE, PACKED_FROM, PACKING_LEVEL, response_of
from context_compactor.server.service import Service


def make_app(
    service: Service, routers: Sequence[ControllerRouterHandler] = (), on_lost: ExceptionHandler[Any] = on_http
) -> ASGIApp:
    """The ASGI app of a service, which is closed when the app stops. `on_lost` answers for paths that are not there."""

    @asynccontextmanager
    async def life(_: Litestar) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    origins = service.config.origins
    app = Litestar(
        [*(_endpoint(route, service) for route in ROUTES), _packed([_openapi(service), *routers])],
        lifespan=[life],
        openapi_config=None,
        logging_config=None,
        cors_config=CORSConfig(allow_origins=list(origins), expose_headers=["ETag"]) if origins else None,
        request_max_body_size=service.config.max_body_bytes,
        exception_handlers={
            Refused: on_refused,
            CompactorError: on_error,
            NotFoundException: on_lost,
            HTTPException: on_http,
            Exception: on_failure,
        },
    )
    return house_rules(app, service.config.hosts, origins)


def _packed(handlers: Sequence[ControllerRouterHandler]) -> Router:
    """Pages, whose answers the framework packs, in the event loop. Those of the routes are packed by `response_of`."""
    config = CompressionConfig("gzip", minimum_size=PACKED_FROM, gzip_compress_level=PACKING_LEVEL)
    return Router("/", route_handlers=handlers, middleware=[DefineMiddleware(CompressionMiddleware, config=config)])


def _endpoint(route: Route, service: Service) -> HTTPRouteHandler:
    """A route as the framework knows it: admit, read, do, answer."""

    async def answer(request: Request[Any, Any, Any]) -> ASGIResponse:
        began = time.perf_counter()
        status = 500
        try:
            response = await answered(request)
            status = response.status_code
        except Refused as refused:
            status = refused.status
            raise
        except HTTPException as refused:
            status = refused.status_code
            raise
        finally:
            service.metrics.time(route.path, route.method, status, time.perf_counter() - began)
        return response

    async def answered(request: Request[Any, Any, Any]) -> ASGIResponse:
        asked = await _read(route, service, _admission(route, service, request), request)
        try:
            answer = await route.verb(asked)
            return await response_of(answer, request.headers.get("accept-encoding", ""), service.run)
        except CompactorError as error:
            return problem_response(problem_of(error, _told(asked.scope, asked.id, error)))

    path = route.path.replace("{id}", "{id:str}").replace("{ref}", "{ref:str}")
    methods: Any = route.methods
    return HTTPRouteHandler(path, http_method=methods, name=route.name, status_code=200)(answer)


def _admission(route: Route, service: Service, request: Request[Any, Any, Any]) -> Callable[[], Scope]:
    """What tells, as often as it is asked, what the caller may see, or refuses it."""
    if route.is_open or route.path in service.config.open_paths:
        return Scope
    return partial(service.doorman.admit, request, writes=route.writes)


async def _read(
    route: Route, service: Service, admitted: Callable[[], Scope], request: Request[Any, Any, Any]
) -> Asked[Any, Any]:
    scope = admitted()
    raw, body = await _body(route.body, service, request) if route.body else (b"", None)
    names = request.path_params
    return Asked(
        service=service,
        scope=scope,
        raw=raw,
        body=body,
        query=read_query(request.query_params, route.query),
        headers=request.headers,
        id=names.get("id", ""),
        ref=names.get("ref", ""),
        admitted=admitted,
    )


async def _body(kind: type[Struct], service: Service, request: Request[Any, Any, Any]) -> tuple[bytes, Struct]:
    try:
        raw = await request.body()
    except InternalServerException as error:  # all that it can mean here
        raise Refused(499, "The client went away before its request was complete.") from error
    read = partial(decode, raw, kind, request.headers.get("content-type", ""))
    return raw, await service.run(read) if len(raw) > LARGE else read()


def _told(scope: Scope, session_id: str, error: CompactorError) -> str:
    """An error's text as its caller may read it: with the session's own name, and nothing of other sessions."""
    if isinstance(error, UnknownSession) and session_id:
        return f"There is no session {session_id[:80]!r}. Try: GET /v1/sessions."
    return scope.told(str(error), scope.prefix + session_id) if session_id else str(error)


def _openapi(service: Service) -> HTTPRouteHandler:
    async def openapi() -> ASGIResponse:
        return ASGIResponse(body=await service.run(_document), media_type="application/json")

    return HTTPRouteHandler("/openapi.json", http_method=["GET", "HEAD"], name="openapi")(openapi)


def _document() -> bytes:
    from context_compactor.server.openapi import document  # its examples take a quarter of the time to start a server

    return document()
