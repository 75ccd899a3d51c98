"""What stands around every page: the head, the way to the other pages, and the places where changes are told."""

from __future__ import annotations

from context_compactor import __version__
from context_compactor.markup import Markup, element, join
from context_compactor.server.dashboard.sending import Page
from context_compactor.server.dashboard.static_files import address_of
from context_compactor.server.scope import Scope

_PLACES = (("Sessions", "/"), ("Activity", "/activity"), ("Quality", "/quality"))
# No inline style, no code in attributes, and the browser's own history.
_HTMX = '{"includeIndicatorCSS": false, "history": false, "defaultTimeout": 30000}'


def framed(page: Page, scope: Scope | None, *, has_tokens: bool) -> Markup:
    """The whole document. Without a scope nobody is logged in, and there is nowhere to go."""
    whole = element(
        "html",
        _head(page.title),
        element(
            "body",
            element("a", "Skip to content", class_="skip", href="#main"),
            _top(page.place, scope, has_tokens=has_tokens),
            _banner(),
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
        element("link", rel="icon", href=address_of("icon.svg"), type="image/svg+xml"),
        *(element("link", rel="stylesheet", href=address_of(name)) for name in ("uPlot.min.css", "dashboard.css")),
        *(
            element("script", src=address_of(name), defer=True)
            for name in ("htmx.min.js", "uPlot.min.js", "charts.js", "dashboard.js")
        ),
    )


def _top(place: str, scope: Scope | None, *, has_tokens: bool) -> Markup:
    brand = element("a", Markup(_MARK), element("span", "Context Compactor"), class_="brand", href="/")
    if scope is None:
        return element("header", brand, class_="top")
    links = (
        element("li", element("a", name, href=to, aria_current="page" if name == place else None))
        for name, to in _PLACES
    )
    return element(
        "header",
        brand,
        element("nav", element("ul", *links), aria_label="Pages"),
        element("span", "connecting", id="pulse", class_="pulse", title="How this page is kept up to date"),
        _who(scope) if has_tokens else "",
        class_="top",
    )


def _who(scope: Scope) -> Markup:
    kind = "" if scope.may_write else " · read-only"
    name = element("span", f"{scope.name}{'@' + scope.namespace if scope.namespace else ''}{kind}", class_="who")
    leave = element("form", element("button", "Log out", class_="quiet"), method="post", action="/logout")
    return join((name, leave))


def _banner() -> Markup:
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


_MARK = (
    '<svg class="mark" viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">'
    '<path d="M2 20 9 6v11L16 5v9l6-9" fill="none" stroke="currentColor" stroke-width="2.4" '
    'stroke-linejoin="round" stroke-linecap="round"/></svg>'
)
