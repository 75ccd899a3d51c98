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

from context_compactor import __version__
from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard.components import problem_box
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
}
NO_STORE = {"Cache-Control": "no-store"}

_ALLOWED_CONTROLS = "\n\t"
# What turns the direction of a text, joins or hides characters: each is shown by its number.
_INVISIBLE = (0x00AD, 0x061C, 0x180E, 0xFEFF, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070))
_NUMBERED = (*range(0x7F, 0xA0), *_INVISIBLE, *range(0xD800, 0xE000), *range(0xE0000, 0xE0080))
_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _ALLOWED_CONTROLS} | {
    code: f"\u27e8U+{code:04X}\u27e9" for code in _NUMBERED
}


class HtmlPage(Struct, frozen=True, kw_only=True):
    """A page, or a part of one when `title` is empty. `tell` makes the other parts of the page look again."""

    body: Markup
    title: str = ""
    place: str = ""
    status: int = 200
    tell: bool = False
    headers: dict[str, str] = field(default_factory=dict)


def show_controls(text: str) -> str:
    """A text whose control characters, changes of direction and halves of characters can be seen and do nothing."""
    return text.translate(_VISIBLE)


def html_response(content: str, status: int = 200, headers: dict[str, str] | None = None) -> ASGIResponse:
    """A page on its way out."""
    return ASGIResponse(
        body=show_controls(content).encode(),
        status_code=status,
        media_type="text/html",
        headers={**PAGE_HEADERS, **NO_STORE, **(headers or {})},
    )


def redirect(place: str, headers: dict[str, str] | None = None) -> ASGIResponse:
    """Go there and look."""
    return ASGIResponse(
        body=b"", status_code=303, headers={**PAGE_HEADERS, **NO_STORE, "Location": place, **(headers or {})}
    )


_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
STATIC_FILES = (
    "dashboard.css",
    "dashboard.js",
    "charts.js",
    "icon.svg",
    "htmx.min.js",
    "uPlot.min.js",
    "uPlot.min.css",
)
_VENDOR = ("htmx.min.js", "uPlot.min.js", "uPlot.min.css")


@cache
def static_content(name: str) -> bytes:
    """A file as it is in the package."""
    folder = files(__package__) / "static"
    return (folder / "vendor" / name if name in _VENDOR else folder / name).read_bytes()


@cache
def static_url(name: str) -> str:
    """Where a page finds a file; another content has another address."""
    return f"/static/{sha256(static_content(name)).hexdigest()[:12]}/{name}"


def file_response(version: str, name: str) -> ASGIResponse:
    """A file on its way out."""
    if name not in STATIC_FILES or static_url(name) != f"/static/{version}/{name}":
        raise RequestRefused(404, "There is no such file. Try: load the page again.")
    return ASGIResponse(
        body=static_content(name),
        media_type=_MEDIA_TYPES[name[name.rindex(".") :]],
        headers={**PAGE_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"},
    )


_NAVIGATION = (("Sessions", "/"), ("Activity", "/activity"), ("Quality", "/quality"))
# No inline style, no code in attributes, and the browser's own history.
_HTMX = '{"includeIndicatorCSS": false, "history": false, "defaultTimeout": 30000}'


def html_document(page: HtmlPage, scope: Scope | None, *, has_tokens: bool) -> Markup:
    """The whole document. Without a scope nobody is logged in, and there is nowhere to go."""
    whole = element(
        "html",
        _head(page.title),
        element(
            "body",
            element("a", "Skip to content", class_="skip", href="#main"),
            _header(page.place, scope, has_tokens=has_tokens),
            _offline_banner(),
            element("main", page.body, id="main", tabindex=-1),
            element("div", id="said", class_="said", role="status", aria_live="polite"),
            element("footer", f"Context Compactor {__version__}", class_="foot"),
            data_live=scope is not None,
        ),
        lang="en",
    )
    return Markup(f"<!doctype html>\n{whole}")


def _head(title: str) -> Markup:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="htmx-config", content=_HTMX),
        element("title", f"{title} · Context Compactor"),
        element("link", rel="icon", href=static_url("icon.svg"), type="image/svg+xml"),
        *(element("link", rel="stylesheet", href=static_url(name)) for name in ("uPlot.min.css", "dashboard.css")),
        *(
            element("script", src=static_url(name), defer=True)
            for name in ("htmx.min.js", "uPlot.min.js", "charts.js", "dashboard.js")
        ),
    )


def _header(place: str, scope: Scope | None, *, has_tokens: bool) -> Markup:
    brand = element("a", Markup(_LOGO), element("span", "Context Compactor"), class_="brand", href="/")
    if scope is None:
        return element("header", brand, class_="top")
    links = (
        element("li", element("a", name, href=to, aria_current="page" if name == place else None))
        for name, to in _NAVIGATION
    )
    return element(
        "header",
        brand,
        element("nav", element("ul", *links), aria_label="Pages"),
        element("span", "connecting", id="pulse", class_="pulse", title="How this page is kept up to date"),
        _account(scope) if has_tokens else "",
        class_="top",
    )


def _account(scope: Scope) -> Markup:
    kind = "" if scope.may_write else " · read-only"
    name = element("span", f"{scope.name}{'@' + scope.namespace if scope.namespace else ''}{kind}", class_="who")
    leave = element("form", element("button", "Log out", class_="quiet"), method="post", action="/logout")
    return join((name, leave))


def _offline_banner() -> Markup:
    return element(
        "div",
        element("strong", "The server does not answer."),
        " What you see may be old. Trying again ",
        element("span", "…", aria_hidden="true"),
        id="offline",
        class_="offline",
        role="alert",
        hidden=True,
    )


_LOGO = (
    '<svg class="mark" viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">'
    '<path d="M2 20 9 6v11L16 5v9l6-9" fill="none" stroke="currentColor" stroke-width="2.4" '
    'stroke-linejoin="round" stroke-linecap="round"/></svg>'
)


_NOT_FOUND_TITLE = "Nothing is here"


def on_not_found(request: Request[Any, Any, Any], error: NotFoundException) -> Response[bytes]:
    """The answer to a path that nobody knows. It says nothing that only some may know."""
    if "text/html" not in request.headers.get("accept", ""):
        return on_http_exception(request, error)
    told = problem_box(_NOT_FOUND_TITLE, f"No page of this server is at {request.url.path[:80]}.")
    back = element("p", element("a", "To the sessions", href="/"))
    page = HtmlPage(title=_NOT_FOUND_TITLE, body=join((told, back)))
    content = show_controls(html_document(page, None, has_tokens=False)).encode()
    return Response(content, status_code=404, media_type="text/html", headers={**PAGE_HEADERS, **NO_STORE})
