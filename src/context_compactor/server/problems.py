"""What goes wrong, as `application/problem+json`: what it is called, its status, and what to try. Never a traceback."""

from __future__ import annotations

import logging
import secrets
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.response.base import ASGIResponse

from context_compactor import errors
from context_compactor.sessions.schemas import PROBLEM_TYPE, Problem

MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger("context_compactor")

# The first class that fits says how an error is called and which status it has.
_ERROR_TYPES: tuple[tuple[type[errors.CompactorError], int, str, str], ...] = (
    (errors.UnknownSession, 404, "unknown-session", "No such session"),
    (errors.UnknownReference, 404, "unknown-reference", "No such original"),
    (errors.BadMessage, 422, "bad-message", "A message cannot be read"),
    (errors.BadSetting, 422, "bad-setting", "A value is out of its range"),
    (errors.KeyReused, 422, "key-reused", "The key was used for another request"),
    (errors.BadInput, 422, "bad-input", "What was given cannot be used"),
    (errors.StaleBase, 409, "stale-base", "The context has changed meanwhile"),
    (errors.StoreLocked, 503, "store-locked", "The store is busy"),
    (errors.DamagedContent, 500, "damaged-content", "A content of the store is damaged"),
    (errors.StoreError, 503, "store", "The store cannot be read or written"),
    (errors.Cancelled, 409, "cancelled", "Somebody has cancelled it"),
    (errors.ModelStopped, 503, "stopped", "It was broken off"),
    (errors.ModelError, 502, "model", "The model did not answer"),
    (errors.MissingExtra, 501, "missing-extra", "The server lacks an optional part"),
    (errors.CompactorError, 500, "failed", "It could not be done"),
)
_SERVER_FAULTS = (errors.StoreError, errors.MissingExtra)
_STATUSES = {
    400: ("bad-request", "The request cannot be read"),
    401: ("unauthorized", "A token is needed"),
    403: ("forbidden", "Not allowed"),
    404: ("not-found", "Nothing is there"),
    405: ("method-not-allowed", "Not with this method"),
    413: ("too-large", "The request is too large"),
    415: ("media-type", "The body is not JSON, or packed in a way that is not known"),
    422: ("bad-input", "What was given cannot be used"),
    499: ("client-gone", "The client went away"),
    503: ("busy", "The server cannot take more"),
}


class RequestRefused(Exception):
    """A request that goes no further, with the status it gets."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.headers = headers or {}
        super().__init__(detail)


def problem_of(error: errors.CompactorError | RequestRefused, text: str = "") -> Problem:
    """An error as its caller sees it; `text` is its text where that must differ."""
    text = text or str(error)
    if isinstance(error, RequestRefused):
        name, title = _STATUSES[error.status]
        return Problem(type=PROBLEM_TYPE + name, title=title, status=error.status, detail=text)
    status, name, title = next(row[1:] for row in _ERROR_TYPES if isinstance(error, row[0]))
    problem = Problem(type=PROBLEM_TYPE + name, title=title, status=status, detail=text)
    if isinstance(error, errors.BadMessage):
        return msgspec.structs.replace(problem, index=error.index, field=error.field)
    return _logged(problem, error) if isinstance(error, _SERVER_FAULTS) else problem


def _logged(problem: Problem, error: Exception) -> Problem:
    """A failure of the server itself: the log has what happened, the caller the name under which it stands there."""
    ref = secrets.token_hex(6)
    is_foreseen = isinstance(
        error, errors.CompactorError
    )  # then its words say what is wrong, and nobody has to look further
    _log.error("%s: %s", ref, error, exc_info=None if is_foreseen else error)
    return msgspec.structs.replace(problem, detail=f"The server's log says why under {ref}.", ref=ref)


def problem_response(problem: Problem, headers: dict[str, str] | None = None) -> ASGIResponse:
    """A problem on its way out."""
    known = _problem_headers(problem) | (headers or {})
    return ASGIResponse(body=_problem_body(problem), status_code=problem.status, media_type=MEDIA_TYPE, headers=known)


def _framework_response(problem: Problem, headers: dict[str, str] | None = None) -> Response[bytes]:
    """The same where the framework sends it."""
    known = _problem_headers(problem) | (headers or {})
    return Response(_problem_body(problem), status_code=problem.status, media_type=MEDIA_TYPE, headers=known)


def _problem_headers(problem: Problem) -> dict[str, str]:
    if problem.status == 401:
        return {"WWW-Authenticate": 'Bearer realm="context-compactor"'}
    return {"Retry-After": "1"} if problem.status == 503 else {}


def _problem_body(problem: Problem) -> bytes:
    try:
        return msgspec.json.encode(problem)
    except UnicodeEncodeError:  # half a character cannot be written, only replaced
        detail = problem.detail.encode("utf-8", "replace").decode()
        return msgspec.json.encode(msgspec.structs.replace(problem, detail=detail, field=None))


def on_request_refused(_request: Request[Any, Any, Any], error: RequestRefused) -> Response[bytes]:
    """The answer to a request that goes no further."""
    return _framework_response(problem_of(error), error.headers)


def on_compactor_error(_request: Request[Any, Any, Any], error: errors.CompactorError) -> Response[bytes]:
    """The answer to an error of ours that nobody has answered before."""
    return _framework_response(problem_of(error))


def on_http_exception(_request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """The answer to what the framework refuses: an unknown path, a wrong method, a body that is too large."""
    name, title = _STATUSES.get(error.status_code, ("bad-request", "The request cannot be answered"))
    if error.status_code >= 500:
        return on_unexpected_error(_request, error)
    problem = Problem(type=PROBLEM_TYPE + name, title=title, status=error.status_code, detail=error.detail)
    return _framework_response(problem, error.headers)


def on_unexpected_error(_request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The answer to a failure that nobody has foreseen."""
    return _framework_response(
        _logged(Problem(type=PROBLEM_TYPE + "internal", title="The server failed", status=500), error)
    )
