"""Every page and button of the dashboard as a table, logging in and out, and the way from a request to a page."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from msgspec import Meta, Struct

from context_compactor.errors import CompactorError, UnknownSession
from context_compactor.server.dashboard import (
    actions,
    activity,
    archive,
    compactions,
    proxy,
    quality,
    session,
    sessions,
)
from context_compactor.server.dashboard.layout import (
    PAGE_HEADERS,
    HtmlPage,
    file_response,
    html_response,
    redirect,
    show_controls,
)
from context_compactor.server.dashboard.rendering import page_path, render
from context_compactor.server.dashboard.requests import (
    MAX_FORM_BYTES,
    NoForm,
    PageCaches,
    PageRequest,
    read_form,
    read_form_body,
    requested_part,
)
from context_compactor.server.middleware import cookie_name
from context_compactor.server.problems import RequestRefused, on_unexpected_error, problem_of
from context_compactor.server.requests import read_query
from context_compactor.server.service import Service
from context_compactor.server.tokens import Scope
from context_compactor.sessions.schemas import CompactBody, Problem


class LoginForm(Struct, frozen=True):
    """A token, and the page to go to."""

    token: Annotated[str, Meta(max_length=500)] = ""
    to: Annotated[str, Meta(max_length=2_000)] = "/"


def login_page(to: str, error: str = "") -> HtmlPage:
    """Where somebody says who they are."""
    values = {"to": local_path(to), "error": error}
    return HtmlPage(template="login.html", title="Log in", values=values, status=401 if error else 200)


def log_in(token: str, to: str, headers: Mapping[str, str]) -> ASGIResponse:
    """Give the cookie and go on."""
    return redirect(local_path(to), {"Set-Cookie": f"{cookie_name(headers)}={token}; {_cookie_attributes(headers)}"})


def log_out(headers: Mapping[str, str]) -> ASGIResponse:
    """Take the cookie back."""
    return redirect("/login", {"Set-Cookie": f"{cookie_name(headers)}=; Max-Age=0; {_cookie_attributes(headers)}"})


def _cookie_attributes(headers: Mapping[str, str]) -> str:
    """A proxy that speaks TLS says so; then the cookie is never sent without."""
    is_secure = headers.get("x-forwarded-proto", "") == "https"
    return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if is_secure else "")


def local_path(to: str) -> str:
    """A page of this server, whatever was asked for."""
    is_ours = to.startswith("/") and not to.startswith(("//", "/\\")) and to.isascii() and to.isprintable()
    return to if is_ours else "/"


_Request = Request[Any, Any, Any]
_SESSION = "/sessions/{id:str}"
_COOKIE_SAFE = re.compile(r"[!#-+\--:<-\[\]-~]{1,500}")
"""What a cookie can hold."""


class PageRoute(Struct, frozen=True, kw_only=True):
    """A page, or a button when `form` is given: then only whoever may write may press it."""

    path: str
    verb: Callable[[Any], Awaitable[HtmlPage | dict[str, Any]]]
    query: type[Struct] = NoForm
    form: type[Struct] | None = None


PAGE_ROUTES = (
    PageRoute(path="/", verb=sessions.sessions, query=sessions.ListQuery),
    PageRoute(path=_SESSION, verb=compactions.compactions, query=compactions.PageNumber),
    PageRoute(path=f"{_SESSION}/now", verb=session.now, query=session.StatusQuery),
    PageRoute(path=f"{_SESSION}/series.json", verb=session.series),
    PageRoute(path=f"{_SESSION}/compactions", verb=compactions.compactions, query=compactions.PageNumber),
    PageRoute(path=f"{_SESSION}/compactions/{{ref:str}}", verb=compactions.compaction),
    PageRoute(path=f"{_SESSION}/compactions/{{ref:str}}/changes", verb=compactions.changes),
    PageRoute(path=f"{_SESSION}/plan", verb=compactions.plan, query=compactions.PlanPageQuery),
    PageRoute(path=f"{_SESSION}/archive", verb=archive.archive, query=archive.ArchiveQuery),
    PageRoute(path=f"{_SESSION}/archive/{{ref:str}}", verb=archive.recall, query=archive.OriginalPageQuery),
    PageRoute(path=f"{_SESSION}/facts", verb=archive.facts, query=archive.FactsPageQuery),
    PageRoute(path="/activity", verb=activity.activity, query=activity.ActivityQuery),
    PageRoute(path="/quality", verb=quality.quality),
    PageRoute(path="/quality/series.json", verb=quality.quality_series),
    PageRoute(path="/proxy", verb=proxy.proxy),
    PageRoute(path=f"{_SESSION}/compact", verb=actions.compact, form=CompactBody),
    PageRoute(path=f"{_SESSION}/undo", verb=actions.undo, form=NoForm),
    PageRoute(path=f"{_SESSION}/redo", verb=actions.redo, form=NoForm),
    PageRoute(path=f"{_SESSION}/archive/{{ref:str}}/restore", verb=actions.restore, form=NoForm),
    PageRoute(path=f"{_SESSION}/delete", verb=actions.delete, form=NoForm),
)


def dashboard_routes(service: Service) -> list[HTTPRouteHandler]:
    """The routes of the dashboard."""
    caches = PageCaches()
    return [*(_page_handler(view, service, caches) for view in PAGE_ROUTES), *_login_routes(service), _static_route()]


def _page_handler(view: PageRoute, service: Service, caches: PageCaches) -> HTTPRouteHandler:
    async def answer(request: _Request) -> ASGIResponse:
        try:
            scope = _authenticate(view, service, request)
            return await _render(view, service, caches, scope, request)
        except RequestRefused as refused:
            return _refused(request, refused, service)
        except CompactorError as error:
            return _problem_page(request, problem_of(error, _public_text(service, request, error)), service)

    methods: list[Literal["GET", "HEAD", "POST"]] = ["POST"] if view.form else ["GET", "HEAD"]
    name = f"dashboard {methods[0]} {view.path}"
    return HTTPRouteHandler(
        view.path,
        http_method=methods,
        name=name,
        exception_handlers={Exception: _on_unexpected},
        request_max_body_size=MAX_FORM_BYTES,
    )(answer)


def _authenticate(view: PageRoute, service: Service, request: _Request) -> Scope:
    if view.form:
        refuse_other_sites(request)
    return service.authenticator.authenticate(request, writes=view.form is not None, from_page=True)


def refuse_other_sites(request: _Request) -> None:
    """A browser says from where a form or script calls: only our own pages may change anything."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise RequestRefused(403, "Only the dashboard's own pages may do that. Try: open the dashboard itself.")


