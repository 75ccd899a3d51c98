"""The request of a page or a form, with the caches that pages share."""

from __future__ import annotations

from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl

import msgspec
from litestar import Request
from litestar.exceptions.http_exceptions import InternalServerException, RequestEntityTooLarge
from msgspec import Struct

from context_compactor.server.dashboard.caches import CompactionNumbersCache, ProxyReportCache, SessionListCache
from context_compactor.server.problems import RequestRefused
from context_compactor.server.requests import SessionRequest
from context_compactor.sessions.token_series import TokenSeriesCache

MAX_FORM_BYTES = 64 * 1024
"""Bytes; a handler of forms is set up with it, so that what is longer is not read."""

F = TypeVar("F")
Q = TypeVar("Q")
T = TypeVar("T")


class PageCaches:
    """What pages keep between two requests. All of it can be computed again."""

    def __init__(self) -> None:
        self.listing = SessionListCache()
        self.token_series = TokenSeriesCache()
        self.measures = CompactionNumbersCache()
        self.proxied = ProxyReportCache()


class PageRequest(SessionRequest, Generic[F, Q], frozen=True, kw_only=True):
    """A request of a page. `part` is the id of the element that alone is asked for; empty is the whole page."""

    body: F
    query: Q
    caches: PageCaches
    part: str = ""

    @property
    def may_write(self) -> bool:
        """Whether buttons are shown."""
        return self.scope.may_write


class NoForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A button without fields."""


def requested_part(headers: Any) -> str:
    """The id of the element that is to be replaced, as htmx names it."""
    target: str = headers.get("hx-target", "")
    return target.partition("#")[2]


async def read_form_body(request: Request[Any, Any, Any]) -> bytes:
    """The form that was sent, or `RequestRefused` when it is too long or not whole."""
    try:
        return await request.body()
    except RequestEntityTooLarge as error:
        raise RequestRefused(413, f"A form has at most {MAX_FORM_BYTES // 1024} KB. Try: a shorter text.") from error
    except InternalServerException as error:  # all that it can mean here
        raise RequestRefused(499, "The browser went away before its form was complete.") from error


def read_form(raw: bytes, kind: type[T]) -> T:
    """The fields of a form as their type; a field that was left empty is as if it were not there."""
    try:
        fields = parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50)
        return msgspec.convert({name: value for name, value in fields if value.strip()}, kind, strict=False)
    except ValueError as error:  # msgspec's own is one
        raise RequestRefused(422, f"{error}.") from error
