"""Coming in with a token and going out again.

A cookie carries the token itself, so the server has nothing to remember, several servers take the same one, and a token
that is taken away counts no more at once. No script can read it, no other site can make a browser send it, and it is
gone when the browser is closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from litestar.response.base import ASGIResponse
from msgspec import Meta, Struct

from context_compactor.markup import element, join
from context_compactor.server.dashboard.pieces import problem
from context_compactor.server.dashboard.sending import Page, redirect
from context_compactor.server.gate import cookie_name

_LEAD = "Watch how full the contexts of your agents are, and what was done about it."


class LoginForm(Struct, frozen=True):
    """A token, and the page to go to."""

    token: Annotated[str, Meta(max_length=500)] = ""
    to: Annotated[str, Meta(max_length=2_000)] = "/"


def login_page(to: str, error: str = "") -> Page:
    """Where somebody says who they are."""
    form = element(
        "form",
        element(
            "label",
            element("span", "Token"),
            element(
                "input",
                type="password",
                name="token",
                required=True,
                autofocus=True,
                autocomplete="current-password",
                maxlength=500,
                placeholder="cct_…",
                spellcheck="false",
                aria_describedby="token-help",
            ),
        ),
        element(
            "p", "It was shown once, by ", element("code", "compactor token add"), ".", class_="faint", id="token-help"
        ),
        element("input", type="hidden", name="to", value=local(to)),
        element("button", "Log in"),
        method="post",
        action="/login",
    )
    told = problem("That did not work", error) if error else ""
    body = element("div", element("h1", "Log in"), element("p", _LEAD, class_="faint"), told, form, class_="card entry")
    return Page(title="Log in", body=join((body,)), status=401 if error else 200)


def let_in(token: str, to: str, headers: Mapping[str, str]) -> ASGIResponse:
    """Give the cookie and go on."""
    return redirect(local(to), {"Set-Cookie": f"{cookie_name(headers)}={token}; {_attributes(headers)}"})


def let_out(headers: Mapping[str, str]) -> ASGIResponse:
    """Take the cookie back."""
    return redirect("/login", {"Set-Cookie": f"{cookie_name(headers)}=; Max-Age=0; {_attributes(headers)}"})


def _attributes(headers: Mapping[str, str]) -> str:
    """A proxy that speaks TLS says so; then the cookie is never sent without."""
    is_secure = headers.get("x-forwarded-proto", "") == "https"
    return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if is_secure else "")


def local(to: str) -> str:
    """A page of this server, whatever was asked for."""
    is_ours = to.startswith("/") and not to.startswith(("//", "/\\")) and to.isascii() and to.isprintable()
    return to if is_ours else "/"
