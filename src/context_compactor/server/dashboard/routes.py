"""Every page and every button of the dashboard, as a table, and the way from a request to a page and back."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from msgspec import Struct

from context_compactor.api import CompactBody, Problem
from context_compactor.errors import CompactorError, UnknownSession
from context_compactor.markup import element, join
from context_compactor.server.asked import read_query
from context_compactor.server.dashboard import (
    actions,
    activity,
    archive,
    changes,
    compactions,
    facts,
    plan,
    quality,
    session,
    sessions,
)
from context_compactor.server.dashboard.entry import LoginForm, let_in, let_out, local, login_page
from context_compactor.server.dashboard.frame import framed
from context_compactor.server.dashboard.pieces import problem
from context_compactor.server.dashboard.sending import HEADERS, NEVER_KEPT, Page, html_response, redirect, visible
from context_compactor.server.dashboard.static_files import file_response
from context_compactor.server.dashboard.visit import LONGEST_FORM, Kept, NoForm, Visit, form_of, part_of, read_form
from context_compactor.server.dashboard.words import path as path_of
from context_compactor.server.problems import Refused, on_failure, problem_of
from context_compactor.server.scope import Scope
from context_compactor.server.service import Service

_Request = Request[Any, Any, Any]
_SESSION = "/sessions/{id:str}"
_SENDABLE = re.compile(r"[!#-+\--:<-\[\]-~]{1,500}")
"""What a cookie can hold."""


class View(Struct, frozen=True, kw_only=True):
    """A page, or a button when `form` is given: then only whoever may write may press it."""

    path: str
    verb: Callable[[Any], Awaitable[Page | dict[str, Any]]]
    query: type[Struct] = NoForm
    form: type[Struct] | None = None


VIEWS = (
    View(path="/", verb=sessions.sessions, query=sessions.ListQuery),
    View(path=_SESSION, verb=compactions.compactions, query=compactions.PageNumber),
    View(path=f"{_SESSION}/now", verb=session.now, query=session.NowQuery),
    View(path=f"{_SESSION}/series.json", verb=session.series),
    View(path=f"{_SESSION}/compactions", verb=compactions.compactions, query=compactions.PageNumber),
    View(path=f"{_SESSION}/compactions/{{ref:str}}", verb=compactions.compaction),
    View(path=f"{_SESSION}/compactions/{{ref:str}}/changes", verb=changes.changes),
    View(path=f"{_SESSION}/plan", verb=plan.plan, query=plan.PlanQuery),
    View(path=f"{_SESSION}/archive", verb=archive.archive, query=archive.ArchiveQuery),
    View(path=f"{_SESSION}/archive/{{ref:str}}", verb=archive.recall, query=archive.RecallQuery),
    View(path=f"{_SESSION}/facts", verb=facts.facts, query=facts.FactsQuery),
    View(path="/activity", verb=activity.activity, query=activity.ActivityQuery),
    View(path="/quality", verb=quality.quality),
    View(path="/quality/series.json", verb=quality.quality_series),
    View(path=f"{_SESSION}/compact", verb=actions.compact, form=CompactBody),
    View(path=f"{_SESSION}/undo", verb=actions.undo, form=NoForm),
    View(path=f"{_SESSION}/redo", verb=actions.redo, form=NoForm),
    View(path=f"{_SESSION}/archive/{{ref:str}}/restore", verb=actions.restore, form=NoForm),
    View(path=f"{_SESSION}/delete", verb=actions.delete, form=NoForm),
)


def dashboard_routes(service: Service) -> list[HTTPRouteHandler]:
    """The routes of the dashboard."""
    kept = Kept()
    return [*(_view(view, service, kept) for view in VIEWS), *_entries(service), _static()]


def _view(view: View, service: Service, kept: Kept) -> HTTPRouteHandler:
    async def answer(request: _Request) -> ASGIResponse:
        try:
            scope = _admit(view, service, request)
            return await _shown(view, service, kept, scope, request)
        except Refused as refused:
            return _turned_away(request, refused, service)
        except CompactorError as error:
            return _failed(request, problem_of(error, _told(service, request, error)), service)

    methods: list[Literal["GET", "HEAD", "POST"]] = ["POST"] if view.form else ["GET", "HEAD"]
    name = f"dashboard {methods[0]} {view.path}"
    return HTTPRouteHandler(
        view.path,
        http_method=methods,
        name=name,
        exception_handlers={Exception: _on_failure},
        request_max_body_size=LONGEST_FORM,
    )(answer)


def _admit(view: View, service: Service, request: _Request) -> Scope:
    if view.form:
        refuse_other_sites(request)
    return service.doorman.admit(request, writes=view.form is not None, from_page=True)


def refuse_other_sites(request: _Request) -> None:
    """A browser says from where a form or script calls: only our own pages may change anything."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused(403, "Only the dashboard's own pages may do that. Try: open the dashboard itself.")