async def _render(
    view: PageRoute, service: Service, caches: PageCaches, scope: Scope, request: _Request
) -> ASGIResponse:
    names = request.path_params
    raw = await read_form_body(request) if view.form else b""
    page_request: PageRequest[Any, Any] = PageRequest(
        service=service,
        scope=scope,
        caches=caches,
        raw=raw,
        body=read_form(raw, view.form) if view.form else None,
        query=read_query(request.query_params, view.query),
        headers=request.headers,
        id=names.get("id", ""),
        ref=names.get("ref", ""),
        part=requested_part(request.headers),
    )
    answer = await view.verb(page_request)
    if isinstance(answer, dict):
        return _json(answer)
    changed = {"HX-Trigger": "changed"} if answer.refresh else {}
    content = answer.render(scope, has_tokens=service.authenticator.requires_token, request=page_request)
    return html_response(content, answer.status, {**answer.headers, **changed})


def _json(answer: dict[str, Any]) -> ASGIResponse:
    return ASGIResponse(
        body=show_controls(msgspec.json.encode(answer).decode()).encode(),
        media_type="application/json",
        headers=PAGE_HEADERS,
    )


def _refused(request: _Request, refused: RequestRefused, service: Service) -> ASGIResponse:
    if refused.status != 401:
        return _problem_page(request, problem_of(refused), service)
    if request.headers.get("hx-request"):
        return html_response("", 401, {"HX-Redirect": "/login"})
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return redirect(page_path("login", to=local_path(asked) if local_path(asked) != "/" else None))


def _problem_page(request: _Request, found: Problem, service: Service) -> ASGIResponse:
    """What went wrong: in the place of what was asked for, or as a page of its own."""
    if request.headers.get("hx-request"):
        return html_response(_problem_part(found), found.status)
    page = HtmlPage(template="problem.html", title=found.title, values={"detail": found.detail})
    try:
        scope = service.authenticator.authenticate(request, writes=False, from_page=True)
    except RequestRefused:
        scope = None
    return html_response(page.render(scope, has_tokens=service.authenticator.requires_token), found.status)


def _problem_part(found: Problem) -> str:
    return render("problem.html", {"title": found.title, "detail": found.detail}, "problem")


def _public_text(service: Service, request: _Request, error: CompactorError) -> str:
    """An error's text as its reader may see it."""
    session_id = request.path_params.get("id", "")
    if isinstance(error, UnknownSession):
        return f"There is no session {session_id[:80]!r}, or no longer."
    scope = service.authenticator.authenticate(request, writes=False, from_page=True)
    return scope.public_text(str(error), scope.prefix + session_id) if session_id else str(error)


def _on_unexpected(request: _Request, error: Exception) -> Response[bytes]:
    """A failure that nobody has foreseen: the log has it under a name that the page shows."""
    noted = on_unexpected_error(request, error)
    found = msgspec.json.decode(noted.content, type=Problem)
    content = show_controls(_problem_part(found)).encode()
    return Response(content, status_code=500, media_type="text/html", headers=PAGE_HEADERS)


def _login_routes(service: Service) -> list[HTTPRouteHandler]:
    authenticator = service.authenticator

    def shown(page: HtmlPage) -> ASGIResponse:
        return html_response(page.render(None, has_tokens=True), page.status)

    async def ask(request: _Request) -> ASGIResponse:
        return shown(login_page(request.query_params.get("to", "/"))) if authenticator.requires_token else redirect("/")

    async def enter(request: _Request) -> ASGIResponse:
        refuse_other_sites(request)
        form = read_form(await read_form_body(request), LoginForm)
        token = form.token.strip()
        if not _COOKIE_SAFE.fullmatch(token) or not authenticator.knows(token):
            return shown(login_page(form.to, "This token is not known. Try: copy it whole, or make another one."))
        return log_in(token, form.to, request.headers)

    async def leave(request: _Request) -> ASGIResponse:
        refuse_other_sites(request)
        return log_out(request.headers)

    def route(method: Literal["GET", "POST"], path: str, verb: Any) -> HTTPRouteHandler:
        return HTTPRouteHandler(
            path, http_method=method, name=f"dashboard {method} {path}", request_max_body_size=MAX_FORM_BYTES
        )(verb)

    return [route("GET", "/login", ask), route("POST", "/login", enter), route("POST", "/logout", leave)]


def _static_route() -> HTTPRouteHandler:
    async def file(request: _Request) -> ASGIResponse:
        names = request.path_params
        return file_response(names["version"], names["name"])

    return HTTPRouteHandler("/static/{version:str}/{name:str}", http_method="GET", name="dashboard file")(file)
