"""Handlers for operators: liveness, readiness and metrics."""

from __future__ import annotations

from litestar.response.base import ASGIResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from context_compactor import __version__
from context_compactor.server.problems import problem_response
from context_compactor.server.requests import RequestContext, handles
from context_compactor.sessions.schemas import PROBLEM_TYPE, HealthAnswer, NoQuery, Problem
from context_compactor.sessions.verbs import ServerVerbs, Verbs

_HEALTHY = HealthAnswer(status="ok", version=__version__)


@handles(Verbs.health)
async def healthz(_: RequestContext[NoQuery]) -> HealthAnswer:
    return _HEALTHY


@handles(ServerVerbs.readyz)
async def readyz(request: RequestContext[NoQuery]) -> HealthAnswer | ASGIResponse:
    failing = await request.service.readiness.failing()
    if not failing:
        return _HEALTHY
    more = "" if "read" in failing else " What is stored can still be read."
    detail = f"The store fails to {' and to '.join(sorted(failing))}.{more} The server's log says why."
    return problem_response(Problem(type=f"{PROBLEM_TYPE}not-ready", title="Not ready", status=503, detail=detail))


@handles(ServerVerbs.metrics)
async def metrics(request: RequestContext[NoQuery]) -> ASGIResponse:
    page = await request.service.run(request.service.metrics.render)
    return ASGIResponse(body=page, media_type=CONTENT_TYPE_LATEST)
