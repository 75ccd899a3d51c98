"""Style, script and libraries, served from memory. Their addresses change with their content, so they are kept long."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

from litestar.response.base import ASGIResponse

from context_compactor.server.dashboard.sending import HEADERS
from context_compactor.server.problems import Refused

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
NAMES = ("dashboard.css", "dashboard.js", "charts.js", "icon.svg", "htmx.min.js", "uPlot.min.js", "uPlot.min.css")
_VENDOR = ("htmx.min.js", "uPlot.min.js", "uPlot.min.css")


@cache
def content_of(name: str) -> bytes:
    """A file as it is in the package."""
    folder = files(__package__) / "static"
    return (folder / "vendor" / name if name in _VENDOR else folder / name).read_bytes()


@cache
def address_of(name: str) -> str:
    """Where a page finds a file; another content has another address."""
    return f"/static/{sha256(content_of(name)).hexdigest()[:12]}/{name}"


def file_response(version: str, name: str) -> ASGIResponse:
    """A file on its way out."""
    if name not in NAMES or address_of(name) != f"/static/{version}/{name}":
        raise Refused(404, "There is no such file. Try: load the page again.")
    return ASGIResponse(
        body=content_of(name),
        media_type=_TYPES[name[name.rindex(".") :]],
        headers={**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"},
    )
