"""What handlers answer with: JSON with status and headers, gzip, ETags, pages of lists, and reports as callers see
them."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec
from litestar.response.base import ASGIResponse
from msgspec import Struct, field, structs

from context_compactor import __version__
from context_compactor.engine.report import Report
from context_compactor.errors import BadSetting
from context_compactor.sessions.schemas import encode

A = TypeVar("A")
S = TypeVar("S", bound=Struct)
RunInThread = Callable[[Callable[[], bytes]], Awaitable[bytes]]

LARGE_BODY = 64 * 1024
"""More bytes than that are read, written and packed in a thread, so that nobody else has to wait for it."""
GZIP_MIN_BYTES = 1_000
GZIP_LEVEL = 4
_GZIP_HEADERS = {"Content-Encoding": "gzip"}
_VARY_HEADERS = {"Vary": "Accept-Encoding"}


class JsonResponse(Struct, Generic[A], frozen=True):
    """Content on its way out."""

    content: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def json_response(answer: S | bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> JsonResponse[S]:
    """An answer with a status and headers of its own. One that may be large is made where it was computed."""
    return JsonResponse(answer if isinstance(answer, bytes) else encode(answer), status, headers or {})


async def asgi_response(
    answer: Struct | JsonResponse[Struct] | ASGIResponse, accepted: str, run: RunInThread
) -> ASGIResponse:
    """The HTTP response to a verb's answer, packed for those who accept it; one that is ready goes as it is."""
    if isinstance(answer, ASGIResponse):
        return answer
    out: JsonResponse[Struct] = answer if isinstance(answer, JsonResponse) else json_response(answer)
    if len(out.content) >= GZIP_MIN_BYTES:
        out = await _gzipped(out, run) if "gzip" in accepted else _with_content(out, out.content, _VARY_HEADERS)
    return ASGIResponse(
        body=out.content, status_code=out.status, media_type="application/json", headers=out.headers or None
    )


async def _gzipped(out: JsonResponse[A], run: RunInThread) -> JsonResponse[A]:
    pack = partial(gzip.compress, out.content, GZIP_LEVEL, mtime=0)
    content = await run(pack) if len(out.content) > LARGE_BODY else pack()
    return _with_content(out, content, _VARY_HEADERS | _GZIP_HEADERS)


def _with_content(out: JsonResponse[A], content: bytes, headers: dict[str, str]) -> JsonResponse[A]:
    return structs.replace(out, content=content, headers=out.headers | headers)


T = TypeVar("T")
_MAX_CURSOR_LENGTH = 15


def page_of(every: Sequence[T], after: str | None, limit: int | None) -> tuple[list[T], str | None]:
    """The page that is asked for, or all that is behind the cursor, and the cursor of the next one."""
    first = read_cursor(after)
    found = list(every[first:] if limit is None else every[first : first + limit])
    return found, str(first + len(found)) if first + len(found) < len(every) else None


def read_cursor(after: str | None) -> int:
    """A cursor that counts."""
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) <= _MAX_CURSOR_LENGTH):
        raise BadSetting(
            f"after: {after[:40]!r} is not a cursor. Try: the `next` value of the previous page, or leave it out."
        )
    return int(after)


_ETAG = re.compile(r'"[^"]*"')


def etag_of(*parts: Any) -> str:
    """The tag of what these parts stand for. It is a weak one: the same context may come packed or not."""
    digest = hashlib.sha256(msgspec.json.encode([__version__, *parts])).hexdigest()[:32]
    return f'W/"{digest}"'


def matches_etag(tag: str, header: str) -> bool:
    """Whether `If-None-Match` names a tag, weak or not, among others; `*` names whatever there is."""
    return header.strip() == "*" or tag.removeprefix("W/") in _ETAG.findall(header)


def public_report(report: Report, session_id: str) -> Report:
    """The report for whoever knows the session by this id. Where the server keeps its store is its own business."""
    path = f"/v1/sessions/{quote(session_id, safe='', errors='replace')}/archive"
    archived = tuple(structs.replace(each, location=f"{path}/{each.id}") for each in report.archived)
    return structs.replace(report, session_id=session_id, archived=archived)
