"""The only way out of the dashboard. Whatever a transcript holds, it leaves here as a text that can be seen.

Nothing may be loaded from elsewhere, no script or style may stand in a page, and no other site may frame one.
"""

from __future__ import annotations

from litestar.response.base import ASGIResponse
from msgspec import Struct, field

from context_compactor.markup import Markup

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With `no-referrer` a browser would not say any more which site a form comes from.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NEVER_KEPT = {"Cache-Control": "no-store"}

_KEPT = "\n\t"
# What turns the direction of a text, joins or hides characters: each is shown by its number.
_UNSEEN = (0x00AD, 0x061C, 0x180E, 0xFEFF, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070))
_NUMBERED = (*range(0x7F, 0xA0), *_UNSEEN, *range(0xD800, 0xE000), *range(0xE0000, 0xE0080))
_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT} | {
    code: f"\u27e8U+{code:04X}\u27e9" for code in _NUMBERED
}


class Page(Struct, frozen=True, kw_only=True):
    """A page, or a part of one when `title` is empty. `tell` makes the other parts of the page look again."""

    body: Markup
    title: str = ""
    place: str = ""
    status: int = 200
    tell: bool = False
    headers: dict[str, str] = field(default_factory=dict)


def visible(text: str) -> str:
    """A text whose control characters, changes of direction and halves of characters can be seen and do nothing."""
    return text.translate(_VISIBLE)


def html_response(content: str, status: int = 200, headers: dict[str, str] | None = None) -> ASGIResponse:
    """A page on its way out."""
    return ASGIResponse(
        body=visible(content).encode(),
        status_code=status,
        media_type="text/html",
        headers={**HEADERS, **NEVER_KEPT, **(headers or {})},
    )


def redirect(place: str, headers: dict[str, str] | None = None) -> ASGIResponse:
    """Go there and look."""
    return ASGIResponse(
        body=b"", status_code=303, headers={**HEADERS, **NEVER_KEPT, "Location": place, **(headers or {})}
    )
