"""Handlers for operators: metrics, liveness and readiness."""

from __future__ import annotations

from litestar.response.base import ASGIResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from context_compactor.server.requests import RequestContext
from context_compactor.sessions.api import NoQuery

MEDIA_TYPE = "text/plain"


async def metrics(asked: RequestContext[None, NoQuery]) -> ASGIResponse:
    """Give the numbers of the server and its store as Prometheus reads them."""
    page = await asked.service.run(asked.service.metrics.page)
    return ASGIResponse(body=page, media_type=CONTENT_TYPE_LATEST)
