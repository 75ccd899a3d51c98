"""From a page to an HTML response: security headers, static files, the frame around every page, and the 404 page."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from litestar import Request, Response
from litestar.exceptions import NotFoundException
from litestar.response.base import ASGIResponse
from msgspec import Struct, field

from context_compactor.server.dashboard.rendering import ENVIRONMENT, render
from context_compactor.server.problems import RequestRefused, on_http_exception
from context_compactor.server.tokens import Scope

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With `no-referrer` a browser would not say any more which site a form comes from.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_ALLOWED_CONTROLS = "\n\t"
# What turns the direction of a text, joins or hides characters: each is shown by its number.
_INVISIBLE = (0x00AD, 0x061C, 0x180E, 0xFEFF, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070))
_NUMBERED = (*range(0x7F, 0xA0), *_INVISIBLE, *range(0xD800, 0xE000), *range(0xE0000, 0xE0080))
_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _ALLOWED_CONTROLS} | {
    code: f"\u27e8U+{code:04X}\u27e9" for code in _NUMBERED
}


class HtmlPage(Struct, frozen=True, kw_only=True):
    """A page as its template and the values in it.

    It is a part of a page when `title` is empty: all of the template, or the block `part`. `refresh` makes the other
    parts of the page that is shown look again.
    """

    template: str
    values: dict[str, Any] = field(default_factory=dict)
    part: str = ""
    title: str = ""
    place: str = ""
    status: int = 200
    refresh: bool = False
    headers: dict[str, str] = field(default_factory=dict)

    def render(self, scope: Scope | None, *, has_tokens: bool, **values: object) -> str:
        """The page as HTML. Without a scope nobody is logged in, and there is nowhere to go."""
        frame = {"title": self.title, "place": self.place, "scope": scope, "has_tokens": has_tokens}
        return render(self.template, {**frame, **values, **self.values}, self.part)


def show_controls(text: str) -> str:
    """A text whose control characters, changes of direction and halves of characters can be seen and do nothing."""
    return text.translate(_VISIBLE)


def html_response(content: str, status: int = 200, headers: dict[str, str] | None = None) -> ASGIResponse:
    """A page on its way out."""
    return ASGIResponse(
        body=show_controls(content).encode(),
        status_code=status,
        media_type="text/html",
        headers={**PAGE_HEADERS, **(headers or {})},
    )


def redirect(path: str, headers: dict[str, str] | None = None) -> ASGIResponse:
    """Go there and look."""
    return ASGIResponse(body=b"", status_code=303, headers={**PAGE_HEADERS, "Location": path, **(headers or {})})


_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_VENDOR = ("htmx.min.js", "uPlot.min.js", "uPlot.min.css")
STATIC_FILES = ("dashboard.css", "dashboard.js", "charts.js", "icon.svg", *_VENDOR)


@cache
def static_content(name: str) -> bytes:
    """A file as it is in the package."""
    folder = files(__package__) / "static"
    return (folder / "vendor" / name if name in _VENDOR else folder / name).read_bytes()


@cache
def static_url(name: str) -> str:
    """Where a page finds a file; another content has another address."""
    return f"/static/{sha256(static_content(name)).hexdigest()[:12]}/{name}"


ENVIRONMENT.globals["static_url"] = static_url


def file_response(version: str, name: str) -> ASGIResponse:
    """A file on its way out."""
    if name not in STATIC_FILES or static_url(name) != f"/static/{version}/{name}":
        raise RequestRefused(404, "There is no such file. Try: load the page again.")
    return ASGIResponse(
        body=static_content(name),
        media_type=_MEDIA_TYPES[name[name.rindex(".") :]],
        headers={**PAGE_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"},
    )


def on_not_found(request: Request[Any, Any, Any], error: NotFoundException) -> Response[bytes]:
    """The answer to a path that nobody knows. It says nothing that only some may know."""
    if "text/html" not in request.headers.get("accept", ""):
        return on_http_exception(request, error)
    detail = f"No page of this server is at {request.url.path[:80]}."
    page = HtmlPage(template="not_found.html", title="Nothing is here", values={"detail": detail})
    content = show_controls(page.render(None, has_tokens=False)).encode()
    return Response(content, status_code=404, media_type="text/html", headers=PAGE_HEADERS)