async def _shown(view: View, service: Service, kept: Kept, scope: Scope, request: _Request) -> ASGIResponse:
    names = request.path_params
    raw = await form_of(request) if view.form else b""
    visit: Visit[Any, Any] = Visit(
        service=service,
        scope=scope,
        kept=kept,
        raw=raw,
        body=read_form(raw, view.form) if view.form else None,
        query=read_query(request.query_params, view.query),
        headers=request.headers,
        id=names.get("id", ""),
        ref=names.get("ref", ""),
        part=part_of(request.headers),
    )
    answer = await view.verb(visit)
    if isinstance(answer, dict):
        return _json(answer)
    told = {"HX-Trigger": "told"} if answer.tell else {}
    content = framed(answer, scope, has_tokens=service.doorman.needs_token) if answer.title else answer.body
    return html_response(content, answer.status, {**answer.headers, **told})


def _json(answer: dict[str, Any]) -> ASGIResponse:
    return ASGIResponse(
        body=visible(msgspec.json.encode(answer).decode()).encode(),
        media_type="application/json",
        headers={**HEADERS, **NEVER_KEPT},
    )


def _turned_away(request: _Request, refused: Refused, service: Service) -> ASGIResponse:
    if refused.status != 401:
        return _failed(request, problem_of(refused), service)
    if request.headers.get("hx-request"):
        return html_response("", 401, {"HX-Redirect": "/login"})
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return redirect(path_of("login", to=local(asked) if local(asked) != "/" else None))


def _failed(request: _Request, found: Problem, service: Service) -> ASGIResponse:
    """What went wrong: in the place of what was asked for, or as a page of its own."""
    told = problem(found.title, found.detail)
    way = element("p", element("a", "← Sessions", href="/"), class_="way")
    if request.headers.get("hx-request"):
        return html_response(told, found.status)
    try:
        scope = service.doorman.admit(request, writes=False, from_page=True)
    except Refused:
        scope = None
    page = Page(title=found.title, body=join((way, told)), status=found.status)
    return html_response(framed(page, scope, has_tokens=service.doorman.needs_token), found.status)


def _told(service: Service, request: _Request, error: CompactorError) -> str:
    """An error's text as its reader may see it."""
    session_id = request.path_params.get("id", "")
    if isinstance(error, UnknownSession):
        return f"There is no session {session_id[:80]!r}, or no longer."
    scope = service.doorman.admit(request, writes=False, from_page=True)
    return scope.told(str(error), scope.prefix + session_id) if session_id else str(error)


def _on_failure(request: _Request, error: Exception) -> Response[bytes]:
    """A failure that nobody has foreseen: the log has it under a name that the page shows."""
    noted = on_failure(request, error)
    found = msgspec.json.decode(noted.content, type=Problem)
    content = visible(problem(found.title, found.detail)).encode()
    return Response(content, status_code=500, media_type="text/html", headers={**HEADERS, **NEVER_KEPT})


def _entries(service: Service) -> list[HTTPRouteHandler]:
    doorman = service.doorman

    def shown(page: Page) -> ASGIResponse:
        return html_response(framed(page, None, has_tokens=True), page.status)

    async def ask(request: _Request) -> ASGIResponse:
        return shown(login_page(request.query_params.get("to", "/"))) if doorman.needs_token else redirect("/")

    async def enter(request: _Request) -> ASGIResponse:
        refuse_other_sites(request)
        form = read_form(await form_of(request), LoginForm)
        token = form.token.strip()
        if not _SENDABLE.fullmatch(token) or not doorman.knows(token):
            return shown(login_page(form.to, "This token is not known. Try: copy it whole, or make another one."))
        return let_in(token, form.to, request.headers)

    async def leave(request: _Request) -> ASGIResponse:
        refuse_other_sites(request)
        return let_out(request.headers)

    def route(method: Literal["GET", "POST"], path: str, verb: Any) -> HTTPRouteHandler:
        return HTTPRouteHandler(
            path, http_method=method, name=f"dashboard {method} {path}", request_max_body_size=LONGEST_FORM
        )(verb)

    return [route("GET", "/login", ask), route("POST", "/login", enter), route("POST", "/logout", leave)]


def _static() -> HTTPRouteHandler:
    async def file(request: _Request) -> ASGIResponse:
        names = request.path_params
        return file_response(names["version"], names["name"])

    return HTTPRouteHandler("/static/{version:str}/{name:str}", http_method="GET", name="dashboard file")(file)
