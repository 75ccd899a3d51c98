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

from litestar import Litestar, Request
from litestar.config.compression import CompressionConfig
from litestar.config.cors import CORSConfig
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, ControllerRouterHandler

from context_compactor.errors import CompactorError, UnknownSession
from context_compactor.server.asked import Asked, decode, read_query
from context_compactor.server.gate import house_rules
from context_compactor.server.openapi import document
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
from context_compactor.server.sending import response_of
from context_compactor.server.service import Service

_GZIP_FROM = 1_000
_GZIP_LEVEL = 4


def make_app(service: Service, routers: Sequence[ControllerRouterHandler] = ()) -> ASGIApp:
    """The ASGI app of a service. The service is closed when the app stops."""

    @asynccontextmanager
    async def life(_: Litestar) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    origins = service.config.origins
    app = Litestar(
        [*(_endpoint(route, service) for route in ROUTES), _openapi(), *routers],
        lifespan=[life],
        openapi_config=None,
        logging_config=None,
        cors_config=CORSConfig(allow_origins=list(origins), expose_headers=["ETag"]) if origins else None,
        compression_config=CompressionConfig(
            "gzip", minimum_size=_GZIP_FROM, gzip_compress_level=_GZIP_LEVEL, exclude_opt_key="never_packed"
        ),
        request_max_body_size=service.config.max_body_bytes,
        exception_handlers={
            Refused: on_refused,
            CompactorError: on_error,
            HTTPException: on_http,
            Exception: on_failure,
        },
    )
    return house_rules(app, service.config.hosts, origins)


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
        finally:
            service.metrics.time(route.path, route.method, status, time.perf_counter() - began)
        return response

    async def answered(request: Request[Any, Any, Any]) -> ASGIResponse:
        asked = await _read(route, service, _admission(route, service, request), request)
        try:
            return response_of(await route.verb(asked))
        except CompactorError as error:
            return problem_response(problem_of(error, _told(asked.scope, asked.id, error)))

    path = route.path.replace("{id}", "{id:str}").replace("{ref}", "{ref:str}")
    method: Any = route.method
    opt = {"never_packed": route.is_endless}
    return HTTPRouteHandler(path, http_method=method, name=route.name, status_code=200, opt=opt)(answer)


def _admission(route: Route, service: Service, request: Request[Any, Any, Any]) -> Callable[[], Scope]:
    """What tells, as often as it is asked, what the caller may see, or refuses it."""
    if route.is_open or route.path in service.config.open_paths:
        return Scope
    return partial(service.doorman.admit, request, writes=route.writes)


async def _read(
    route: Route, service: Service, admitted: Callable[[], Scope], request: Request[Any, Any, Any]
) -> Asked[Any, Any]:
    scope = admitted()
    raw = await request.body() if route.body else b""
    names = request.path_params
    return Asked(
        service=service,
        scope=scope,
        raw=raw,
        body=decode(raw, route.body, request.headers.get("content-type", "")) if route.body else None,
        query=read_query(request.query_params, route.query),
        headers=request.headers,
        id=names.get("id", ""),
        ref=names.get("ref", ""),
        admitted=admitted,
    )


def _told(scope: Scope, session_id: str, error: CompactorError) -> str:
    """An error's text as its caller may read it: with the session's own name, and nothing of other sessions."""
    if isinstance(error, UnknownSession):
        return f"There is no session {session_id[:80]!r}. Try: GET /v1/sessions."
    return scope.told(str(error), scope.prefix + session_id) if session_id else str(error)


def _openapi() -> HTTPRouteHandler:
    content = document()

    async def openapi() -> ASGIResponse:
        return ASGIResponse(body=content, media_type="application/json")

    return HTTPRouteHandler("/openapi.json", http_method="GET", name="openapi")(openapi)
