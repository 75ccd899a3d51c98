"""A path that is not there: a browser is shown a page with a way back, everybody else is told a problem."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response
from litestar.exceptions import NotFoundException

from context_compactor.markup import element, join
from context_compactor.server.dashboard.frame import framed
from context_compactor.server.dashboard.pieces import problem
from context_compactor.server.dashboard.sending import HEADERS, NEVER_KEPT, Page, visible
from context_compactor.server.problems import on_http

_TITLE = "Nothing is here"


def on_lost(request: Request[Any, Any, Any], error: NotFoundException) -> Response[bytes]:
    """The answer to a path that nobody knows. It says nothing that only some may know."""
    if "text/html" not in request.headers.get("accept", ""):
        return on_http(request, error)
    told = problem(_TITLE, f"No page of this server is at {request.url.path[:80]}.")
    back = element("p", element("a", "To the sessions", href="/"))
    page = Page(title=_TITLE, body=join((told, back)))
    content = visible(framed(page, None, has_tokens=False)).encode()
    return Response(content, status_code=404, media_type="text/html", headers={**HEADERS, **NEVER_KEPT})
